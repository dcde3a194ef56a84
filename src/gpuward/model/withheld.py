"""Drivers that are withheld from a node: one is loaded there that has no driver pod any more, and another one would come.

Its driver manager would unload the one that is loaded under the pods that use it, or crash until these are gone. So such a node
lacks the label by which driver DaemonSets select it, until the upgrade has emptied it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import msgspec

from gpuward import names
from gpuward.model.driver import (
    comes_with_driver,
    heeds_variable,
    is_driver_daemonset,
    is_driver_pod,
    spares_default_runtime,
    uses_driver,
)
from gpuward.model.record import UNTOLD_DRIVER
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import DaemonSetView, NodeView, PodView
from gpuward.model.workloads import is_for_virtual_machines


class Loaded(msgspec.Struct, frozen=True):
    """Tell of a driver that may be loaded on a node that has no driver pod."""

    digest: str
    used: bool
    """Whether pods run on it."""
    going: bool = False
    """Whether its driver pod is still on its way out: the next one comes at once where a DaemonSet selects the node."""


def is_withheld(node: NodeView) -> bool:
    """Tell whether a node lacks the label by which it gets a driver, though it had one; whoever wants none sets it to `false`,
    and one for virtual machines is to have none.
    """
    lacks = not node.labels.get(names.DEPLOY_DRIVER) and node.labels.get(names.DEPLOY_OPERANDS) != "false"
    return lacks and node.gpu_present and bool(loaded_last(node)) and not is_for_virtual_machines(node)


def is_unwanted(node: NodeView) -> bool:
    """Tell whether people say by its label that a node is to have no driver."""
    said = node.labels.get(names.DEPLOY_DRIVER) == "false" and node.labels.get(names.DEPLOY_OPERANDS) != "false"
    return said and node.gpu_present and not is_for_virtual_machines(node)


def with_driver(node: NodeView) -> NodeView:
    """Return a node as it is once it may get a driver."""
    return msgspec.structs.replace(node, labels={**node.labels, names.DEPLOY_DRIVER: "true"})


def living_daemonsets(snapshot: Snapshot) -> frozenset[str]:
    """Return the uids of the DaemonSets that stay, or leave their pods behind."""
    return frozenset(ds.uid for ds in snapshot.daemonsets if not ds.deleting or ds.leaves_pods)


def loaded_alone(node: NodeView, pods: Iterable[PodView], namespace: str, living: Set[str], *, spared: bool) -> Loaded | None:
    """Return the driver that may be loaded on a node without a driver pod, or with one that goes with its DaemonSet; None where
    there is none, and where the upgrade has emptied the node for another one. Of one that only the history of upgrades tells
    pods have to tell, too. A driver pod that failed is none, and nobody wished
    for the one that its DaemonSet makes in its place, which can still go before anything in it has begun. A node that a GPU pod
    has come to since is not empty, whether that runs by now or is about to.

    `spared` is what `spares_default_runtime` says. Pods that only hold the driver use it, too; whether they have to leave before
    a node counts as emptied is a matter of its policy, which has not let it come so far otherwise.
    """
    digest, used, held, going, comes = loaded_last(node), False, False, False, False
    variable = heeds_variable(node, spared)
    if not digest:
        return None
    for pod in pods:
        if is_driver_pod(pod, namespace):
            idle = pod.deleting or pod.finished or (pod.after_failed and not pod.begun)
            if not idle and (pod.owner is None or pod.owner.uid in living):
                return None
            going = going or pod.deleting
        elif pod.phase == "Running" and not pod.was_left_by(node):
            used = used or (pod.uses_gpu and not pod.idle_claim)
            held = held or (not pod.uses_gpu and uses_driver(pod, namespace, variable=variable))
        elif pod.uses_gpu and not (pod.finished or pod.was_left_by(node) or comes_with_driver(pod, namespace)):
            comes = True
    restarted = node.record is not None and bool(node.record.restart)
    if not (used or held or comes or _remembered(node)):
        return None
    emptied = node.state is State.POD_RESTART_REQUIRED and node.unschedulable and not (used or comes or restarted)
    return None if emptied else Loaded(digest, used or held, going)


def runs_on_loaded(node: NodeView, snapshot: Snapshot) -> bool:
    """Tell whether pods of a node use a driver that has no driver pod any more."""
    pods, spared = snapshot.pods.get(node.name, ()), spares_default_runtime(snapshot)
    loaded = loaded_alone(node, pods, snapshot.namespace, living_daemonsets(snapshot), spared=spared)
    return loaded is not None and loaded.used


def loaded_last(node: NodeView) -> str:
    """Return the digest of the driver that was loaded last, as far as that is remembered. Where somebody deleted our record, the
    history of upgrades still tells that there was one of ours; a node with a driver of its own has none.
    """
    return _remembered(node) or (UNTOLD_DRIVER if names.UPGRADE_HISTORY in node.annotations else "")


def _remembered(node: NodeView) -> str:
    return node.record.loaded if node.record is not None else ""


def selecting(daemonsets: Iterable[DaemonSetView], labels: Mapping[str, str]) -> list[DaemonSetView]:
    """Return the DaemonSets that stay and select a node with these labels."""
    return [ds for ds in daemonsets if not ds.deleting and ds.node_selector.items() <= labels.items()]


def digests_of(daemonsets: Iterable[DaemonSetView], namespace: str) -> frozenset[str]:
    """Return the drivers of the driver DaemonSets among some, by their digests."""
    return frozenset(ds.config_digest for ds in daemonsets if is_driver_daemonset(ds, namespace))


def replaces(daemonsets: Iterable[DaemonSetView], loaded: Loaded) -> bool:
    """Tell whether any of these DaemonSets has another driver than is loaded."""
    return any((ds.config_digest or UNTOLD_DRIVER) != loaded.digest for ds in daemonsets)
