"""Which nodes go into quarantine: only the fleet tells whether there is room for one more, so that this is decided at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial

import msgspec

from gpuward.model import causes
from gpuward.model.actions import EventText
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import State
from gpuward.model.undrainable import Behaviour, GivenUp, Quarantined
from gpuward.model.views import PodView
from gpuward.upgrade.drain import jobs_since
from gpuward.upgrade.evicting import Eviction
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.fleet import Standing
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.progress import NodeProgress, begin
from gpuward.upgrade.undrainable import CAUSE_LENGTH, LEAVING, given_up_at, gives_up_at

_QUARANTINED = "The pods of the node cannot be moved, so it is quarantined with the driver that it has: "


def without_quarantined(nodes: Sequence[NodeDecision], policy: UpgradePolicy) -> Iterator[Standing]:
    """Yield how nodes count: those in quarantine use no slot, as far as so many may be there, those first that came first."""
    settings = policy.rollout.undrainable
    inside = sorted((node.standing.quarantined, node.standing.name) for node in nodes if node.standing.quarantined)
    spared = {name for _, name in inside[:settings.max_quarantined]} if settings is not None else set[str]()
    for node in nodes:
        standing = node.standing
        if standing.name in spared:
            out = not node.before.node.ready or not node.before.serves
            standing = msgspec.structs.replace(standing, in_progress=False, unavailable=out, spared=True)
        yield standing


def quarantined(
    nodes: Sequence[NodeDecision], unsettled: Set[str], policy: UpgradePolicy, now: float
) -> dict[str, Callable[[], NodeProgress]]:
    """Return the nodes that go into quarantine now, those first that have waited longest, as far as there is room."""
    settings = policy.rollout.undrainable
    if settings is None or settings.behaviour is not Behaviour.QUARANTINE:
        return {}
    # One whose last write has no known outcome may have gone in by it.
    used = sum(bool(node.before.record.given_up and node.before.record.given_up.quarantined)
               or node.before.node.name in unsettled for node in nodes if node.before.state in LEAVING)
    due = sorted((node for node in nodes if node.before.node.name not in unsettled and _is_due(node, policy, now)),
                 key=lambda node: (node.before.record.since, node.before.node.name))
    room = max(0, settings.max_quarantined - used)
    return {node.before.node.name: partial(_enter, node.before, policy, now) for node in due[:room]}


def _is_due(judged: NodeDecision, policy: UpgradePolicy, now: float) -> bool:
    """Tell whether a node has waited for its pods for long enough, or would fail for them now."""
    node, path = judged.before, judged.path
    if node.refused is not None or node.by_hand or node.node.record is None or node.record.given_up is not None:
        return False
    since, jobs = _since(node, now), node.state is State.WAIT_FOR_JOBS_REQUIRED
    at = gives_up_at(node, policy, since) if jobs else given_up_at(_eviction(node, policy), since)
    if at is None or path.node.state in (State.UNCORDON_REQUIRED, State.DONE, State.UPGRADE_REQUIRED):
        return False
    fails = path.node.state is State.FAILED and not _eviction(node, policy).evictable.blocked
    return fails or (now >= at and bool(_staying(node)))


def _staying(node: NodeFacts) -> Sequence[PodView]:
    """Return the pods that a node waits for in its state."""
    if node.state is State.WAIT_FOR_JOBS_REQUIRED:
        return node.jobs
    return (node.to_drain if node.state is State.DRAIN_REQUIRED else node.to_evict).pods


def _since(node: NodeFacts, now: float) -> float:
    return jobs_since(node, now) if node.state is State.WAIT_FOR_JOBS_REQUIRED else node.record.since


def _eviction(node: NodeFacts, policy: UpgradePolicy) -> Eviction:
    drains = node.state is State.DRAIN_REQUIRED
    timeout = policy.drain.timeout_seconds if drains else policy.pod_deletion.timeout_seconds
    return Eviction(node, node.to_drain if drains else node.to_evict, policy, timeout)


def _enter(node: NodeFacts, policy: UpgradePolicy, now: float) -> NodeProgress:
    seconds = now - _since(node, now)
    jobs = node.state is State.WAIT_FOR_JOBS_REQUIRED
    cause = causes.not_complete(seconds, (pod.ref for pod in node.jobs)) if jobs else _eviction(node, policy).still_there(seconds)
    path = begin(node, now)
    record = msgspec.structs.replace(path.node.record, given_up=GivenUp(now, cause[:CAUSE_LENGTH], quarantined=True))
    return msgspec.structs.replace(
        path, node=msgspec.structs.replace(path.node, record=record), adopted=True,
        events=(EventText(_QUARANTINED + cause, warning=True),), hold=Hold(Quarantined(cause[:CAUSE_LENGTH]), now))
