"""A new template of an operand that comes to no further node: its DaemonSet replaces a few pods at a time (`maxUnavailable`), and
those count that are not ready, as on a node whose driver is being upgraded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

import msgspec

from gpuward.model.driver import is_newest, revisions_of
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.troubles import trouble_of
from gpuward.model.views import DaemonSetView, NodeView, PodView, RevisionView


class HeldUp(msgspec.Struct, frozen=True):
    """Say which pods have an older template, and which others they wait for."""

    older: tuple[str, ...]
    """The nodes of pods that have an older template."""
    awaited: Mapping[str, str]
    """The nodes of pods that are not ready, and why; empty where the pod itself is in trouble."""
    desired: int

    def __str__(self) -> str:
        """Return the words for it."""
        one = len(self.older) == 1
        which = "the one that is not ready" if len(self.awaited) == 1 else f"the {len(self.awaited)} that are not ready"
        told = [f"{node}: {why}" for node, why in self.awaited.items() if why]
        return (f"{len(self.older)} of {self.desired} pods {'has' if one else 'have'} an older template, and "
                f"{'waits' if one else 'wait'} for {which}" + (f" ({listed(told, MOST_NAMED)})" if told else ""))

    @property
    def told(self) -> str:
        """Return the nodes that are waited for, and why."""
        return listed([f"{node} ({why})" if why else node for node, why in self.awaited.items()], MOST_NAMED)


def held_up(daemon_set: DaemonSetView, pods: Iterable[PodView], revisions: Iterable[RevisionView],
            nodes: Iterable[NodeView]) -> HeldUp | None:
    """Return what the newest template of a DaemonSet waits for; None where it goes on, or waits for pods that may just be
    starting. `pods` and `nodes` may include those of others.
    """
    rolls = daemon_set.settled and not daemon_set.on_delete and daemon_set.unavailable and daemon_set.updated < daemon_set.desired
    found = revisions_of(daemon_set.uid, revisions) if rolls else None
    if found is None or found.newest is None:
        return None
    own = [pod for pod in pods if pod.is_owned_by(daemon_set.uid) and not pod.deleting]
    older = tuple(sorted(pod.node for pod in own if pod.ready and not is_newest(pod, daemon_set, found)))
    unready = {pod.node: pod for pod in own if pod.node and not pod.ready}
    if not older or len(unready) < _allowed(daemon_set):
        return None
    known = {node.name: node for node in nodes if node.name in unready}
    awaited = {name: why for name in sorted(unready) if (why := _why(known.get(name), unready[name])) is not None}
    return HeldUp(older, awaited, daemon_set.desired) if awaited else None


def _allowed(daemon_set: DaemonSetView) -> int:
    """Return how many pods may be away at once for a new template."""
    limit = daemon_set.max_unavailable
    share, is_share = limit.removesuffix("%"), limit.endswith("%")
    if not share.isdecimal():
        return 1
    return ceil(daemon_set.desired * int(share) / 100) if is_share else int(share)


def _why(node: NodeView | None, pod: PodView) -> str | None:
    """Say why a pod is not ready, as far as that is up to its node; None where it may just be starting."""
    if node is not None and node.state in IN_PROGRESS:
        return "its driver is being upgraded"
    if node is not None and not node.ready:
        return "the node is not Ready"
    if node is not None and node.state is State.FAILED:
        return "its driver upgrade has failed"
    if node is not None and node.state is State.UPGRADE_REQUIRED:
        return "it waits for its driver upgrade"
    return "" if trouble_of(pod) is not None else None
