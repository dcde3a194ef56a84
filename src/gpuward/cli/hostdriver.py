"""What helps a node that is to have a driver or a container toolkit of its own, and has none that works."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Final

from gpuward import names
from gpuward.cli.look import Picture
from gpuward.model.operand_pods import unready_operands
from gpuward.model.policy import UpgradePolicy
from gpuward.model.views import NodeView
from gpuward.report.warned import lost_its_driver, waits_for_toolkit
from gpuward.upgrade.remedies import Remedy
from gpuward.upgrade.remedies.fixes import DecisionFacts
from gpuward.upgrade.remedies.question import SOON

_STEP: Final = "driver-validation"
"""The init container that waits for a driver."""
_TOOLKIT: Final = '{"spec":{"toolkit":{"enabled":true}}}'


def without_our_drivers(node: NodeView, picture: Picture, upgrades: UpgradePolicy) -> Iterator[Remedy]:
    """Return what helps a node that gets no driver from us."""
    yield from _wanted_drivers(node, picture, upgrades)
    yield from _host_drivers(node, picture, upgrades)


def _host_drivers(node: NodeView, picture: Picture, upgrades: UpgradePolicy) -> Iterator[Remedy]:
    """Return what helps where a pod waits for a driver and we install none, since drivers are switched off or the host is said to
    have one: nobody can try that on paper.
    """
    view, snapshot, off = picture.active.view, picture.snapshot, picture.active.switched_off
    if view is None or not node.ready or not (off or node.labels.get(names.DEPLOY_DRIVER) == names.PRE_INSTALLED):
        return
    waiting = next((pod for pod in unready_operands(snapshot.pods.get(node.name, ()), snapshot.namespace)
                    if pod.begun and pod.progress is not None and pod.progress.name == _STEP), None)
    if waiting is None:
        return
    after = DecisionFacts(snapshot, upgrades)
    why = "driver.enabled is false" if off else f"the label {names.DEPLOY_DRIVER}={names.PRE_INSTALLED} says that there is one"
    yield Remedy(f"install a driver on the host, or see why the one there does not work: {why}, so gpuward installs none",
                 f"init container {_STEP} finds it, and the rest of the GPU stack starts",
                 (f"kubectl logs {quote(waiting.name)} -n {quote(snapshot.namespace)} -c {_STEP}",), after)
    do, command = ("set driver.enabled to true", f"kubectl edit clusterpolicy {quote(view.name)}") if off else (
        "take that label away", f"kubectl label node {quote(node.name)} {names.DEPLOY_DRIVER}-")
    yield Remedy(f"or have gpuward install drivers: {do}", "the node gets a driver pod", (command,), after)


def _wanted_drivers(node: NodeView, picture: Picture, upgrades: UpgradePolicy) -> Iterator[Remedy]:
    """Return what helps where a driver went under pods, as a label of the node says."""
    if lost_its_driver(node, picture.snapshot) and not picture.active.switched_off:
        after = DecisionFacts(picture.snapshot, upgrades)
        yield Remedy("take the label away that keeps the driver from the node, if it is to have one",
                     "it gets a driver pod again; where that would load another driver, once pods that use GPUs have left",
                     (f"kubectl label node {quote(node.name)} {names.DEPLOY_DRIVER}-",), after)


def own_toolkits(node: NodeView, picture: Picture, upgrades: UpgradePolicy) -> Iterator[Remedy]:
    """Return what helps where the container toolkit is switched off, and the container runtime does not start a pod."""
    view, snapshot = picture.active.view, picture.snapshot
    pod = waits_for_toolkit(node.name, picture.active, snapshot)
    if view is None or pod is None or not node.ready or picture.now < pod.created + SOON:
        return
    after, then = DecisionFacts(snapshot, upgrades), f"pod {pod.name} starts, and the rest of the GPU stack after it"
    yield Remedy("have gpuward install the container toolkit: toolkit.enabled is false, and pods of NVIDIA's runtime class do "
                 "not start here", then,
                 (f"kubectl patch clusterpolicy {quote(view.name)} --type merge -p '{_TOOLKIT}'",), after)
    yield Remedy("or install one on the host, or see why the one there does not work: the pod's events quote the runtime",
                 then, (f"kubectl describe pod {quote(pod.name)} -n {quote(snapshot.namespace)}",), after)
