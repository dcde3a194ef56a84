"""Notice before pods are evicted: the last gate of admission, and what is written on a node that is held by it.

A node that would start now, and from which pods would be evicted, is given notice instead, and keeps its place among those that
may be under way. It starts when the time is up or, before that, once all pods have acknowledged it. See `notices` for when a
notice is taken back.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import EventText
from gpuward.model.notice import (
    ALWAYS,
    OUTLIVES,
    Acknowledge,
    Notice,
    NoticeGiven,
    NoticeUnanswered,
    encode_notice,
    new_notice,
    notice_of,
)
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import AGREEMENT
from gpuward.model.removal import NO_DRIVER
from gpuward.model.views import PodView, Ref
from gpuward.model.windows import UTC_NAME, WindowShut, moment_in
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.fleet import Candidate, Fleet
from gpuward.upgrade.fleet_gates import keeps_to_windows
from gpuward.upgrade.gangs import pods_by_gang
from gpuward.upgrade.holding import undecided_for
from gpuward.upgrade.progress import NodeProgress
from gpuward.upgrade.windows import windows_of, with_room

SLACK: Final = 60.0
"""Seconds that a window has to be open longer than a notice that is given in it."""
MOST_TOLD: Final = 50
"""Pods of a node that have an event of their own."""


def pods_told(node: NodeFacts, policy: UpgradePolicy) -> tuple[PodView, ...]:
    """Return the pods that an upgrade of a node would evict, and that have something to lose by that."""
    if node.restart_only or node.to_evict.empty:
        return ()
    # A drain comes only where GPU pods do not go: what it takes besides is told where some may not.
    going = node.to_drain if policy.drain.enable and node.to_evict.blocked else node.to_evict
    return tuple(pod for pod in going.pods if not (pod.finished or pod.deleting or pod.acknowledged == ALWAYS))


def current_notice(node: NodeFacts, fleet: Fleet, policy: UpgradePolicy) -> Notice | None:
    """Return the notice that counts for a node: of the driver that it is to get, and of a time that this clock can agree with."""
    settings, notice, now = policy.rollout.notice, notice_of(node.node.annotations), fleet.now
    if settings is None or notice is None or not node.target or not node.runs(notice.target):
        return None
    # Its gang waits for the last of all notices: were it given anew meanwhile, the others would wait for it in turn, for ever.
    last = max((fleet.gangs.noticed.get(gang, 0.0) for gang in pods_by_gang(node)), default=0.0) if fleet.gangs.noticed else 0.0
    is_old = settings.acknowledge is Acknowledge.OPTIONAL and now > max(notice.begins, last) + OUTLIVES
    return None if is_old or notice.given > now + AGREEMENT else notice


def held_by_notice(node: Candidate, fleet: Fleet, policy: UpgradePolicy, windows: Fleet | None = None) -> Hold | None:
    """Hold a node, that nothing else holds, until those have had their time whose pods are evicted from it. `windows` is the
    fleet in whose windows it starts, where that is another one.
    """
    if policy.rollout.notice is None:
        return None
    try:
        return _held(node, fleet, policy, windows or fleet)
    except Exception as error:  # it is this node's trouble alone
        return undecided_for(node, error)


def _held(node: Candidate, fleet: Fleet, policy: UpgradePolicy, windows: Fleet) -> Hold | None:
    settings, pods, now = policy.rollout.notice, pods_told(node, policy), fleet.now
    if settings is None or not pods:
        return None
    given = notice = current_notice(node, fleet, policy)
    if notice is None:
        if (shut := _too_short(node, windows, policy, settings.before)) is not None:
            return shut
        notice = _new(node, settings.before, now)
    left = [pod for pod in pods if pod.acknowledged != notice.id]
    if not left:
        return None
    required = settings.acknowledge is Acknowledge.REQUIRED
    if now < notice.begins:
        before = 0.0 if given is not None else settings.before
        told = NoticeGiven(notice.id, notice.begins, left[0].ref, len(left), len(pods), required, before)
        return Hold(told, notice.given, notice.begins)
    if not required:
        return None
    return Hold(NoticeUnanswered(notice.id, notice.begins, left[0].ref, len(left), len(pods)), notice.given)


def shut_for_notice(hold: Hold | None, node: Candidate, policy: UpgradePolicy, windows: Fleet) -> Hold | None:
    """Return what holds a node; where its windows are shut, until the next that is long enough for its notice, too."""
    settings = policy.rollout.notice
    if hold is None or hold.reason is not Reason.WINDOW_SHUT or settings is None:
        return hold
    try:
        return (_too_short(node, windows, policy, settings.before) if pods_told(node, policy) else None) or hold
    except Exception as error:  # it is this node's trouble alone
        return undecided_for(node, error)


def _new(node: NodeFacts, before: float, now: float) -> Notice:
    return new_notice(node.node, node.target, node.next_target.version or node.target_version, before, now)


def _too_short(node: Candidate, fleet: Fleet, policy: UpgradePolicy, before: float) -> Hold | None:
    """Hold a node whose window would shut before its notice is over: it would be given for nothing."""
    rollout, place = policy.rollout, fleet.waves.places.get(node.node.name, -1)
    state, wave = fleet.windows_of(node.node.name)
    windows = windows_of(rollout.waves[place].windows, rollout.windows) if place in fleet.wave_windows else rollout.windows
    if not windows or not keeps_to_windows(node, fleet):
        return None
    # A pass comes a moment after the opening: in a window that is as long as the notice nobody would ever start.
    long = with_room(state, windows, fleet.takes + before + SLACK, fleet.now)
    if long.opened:
        return None
    takes = max(0.0, long.takes - SLACK)
    return Hold(WindowShut(long.changes, long.zone, long.shuts, takes, wave, before), node.record.since, long.changes)


def give_notice(path: NodeProgress, fleet: Fleet, policy: UpgradePolicy) -> NodeProgress:
    """Write down that a node is given notice, unless it was before, and tell those whom it concerns."""
    node, settings = path.node, policy.rollout.notice
    if settings is None or current_notice(node, fleet, policy) is not None:
        return path
    notice = _new(node, settings.before, fleet.now)
    begins, why = moment_in(notice.begins, UTC_NAME), _why(notice)
    when = "once all have acknowledged this"
    when = when if settings.acknowledge is Acknowledge.REQUIRED else f"from {begins} on, or {when}"
    told = EventText(f"Notice {notice.id}: pods are evicted {when}, for {why}")
    pods = tuple((pod.ref, EventText(_told(pod.ref, node.node.name, notice, settings.acknowledge))) for pod in
                 pods_told(node, policy)[:MOST_TOLD])
    return msgspec.structs.replace(
        path, annotations={**path.annotations, names.NOTICE: encode_notice(notice)}, events=(*path.events, told),
        pod_events=(*path.pod_events, *pods))


def _told(pod: Ref, node: str, notice: Notice, acknowledge: Acknowledge) -> str:
    command = f"kubectl annotate pod -n {pod.namespace} {pod.name} {names.ACKNOWLEDGED}={notice.id} --overwrite"
    what = f"{_why(notice)} of node {node}"
    if acknowledge is Acknowledge.REQUIRED:
        return f"It is to be evicted for {what}, once it may go: {command}"
    return f"It is evicted from {moment_in(notice.begins, UTC_NAME)} on, for {what}. If it may go before that: {command}"


def _why(notice: Notice) -> str:
    if notice.target == NO_DRIVER:
        return "the removal of the driver"
    return f"an upgrade to driver {notice.to}" if notice.to else "another driver"
