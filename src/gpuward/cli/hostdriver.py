"""What helps a node that is to have a driver of its own, and has none that works."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Final

from gpuward.cli.look import Picture
from gpuward.model.operand_pods import unready_operands
from gpuward.model.policy import UpgradePolicy
from gpuward.model.views import NodeView
from gpuward.upgrade.remedies import Remedy
from gpuward.upgrade.remedies.fixes import DecisionFacts

_STEP: Final = "driver-validation"
"""The init container that waits for a driver."""


def host_drivers(node: NodeView, picture: Picture, upgrades: UpgradePolicy) -> Iterator[Remedy]:
    """Return what helps where drivers are switched off, and a pod of the node waits for one: nobody can try that on paper."""
    view, snapshot = picture.active.view, picture.snapshot
    if view is None or not picture.active.switched_off or not node.ready:
        return
    waiting = next((pod for pod in unready_operands(snapshot.pods.get(node.name, ()), snapshot.namespace)
                    if pod.begun and pod.progress is not None and pod.progress.name == _STEP), None)
    if waiting is None:
        return
    after = DecisionFacts(snapshot, upgrades)
    yield Remedy("install a driver on the host, or see why the one there does not work: driver.enabled is false, so gpuward "
                 "installs none",
                 f"init container {_STEP} finds it, and the rest of the GPU stack starts",
                 (f"kubectl logs {quote(waiting.name)} -n {quote(snapshot.namespace)} -c {_STEP}",), after)
    yield Remedy("or have gpuward install drivers: set driver.enabled to true", "the node gets a driver pod",
                 (f"kubectl edit clusterpolicy {quote(view.name)}",), after)
