"""What keeps a driver loaded while its driver pod is replaced by one with the same driver.

The container of a driver pod unloads the modules when it ends, unless something has them open. A GPU pod need not: an idle one
would lose the driver, and what it does next fails. Operands that watch the GPUs have the driver open all the time.

They stop once the old driver pod has gone: the driver manager pauses their labels before it looks which driver is loaded. The
MPS daemon stops with the device plugin, and the CUDA contexts of all pods that share GPUs by it end with its server.

The fabric manager of machines with NVSwitches runs in the driver pod and ends with it. With the GPUs before Hopper it aborts all
CUDA jobs then, by default (ABORT_CUDA_JOBS_ON_FM_EXIT; of no effect with later ones).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.reading import read_count
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView

_ABORTS_JOBS: Final = ("V100-SXM3", "A100-SXM", "A800-SXM")
"""GPUs, by their product's name, that NVSwitches connect where a machine has more than `_WITHOUT_SWITCHES`, and whose fabric
manager aborts jobs as it ends.
"""
_WITHOUT_SWITCHES: Final = 4


class ModuleHolders(msgspec.Struct, frozen=True):
    """Say which pods on a node keep its driver loaded now, by uid, and whether such ones are to be there."""

    pods: tuple[str, ...] = ()
    expected: bool = False

    @property
    def awaited(self) -> bool:
        """Tell whether none is there, and one is to come."""
        return self.expected and not self.pods


NOBODY = ModuleHolders()


class HolderDaemonSet(msgspec.Struct, frozen=True):
    """Say of a DaemonSet whose pods have the driver open where these are, and of which template."""

    node_selector: Mapping[str, str]
    template: int
    """Its number; 0 where pods of any template stay, or it is not known."""


def holder_daemonsets(snapshot: Snapshot) -> dict[str, HolderDaemonSet]:
    """Return the operands' DaemonSets whose pods have the driver open, by uid."""
    return {ds.uid: HolderDaemonSet(ds.node_selector, 0 if ds.on_delete else ds.template_generation) for ds in snapshot.daemonsets
            if ds.opens_driver and not ds.deleting and ds.namespace == snapshot.namespace}


def module_holders_on(
    node: NodeView, pods: Collection[PodView], daemonsets: Mapping[str, HolderDaemonSet], namespace: str
) -> ModuleHolders:
    """Return what keeps a node's driver loaded: pods that are ready, and that their DaemonSet does not replace soon; nobody where
    that spares GPU pods nothing, as what they need ends with the driver pod or soon after it.
    """
    if _aborts_jobs(node) or any(_serves_mps(pod, namespace) for pod in pods):
        return NOBODY
    own = {uid: ds for uid, ds in daemonsets.items() if ds.node_selector.items() <= node.labels.items()}
    staying = (pod.uid for pod in pods if holds_modules(pod) and pod.owner is not None and _stays(pod, own.get(pod.owner.uid)))
    return ModuleHolders(tuple(sorted(staying)), bool(own))


def _aborts_jobs(node: NodeView) -> bool:
    count = read_count(node.labels.get(names.GPU_COUNT, ""))
    product = node.labels.get(names.GPU_PRODUCT, "")
    return any(name in product for name in _ABORTS_JOBS) and not 0 < count <= _WITHOUT_SWITCHES


def _serves_mps(pod: PodView, namespace: str) -> bool:
    return pod.labels.get("app") == names.MPS_DAEMON_APP and pod.namespace == namespace and not pod.finished


def holds_modules(pod: PodView) -> bool:
    """Tell whether a pod that may keep the driver loaded does so now."""
    return pod.ready and not pod.deleting


def _stays(pod: PodView, ds: HolderDaemonSet | None) -> bool:
    return ds is not None and (not (ds.template and pod.template_generation) or pod.template_generation == ds.template)
