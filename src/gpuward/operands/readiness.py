"""When a DaemonSet counts as ready, as the policy's state reports it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from gpuward.model.driver import is_newest, revisions_of
from gpuward.model.taints import tolerated
from gpuward.model.views import DaemonSetView, NodeView, PodView, RevisionView
from gpuward.operands.held_up import held_up

_PODS: Final = " pods "
_HELD_UP: Final = " an older template, and wait"


def daemonset_ready(daemon_set: DaemonSetView | None, pods: Iterable[PodView] = (),
                    revisions: Iterable[RevisionView] = (), nodes: Collection[NodeView] = ()) -> bool:
    """Tell whether every node that should run the DaemonSet runs its newest template; see `waits_for`."""
    return not waits_for(daemon_set, pods, revisions, nodes)


def about_pods(waits: str) -> bool:
    """Tell whether a wait is for pods: others are over in a moment, and words of a status are written with some delay."""
    return _PODS in waits


def about_templates(waits: str) -> bool:
    """Tell whether a new template waits for pods that are not ready: nothing else says why it does not come."""
    return _HELD_UP in waits


def waits_for(daemon_set: DaemonSetView | None, pods: Iterable[PodView] = (),
              revisions: Iterable[RevisionView] = (), nodes: Collection[NodeView] = ()) -> str:
    """Return what a DaemonSet waits for, empty when it is ready.

    A DaemonSet that no node wants is ready once its controller has said so. `pods` and `revisions` matter only to one that is
    updated OnDelete, whose own status says nothing about which template its pods have, and to one whose new template waits for
    pods that are not ready; they may include those of others. What is
    counted lags behind the labels of `nodes`: one that has just been labelled must not pass for one that is served.
    """
    return _counted_pods(daemon_set, pods, revisions, nodes) or _uncounted(daemon_set, nodes)


def _counted_pods(daemon_set: DaemonSetView | None, pods: Iterable[PodView], revisions: Iterable[RevisionView],
                  nodes: Collection[NodeView]) -> str:
    if daemon_set is None:
        return "the DaemonSet does not exist"
    if not daemon_set.settled:
        return "the DaemonSet controller has not seen the newest template"
    if daemon_set.desired == 0:
        return ""
    if daemon_set.unavailable:
        held = held_up(daemon_set, pods, revisions, nodes)
        return str(held) if held is not None else f"{daemon_set.unavailable} of {daemon_set.desired} pods are unavailable"
    if daemon_set.on_delete:
        return _newest_everywhere(daemon_set, pods, revisions)
    if daemon_set.updated != daemon_set.desired:
        return f"{daemon_set.updated} of {daemon_set.desired} pods have the newest template"
    if daemon_set.available != daemon_set.desired:
        return f"{daemon_set.available} of {daemon_set.desired} pods are available"
    return ""


def _uncounted(daemon_set: DaemonSetView | None, nodes: Collection[NodeView]) -> str:
    if daemon_set is None or (tolerations := daemon_set.tolerations) is None:
        return ""
    wanted = list(nodes)
    for key, value in daemon_set.node_selector.items():
        wanted = [node for node in wanted if node.labels.get(key) == value]
    if len(wanted) <= daemon_set.desired:
        return ""
    # Of others it is not certain that they get a pod.
    sure = sum(bool(node.ready) and not node.deleting and tolerated(node.taints, tolerations) for node in wanted)
    return f"the DaemonSet controller has counted {daemon_set.desired} of {sure} nodes" if sure > daemon_set.desired else ""


def _newest_everywhere(daemon_set: DaemonSetView, pods: Iterable[PodView], revisions: Iterable[RevisionView]) -> str:
    found = revisions_of(daemon_set.uid, revisions)
    if found.newest is None:
        return "the DaemonSet has no ControllerRevision"
    own = [pod for pod in pods if pod.is_owned_by(daemon_set.uid)]
    if len(own) < daemon_set.desired:
        return f"{len(own)} of {daemon_set.desired} pods exist"
    # A template that differs in labels and annotations only restarts no driver, so its pods count.
    stale = [pod for pod in own if not is_newest(pod, daemon_set, found)]
    if stale:
        return f"{len(stale)} of {len(own)} pods have an older template"
    unready = [pod for pod in own if not pod.ready]
    return f"{len(unready)} of {len(own)} pods are not ready" if unready else ""
