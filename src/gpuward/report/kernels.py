"""Say where discovery's label for a node's kernel, by which precompiled drivers are chosen, is missing or wrong."""

from __future__ import annotations

from collections.abc import Iterator

from gpuward import names
from gpuward.model.owners import name_of, owner_of
from gpuward.model.placement import Placing
from gpuward.model.systems import is_kernel, kernel_of
from gpuward.model.views import NodeView

NODE = "{}"
"""What stands for the node's name."""


def told_of_kernel(node: NodeView, placing: Placing | None) -> Iterator[str]:
    """Return what is to be said of a node's kernel; nothing where it is as the label says, or no driver is chosen by it."""
    if not node.gpu_present or node.labels.get(names.DEPLOY_DRIVER) != "true" or not _is_chosen_by_it(node, placing):
        return
    said, current = kernel_of(node.labels), node.labels.get(names.DRIVER_KERNEL, "")
    if not said:
        has = f"the label {names.NFD_KERNEL}={node.labels[names.NFD_KERNEL]} of {NODE} can be no kernel" if (
            node.labels.get(names.NFD_KERNEL)) else f"{NODE} has no label {names.NFD_KERNEL}"
        then = f"its precompiled driver stays the one for kernel {current}" if current else "no precompiled driver can be chosen"
        yield f"{has}: {then}"
    elif node.kernel and not is_kernel(said, node.kernel):
        then = (f"stays the one for kernel {current} until they agree" if current
                else "is chosen by the label only where no driver runs yet")
        yield (f"the label {names.NFD_KERNEL}={said} of {NODE} is not the kernel that it runs, {node.kernel}: its precompiled "
               f"driver {then}. Correct the label, or see whether node feature discovery runs there")


def _is_chosen_by_it(node: NodeView, placing: Placing | None) -> bool:
    if placing is None or placing.claims is None:
        return placing is not None and placing.precompiled
    current = node.labels.get(names.DRIVER_OWNER, "")
    claims = (placing.claim(current), placing.claim(name_of(owner_of(node.name, node.labels, placing.claims), current)))
    return any(claim is not None and claim.precompiled for claim in claims)
