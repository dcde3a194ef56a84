"""Notice before pods are evicted, on paper: who is told, until when a node waits, and what takes a notice back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.controllers.planning import Planner
from gpuward.model.actions import EvictPod, PatchNode
from gpuward.model.domains import DomainMode, DomainSettings
from gpuward.model.explain import sentence
from gpuward.model.notice import ALWAYS, Acknowledge, Notice, NoticeGiven, NoticeSettings, encode_notice, new_notice, notice_of
from gpuward.model.plan import Plan
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reading import format_time
from gpuward.model.reasons import Reason
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView, PodView
from gpuward.model.waves import Word
from gpuward.model.windows import Window
from gpuward.upgrade.ledger import stamp
from gpuward.upgrade.notice_gate import SLACK
from tests import build
from tests.build import NOW

BEFORE = 900.0
GIVEN = Notice("3f0c2a9b", "560", NOW - 60, NOW - 60 + BEFORE)


def policy(
    acknowledge: Acknowledge = Acknowledge.OPTIONAL, *, rollout: RolloutSettings | None = None, **rest: Any
) -> UpgradePolicy:
    settings = NoticeSettings(BEFORE, acknowledge)
    return build.policy(rollout=msgspec.structs.replace(rollout or RolloutSettings(), notice=settings), **rest)


def told(node: NodeView, notice: Notice | str | None) -> NodeView:
    text = notice if isinstance(notice, str) else encode_notice(notice) if notice is not None else None
    return node if text is None else msgspec.structs.replace(node, annotations={**node.annotations, names.NOTICE: text})


def cluster(*pods: PodView, notice: Notice | str | None = None, nodes: int = 1, target: str = "560") -> Snapshot:
    """Return a cluster whose first node has a notice; all of its nodes wait for their turn."""
    views = [build.node(f"n{at}", State.UPGRADE_REQUIRED, remembers=build.record(State.UPGRADE_REQUIRED)) for at in range(nodes)]
    drivers = [build.driver_pod(f"n{at}") for at in range(nodes)]
    return build.cluster([told(views[0], notice), *views[1:]], [*drivers, *pods], target=target)


def decided(snapshot: Snapshot, under: UpgradePolicy, now: float = NOW) -> Plan:
    return Planner().decide(snapshot, [under], now)


def reason(plan: Plan, node: str = "n0") -> Reason | None:
    hold = plan.nodes[node].hold
    return hold.reason if hold is not None else None


def starts(plan: Plan, node: str = "n0") -> bool:
    return plan.nodes[node].state in IN_PROGRESS


def written(plan: Plan, node: str = "n0") -> list[str | None]:
    """Return what is written of the notice of a node; None for one that is taken away."""
    return [action.annotations[names.NOTICE] for action in plan.actions
            if isinstance(action, PatchNode) and action.node.name == node and names.NOTICE in action.annotations]


def acknowledged(name: str = "train", said: str = GIVEN.id, **rest: Any) -> PodView:
    return build.gpu_pod(name=name, acknowledged=said, **rest)


def test_a_node_that_would_start_is_given_notice_instead_and_its_pods_are_told() -> None:
    plan = decided(cluster(build.gpu_pod(), build.gpu_pod(name="late")), policy())
    (text,) = written(plan)
    notice = notice_of({names.NOTICE: text or ""})
    assert notice is not None
    assert (notice.target, notice.given, notice.begins) == ("560", NOW, NOW + BEFORE)
    patch = next(action for action in plan.actions if isinstance(action, PatchNode))
    assert [pod.name for pod, _ in patch.pod_events] == ["late", "train"]
    assert all(f"{names.ACKNOWLEDGED}={notice.id}" in event.message for _, event in patch.pod_events)
    assert (reason(plan), plan.nodes["n0"].turn, plan.wake_at) == (Reason.NOTICE_GIVEN, 1, NOW + BEFORE)
    assert not any(isinstance(action, EvictPod) for action in plan.actions)


@pytest.mark.parametrize("pods", [
    (),
    (build.pod(),),
    (build.gpu_pod(deleting=True),),
    (build.gpu_pod(phase="Succeeded", ready=False),),
    (acknowledged(said=ALWAYS),),
], ids=["none", "no GPU", "goes", "finished", "always"])
def test_a_node_without_pods_to_tell_starts_at_once(pods: tuple[PodView, ...]) -> None:
    plan = decided(cluster(*pods), policy())
    assert (starts(plan), [text for text in written(plan) if text]) == (True, [])


@pytest.mark.parametrize(("pods", "after", "acknowledge", "goes"), [
    ((build.gpu_pod(),), 0.0, Acknowledge.OPTIONAL, Reason.NOTICE_GIVEN),
    ((build.gpu_pod(),), BEFORE - 60.001, Acknowledge.OPTIONAL, Reason.NOTICE_GIVEN),
    ((build.gpu_pod(),), BEFORE - 60, Acknowledge.OPTIONAL, None),
    ((build.gpu_pod(),), BEFORE - 60, Acknowledge.REQUIRED, Reason.NOTICE_UNANSWERED),
    ((build.gpu_pod(),), 90 * BEFORE, Acknowledge.REQUIRED, Reason.NOTICE_UNANSWERED),
    ((acknowledged(),), 90 * BEFORE, Acknowledge.REQUIRED, None),
    ((acknowledged(),), 0.0, Acknowledge.OPTIONAL, None),
    ((acknowledged(),), 0.0, Acknowledge.REQUIRED, None),
    ((acknowledged(said="another"),), 0.0, Acknowledge.OPTIONAL, Reason.NOTICE_GIVEN),
    ((acknowledged(), build.gpu_pod(name="late")), 0.0, Acknowledge.OPTIONAL, Reason.NOTICE_GIVEN),
    ((acknowledged(), acknowledged("late", ALWAYS)), 0.0, Acknowledge.OPTIONAL, None),
])
def test_until_when_a_node_waits(pods: tuple[PodView, ...], after: float, acknowledge: Acknowledge, goes: Reason | None) -> None:
    plan = decided(cluster(*pods, notice=GIVEN), policy(acknowledge), NOW + after)
    assert (starts(plan), None if starts(plan) else reason(plan)) == (goes is None, goes)
    assert written(plan) == ([None] if goes is None else [])


replace = msgspec.structs.replace


@pytest.mark.parametrize("notice", [
    replace(GIVEN, target="550"),
    replace(GIVEN, given=NOW + 3600, begins=NOW + 4500),
    replace(GIVEN, given=NOW - 90_000, begins=NOW - 80_000),
    replace(GIVEN, begins=NOW + 10_000_000),
    replace(GIVEN, begins=NOW - 3600),
    "garbage", "{}", "[" * 500, encode_notice(GIVEN).replace("2023", "9999"), encode_notice(GIVEN) + " " * 2000,
], ids=lambda notice: "")
def test_a_notice_that_does_not_count_is_given_anew(notice: Notice | str) -> None:
    (text,) = written(decided(cluster(acknowledged(), notice=notice), policy()))
    found = notice_of({names.NOTICE: text or ""})
    assert found is not None
    assert (found.given, found.begins, found.id != GIVEN.id) == (NOW, NOW + BEFORE, True)


def test_a_time_that_is_written_never_ends_early() -> None:
    for odd in (0.0, 0.0001, 0.0004, 0.1239, 0.9999):
        notice = new_notice(build.node(), "560", "", BEFORE, NOW + odd)
        read = notice_of({names.NOTICE: encode_notice(notice)})
        assert read is not None
        assert read.begins >= NOW + odd + BEFORE
    assert format_time(NOW) in encode_notice(new_notice(build.node(), "560", "", BEFORE, NOW))


SHUT = RolloutSettings(windows=(Window(start=NOW + 100, end=NOW + 5000),))


@pytest.mark.parametrize("under", [
    policy(auto_upgrade=False),
    policy(admit=False),
    policy(rollout=SHUT),
    policy(rollout=RolloutSettings(aborted=Word(NOW, "alice", ("560",)))),
    build.policy(),
    policy(auto_upgrade=False, absent="there is no ClusterPolicy"),
], ids=["paused", "invalid", "window", "aborted", "not wanted", "no policy"])
def test_what_else_comes_to_hold_a_node_takes_its_notice_back(under: UpgradePolicy) -> None:
    plan = decided(cluster(build.gpu_pod(), notice=GIVEN), under)
    assert written(plan) == [None]
    assert not any(isinstance(action, EvictPod) for action in plan.actions) or under.rollout.notice is None


def test_a_node_that_left_or_is_done_or_skipped_has_its_notice_taken_back() -> None:
    done = build.cluster([told(build.node(state=State.DONE), GIVEN)], [build.driver_pod(driver="560"), build.validator()])
    assert written(decided(done, policy())) == [None]
    gone = build.cluster([told(build.node(), GIVEN)], [], selects={"pool": "gpu"})
    assert written(decided(gone, policy())) == [None]
    waiting = cluster(build.gpu_pod(), notice=GIVEN)
    (node,) = waiting.nodes.values()
    skipped = replace(waiting, nodes={"n0": replace(node, labels={**node.labels, names.UPGRADE_SKIP: "true"})})
    assert written(decided(skipped, policy())) == [None]
    doubtful = replace(skipped, unsettled=frozenset({"n0"}))
    assert written(decided(doubtful, policy())) == [], "nothing is decided about it"


def test_a_limit_that_fills_leaves_a_notice_for_an_hour_after_its_end() -> None:
    away = build.node("n1", ready=False)
    busy = cluster(build.gpu_pod(), notice=GIVEN)
    full = build.cluster([*busy.nodes.values(), away], [*busy.pods["n0"], build.driver_pod("n1", "560")])
    for after, taken in ((0.0, []), (BEFORE + 3000, []), (BEFORE + 3600, [None])):
        plan = decided(full, policy(unavailable=1), NOW + after)
        assert (reason(plan), written(plan)) == (Reason.NO_NODE_MAY_START, taken)


def test_places_are_kept_and_counted_and_told() -> None:
    busy = cluster(build.gpu_pod("n0"), build.gpu_pod("n1"), nodes=3)
    first = decided(busy, policy(parallel=1, unavailable=1))
    assert (starts(first, "n2"), reason(first, "n0")) == (True, Reason.UNAVAILABLE_LIMIT), "idle nodes go first"
    noticed = cluster(build.gpu_pod("n0"), build.gpu_pod("n1"), notice=GIVEN, nodes=3)
    plan = decided(noticed, policy(parallel=1, unavailable=1))
    assert (reason(plan, "n0"), reason(plan, "n1"), reason(plan, "n2")) == (
        Reason.NOTICE_GIVEN, Reason.UNAVAILABLE_LIMIT, Reason.UNAVAILABLE_LIMIT)
    assert (plan.counts.unavailable, plan.counts.available, plan.counts.pending) == (0, 0, 3)
    unanswered = decided(noticed, policy(Acknowledge.REQUIRED, parallel=1, unavailable=1), NOW + BEFORE)
    assert starts(unanswered, "n2"), "it has given its place to others"


def test_what_only_a_drain_takes_is_told_where_gpu_pods_may_not_be_evicted() -> None:
    drains = policy(Acknowledge.REQUIRED, drain=DrainSettings(enable=True, force=True))
    told_of = {}
    for blocked in (False, True):
        pods = [build.gpu_pod(), build.pod(name="web"), *([build.gpu_pod(name="bare", owner=None)] if blocked else [])]
        plan = decided(cluster(*pods), drains)
        (patch,) = [action for action in plan.actions if isinstance(action, PatchNode)]
        told_of[blocked] = sorted(pod.name for pod, _ in patch.pod_events)
    assert told_of == {False: ["train"], True: ["bare", "train", "web"]}
    assert starts(decided(cluster(acknowledged(), build.pod(name="web"), notice=GIVEN), drains)), "web goes on, and is not asked"
    assert starts(decided(cluster(build.pod(name="web")), drains))


def test_where_a_ledger_is_kept_a_node_is_entered_when_its_notice_is_over() -> None:
    given = cluster(build.gpu_pod(), notice=GIVEN)
    kept = replace(given, grants={})
    plan = decided(kept, policy())
    assert (reason(plan), [type(action) for action in plan.actions]) == (Reason.NOTICE_GIVEN, [])
    over = decided(kept, policy(), NOW + BEFORE)
    assert [type(action).__name__ for action in over.actions] == ["GrantNodes"]
    granted = replace(given, grants={"n0": stamp(given.nodes["n0"])})
    assert starts(decided(granted, policy(), NOW + BEFORE))
    early = decided(granted, policy())
    assert not starts(early)
    assert [action.annotations.keys() for action in early.actions if isinstance(action, PatchNode)] == [{names.UPGRADE_RECORD}]


def test_what_a_node_waits_for_names_one_pod_and_counts_the_others() -> None:
    hold = decided(cluster(build.gpu_pod(), acknowledged("b"), notice=GIVEN), policy()).nodes["n0"].hold
    assert hold is not None
    assert hold.what == NoticeGiven(GIVEN.id, GIVEN.begins, build.gpu_pod().ref, 1, 2)
    assert (hold.since, hold.until) == (GIVEN.given, GIVEN.begins)


def test_a_notice_stands_while_it_is_not_known_for_a_moment_which_driver_comes() -> None:
    plan = decided(cluster(build.gpu_pod(), notice=GIVEN, target=""), policy())
    assert (reason(plan), written(plan)) == (Reason.TEMPLATE_SETTLING, [])


def test_a_notice_stands_while_the_very_driver_that_it_is_of_was_made_a_moment_ago() -> None:
    """As where its DaemonSet was deleted without its pods, and made anew."""
    found = cluster(build.gpu_pod(), notice=GIVEN)
    made = tuple(msgspec.structs.replace(each, created=float(int(NOW))) for each in found.revisions)
    plan = decided(msgspec.structs.replace(found, revisions=made), policy())
    assert (reason(plan), written(plan)) == (Reason.TEMPLATE_SETTLING, [])


@pytest.mark.parametrize(("acknowledge", "other"), [
    (Acknowledge.REQUIRED, Reason.NOTICE_GIVEN), (Acknowledge.OPTIONAL, Reason.DOMAIN_LIMIT)])
def test_who_does_not_answer_keeps_no_other_domain_waiting(acknowledge: Acknowledge, other: Reason) -> None:
    def node(name: str, rack: str, state: State = State.UPGRADE_REQUIRED) -> NodeView:
        found = build.node(name, state, remembers=build.record(state))
        return msgspec.structs.replace(found, labels={**found.labels, "rack": rack})

    pods = [build.driver_pod("n0", "560"), build.validator("n0"), build.driver_pod("n1"), build.driver_pod("n2"),
            build.gpu_pod("n1"), build.gpu_pod("n2", "x")]
    nodes = [node("n0", "a", State.DONE), told(node("n1", "a"), GIVEN), node("n2", "b")]
    rules = RolloutSettings(domains=DomainSettings("rack", DomainMode.WHOLE, 1))
    plan = decided(build.cluster(nodes, pods), policy(acknowledge, parallel=5, rollout=rules), NOW + 2 * BEFORE)
    assert plan.nodes["n2"].hold is not None
    assert plan.nodes["n2"].hold.reason is other


def test_a_window_that_is_as_long_as_a_notice_is_too_short_for_one() -> None:
    opens = datetime(2023, 11, 15, 1, tzinfo=UTC).timestamp()
    for duration, told_then in ((BEFORE, Reason.WINDOW_SHUT), (BEFORE + 2 * SLACK, Reason.NOTICE_GIVEN)):
        rules = policy(rollout=RolloutSettings(windows=(Window(schedule="0 1 * * *", duration=duration),)))
        plan = decided(cluster(build.gpu_pod()), rules, opens + 0.02)
        assert reason(plan) is told_then
        assert told_then is not Reason.WINDOW_SHUT or "none that comes is long enough" in sentence(build.hold_of(plan))
