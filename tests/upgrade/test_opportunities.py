"""Waiting until nobody uses a node, on paper: nobody is evicted before the time is up, whatever happens in whatever order."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuward import names
from gpuward.model.actions import Action, EvictPod, PatchNode
from gpuward.model.opportunities import IdleAwaited, OpportunisticSettings
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import Record, decode_record, encode_record
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.states import AT_REST, IN_PROGRESS, State
from gpuward.upgrade.decide import decide
from gpuward.upgrade.ledger import stamp
from tests import build
from tests.upgrade import world
from tests.upgrade.test_properties import NAMES, Watched, check_end, examples, happen, steps

SETTINGS = OpportunisticSettings(idle_for=20.0, until=120.0)
ASKED = build.NOW - 60


def waiting(*, idle: float = 0.0, busy: bool = False, since: float = 0.0) -> Hold | None:
    """Return what a node waits for that has waited for a minute, and has been idle since a moment."""
    record = build.record(State.UPGRADE_REQUIRED, waiting=ASKED, idle=idle, since=ASKED)
    pods = [build.driver_pod(), *([build.gpu_pod()] if busy else [])]
    snapshot = build.cluster([build.node(state=State.UPGRADE_REQUIRED, remembers=record)], pods)
    policy = build.policy(rollout=RolloutSettings(opportunistic=SETTINGS))
    plan = decide(msgspec.structs.replace(snapshot, watched_since=since), policy, build.NOW)
    status = plan.nodes["n0"]
    return status.hold if status.state not in IN_PROGRESS else None


def test_a_node_starts_when_it_was_idle_for_long_enough_while_somebody_looked() -> None:
    assert waiting(idle=build.NOW - 20) is None
    assert waiting(idle=build.NOW - 19) == Hold(IdleAwaited(20.0, ASKED + 120), ASKED, build.NOW + 1)
    assert waiting(idle=build.NOW - 50, since=build.NOW - 5) == Hold(IdleAwaited(20.0, ASKED + 120), ASKED, build.NOW + 15)
    assert waiting() == Hold(IdleAwaited(20.0, ASKED + 120), ASKED, build.NOW + 20)
    used = waiting(idle=build.NOW - 50, busy=True)
    assert used == Hold(IdleAwaited(20.0, ASKED + 120, build.gpu_pod().ref, 1), ASKED, ASKED + 120)


def test_a_start_within_the_millisecond_that_is_remembered_writes_nothing() -> None:
    """What is written is cut off at milliseconds: the same patch would come in each pass."""
    idle = build.NOW - 10
    record = build.record(State.UPGRADE_REQUIRED, waiting=ASKED, idle=idle, since=ASKED)
    snapshot = build.cluster([build.node(state=State.UPGRADE_REQUIRED, remembers=record)], [build.driver_pod()])
    policy = build.policy(rollout=RolloutSettings(opportunistic=SETTINGS))
    before = decide(snapshot, policy, build.NOW).actions
    assert decide(msgspec.structs.replace(snapshot, watched_since=idle + 0.0004), policy, build.NOW).actions == before


@pytest.mark.parametrize("state", [State.UPGRADE_REQUIRED, State.FAILED])
def test_time_begins_anew_where_the_setting_was_away_meanwhile(state: State) -> None:
    failed = State.DRAIN_REQUIRED if state is State.FAILED else None
    record = build.record(state, target="560", waiting=ASKED, since=ASKED, failed=failed)
    pods = [build.driver_pod(), build.gpu_pod()]
    snapshot = build.cluster([build.node(state=state, labels={names.UPGRADE_SKIP: "true"}, remembers=record)], pods)
    plan = decide(snapshot, build.policy(), build.NOW)
    forgotten = world.apply(snapshot, plan.actions, build.NOW).nodes["n0"].record
    assert forgotten is not None
    assert forgotten.waiting == 0.0
    assert decide(world.apply(snapshot, plan.actions, build.NOW), build.policy(), build.NOW).actions == ()
    kept = decide(snapshot, build.policy(rollout=RolloutSettings(opportunistic=SETTINGS)), build.NOW)
    assert not [action for action in kept.actions if isinstance(action, PatchNode)]


@pytest.mark.parametrize("why", ["unsettled", "refused"])
def test_nothing_is_written_for_that_on_a_node_that_is_in_doubt_or_may_not_be_written_to_yet(why: str) -> None:
    record = build.record(State.UPGRADE_REQUIRED, target="560", waiting=ASKED, since=ASKED)
    node = build.node(state=State.UPGRADE_REQUIRED, remembers=record)
    snapshot = build.cluster([node], [build.driver_pod(), build.gpu_pod()])
    if why == "unsettled":
        snapshot = msgspec.structs.replace(snapshot, unsettled=frozenset({"n0"}))
    else:
        snapshot = msgspec.structs.replace(snapshot, refused_writes={node.uid: Refusal(build.NOW - 0.1, 5, "denied")})
    assert decide(snapshot, build.policy(), build.NOW).actions == ()


def test_the_record_keeps_both_times() -> None:
    kept = decode_record(encode_record(Record(since=5.0, waiting=7.0, idle=9.0)))
    assert (kept.waiting, kept.idle) == (7.0, 9.0)
    earlier = decode_record('{"state":"upgrade-required","since":"2026-01-01T00:00:00Z","asked":"2026-01-01T00:00:07Z"}')
    assert earlier.waiting == earlier.since + 7.0, "as it was called first"


class Patient(Watched):
    """A cluster that knows since when each node waits, and who was asked for by hand."""

    def __init__(self, snapshot: Snapshot, policy: UpgradePolicy) -> None:
        super().__init__(snapshot, policy)
        self.asked: dict[str, float] = {}
        self.exempt: set[str] = set()
        self.evictions = 0

    def look(self) -> None:
        for name, node in self.snapshot.nodes.items():
            if node.state in AT_REST:
                self.asked.pop(name, None)
                self.exempt.discard(name)
            elif node.state is State.UPGRADE_REQUIRED:
                self.asked.setdefault(name, self.now)

    def check_action(self, action: Action) -> None:
        if isinstance(action, EvictPod):
            self.evictions += 1
            touched = not any(pod.revision == "550" and not pod.deleting for pod in self.snapshot.pods[action.node])
            early = action.node in self.asked and self.now < self.asked[action.node] + SETTINGS.until
            assert not early or touched or action.node in self.exempt, f"{action.pod} was evicted too early"
        super().check_action(action)


machinery = st.tuples(st.sampled_from(["pass", "pass", "pass", "pass", "gone", "made", "pods-ready"]), st.sampled_from(NAMES),
                      st.just(""))
late = st.tuples(st.just("late pod"), st.sampled_from(NAMES), st.just(""))


@examples(200)
@given(used=st.lists(st.booleans(), min_size=5, max_size=5), parallel=st.sampled_from([0, 2]),
       script=st.lists(st.one_of(machinery, machinery, machinery, steps, late), min_size=20, max_size=50),
       seed=st.integers(0, 2**32))
def test_nobody_is_evicted_before_the_time_is_up_whatever_the_order(
    used: list[bool], parallel: int, script: list[tuple[str, str, str]], seed: int
) -> None:
    fleet = build.fleet(5)
    for name, busy in zip(NAMES, used, strict=True):
        if busy:
            fleet = world.with_pods(fleet, name, [*fleet.pods[name], build.gpu_pod(name)])
    policy = build.policy(parallel=parallel, unavailable=None, rollout=RolloutSettings(opportunistic=SETTINGS))
    cluster, dice = Patient(fleet, policy), random.Random(seed)
    for step in script:
        if step[0] == "request":
            cluster.exempt.add(step[1])
        if step[0] == "retarget":
            continue
        happen(cluster, step, dice)
        cluster.look()
    end = world.rollout(cluster.snapshot, cluster.policy, now=cluster.now + SETTINGS.until)
    check_end(end, cluster.foreign)


def test_a_node_that_was_granted_its_start_does_not_start_when_a_pod_has_come_since() -> None:
    record = build.record(State.UPGRADE_REQUIRED, waiting=ASKED, idle=ASKED, since=ASKED)
    node = build.node(state=State.UPGRADE_REQUIRED, remembers=record)
    for idle in (True, False):
        pods = [build.driver_pod(), *([] if idle else [build.gpu_pod()])]
        snapshot = build.cluster([node], pods)
        snapshot = msgspec.structs.replace(snapshot, grants={"n0": stamp(snapshot.nodes["n0"])})
        plan = decide(snapshot, build.policy(rollout=RolloutSettings(opportunistic=SETTINGS)), build.NOW)
        (written,) = [action for action in plan.actions if isinstance(action, PatchNode)]
        assert bool(written.entered) is idle, "its record is written anew, so that no patch on its way starts it"
