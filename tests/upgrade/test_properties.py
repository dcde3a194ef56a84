"""What must hold for every fleet, every policy and every order in which things happen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuward import names
from gpuward.model.actions import Action, DeletePod, EvictPod, PatchNode
from gpuward.model.budgets import BudgetView
from gpuward.model.explain import sentence
from gpuward.model.plan import Plan
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner, Record
from gpuward.model.rollout import DeviceHolders, FailureBudget, RolloutSettings
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.states import IN_PROGRESS, State, check_transition
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.decide import decide
from gpuward.upgrade.evictable_pods import pods_to_evict
from gpuward.upgrade.node_decision import DecisionCache
from tests import build
from tests.sampling import WHOLE
from tests.upgrade import world

NAMES = ("n0", "n1", "n2", "n3", "n4")
DRIVERS = ("550", "560", "570", "550" + world.RELABELLED, "560" + world.RELABELLED)
POOL = {"pool": "gpu"}
"""The label by which the driver DaemonSet selects its nodes."""


def examples(count: int) -> settings:
    """Try the same examples on every run: a failure that is found has to be found again. A sample has a third of them."""
    number = count if WHOLE else count // 3
    return settings(max_examples=number, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rarely(value: bool) -> st.SearchStrategy[bool]:
    """Draw a value once in eight, so that several rare things seldom hide what they would show alone."""
    return st.sampled_from([not value] * 7 + [value])


rollouts = st.builds(
    RolloutSettings,
    failure_budget=st.builds(FailureBudget, st.sampled_from([0, 1, 3]), st.sampled_from([0, 10, 100])),
    deadlines=st.dictionaries(
        st.sampled_from([State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED,
                         State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED]),
        st.sampled_from([0.0, 1.0, 5.0, 45.0]),
    ),
    retries=st.integers(0, 3),
    retry_backoff=st.sampled_from([1.0, 60.0]),
    device_holders=st.sampled_from(DeviceHolders),
    kill_at_deadline=st.booleans(),
)

policies = st.builds(
    build.policy,
    parallel=st.sampled_from([0, 1, 2, 3]),
    unavailable=st.sampled_from([None, 1, 2, "25%", "50%", "100%", 0]),
    wait_for=st.sampled_from(["", "app=job"]),
    wait_timeout=st.sampled_from([0, 30]),
    force=st.booleans(),
    empty_dir=st.booleans(),
    timeout=st.sampled_from([0, 20]),
    drain=st.builds(
        DrainSettings, enable=st.booleans(), force=st.booleans(), timeout_seconds=st.sampled_from([0, 20]),
        delete_empty_dir=st.booleans(),
    ),
    auto_upgrade=st.sampled_from([True, True, True, False]),
    admit=st.sampled_from([True, True, True, False]),
    rollout=rollouts,
)

workloads = st.builds(
    build.pod,
    st.just("n0"),
    st.sampled_from(["a", "b", "c"]),
    owner=st.sampled_from(["ReplicaSet"] * 6 + ["Job", "DaemonSet", None]),
    uses_gpu=rarely(False),
    holds=st.sampled_from(["", "", "", "hostPath /dev/nvidia0"]),
    ready=rarely(False),
    grace=st.sampled_from([0.0, 30.0, 600.0]),
    empty_dir=rarely(True),
    mirror=rarely(True),
    phase=st.sampled_from(["Running"] * 6 + ["Pending", "Succeeded"]),
    deleting=rarely(True),
    labels=st.sampled_from([{}, {"app": "job"}, {names.DRAIN_SKIP: "true"}]),
)

budgets = st.builds(
    BudgetView,
    st.just("default"),
    st.sampled_from(["x", "y"]),
    selector=st.sampled_from([(), (("app", "in", frozenset({"job"})),)]),
    allowed=st.sampled_from([0, 1, 2]),
    healthy=st.sampled_from([0, 3]),
    desired=st.sampled_from([1, 3]),
    expected=st.sampled_from([0, 1, 3, 5]),
)


@st.composite
def nodes_with_pods(draw: st.DrawFn, name: str) -> tuple[NodeView, list[PodView]]:
    node = build.node(name, cordoned=draw(rarely(True)), ready=draw(rarely(False)), labels=POOL)
    digest = "d1" if draw(rarely(True)) else ""
    driver = draw(st.sampled_from(["550", "550", "550", "560", "570"]))
    pods = [build.driver_pod(name, driver, ready=draw(rarely(False)), config_digest=digest)]
    if draw(rarely(False)):
        pods.append(build.validator(name))
    loads = draw(st.lists(workloads, max_size=3, unique_by=lambda pod: pod.name))
    return node, pods + [msgspec.structs.replace(pod, node=name) for pod in loads]


@st.composite
def fleets(draw: st.DrawFn) -> Snapshot:
    members = [draw(nodes_with_pods(name)) for name in NAMES[: draw(st.integers(1, len(NAMES)))]]
    pods = [pod for _, mine in members for pod in mine]
    snapshot = build.cluster([node for node, _ in members], pods, digest=draw(st.sampled_from(["", "d1"])), selects=POOL)
    over = draw(st.one_of(st.just([]), st.lists(budgets, max_size=2, unique_by=lambda budget: budget.name)))
    return msgspec.structs.replace(snapshot, budgets=tuple(over))


class Watched:
    """A cluster in which every action is checked against what must never happen."""

    def __init__(self, snapshot: Snapshot, policy: UpgradePolicy) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.now = build.NOW
        self.foreign = {name for name, node in snapshot.nodes.items() if node.unschedulable}
        self.by_hand: set[str] = set()
        """Nodes whose state somebody chose: they are under way whatever the limits say."""
        self.memory = DecisionCache()

    def decide(self) -> Plan:
        plan = decide(self.snapshot, self.policy, self.now, self.memory)
        assert plan == decide(self.snapshot, self.policy, self.now), "a memory changes nothing"
        assert plan.wake_at is None or plan.wake_at > self.now
        for hold in plan.holds.values():
            assert sentence(hold)
        for action in plan.actions:
            self.check_action(action)
        return plan

    def check_action(self, action: Action) -> None:
        if isinstance(action, PatchNode):
            self.check_path(action)
            if action.unschedulable is False:
                assert action.node.name not in self.foreign, f"{action.node} was cordoned by somebody else"
        if isinstance(action, DeletePod):
            self.check_deletion(action)

    def check_path(self, patch: PatchNode) -> None:
        before = self.snapshot.nodes[patch.node.name].state
        assert before is not None
        for after in patch.entered:
            check_transition(before, after)
            before = after

    def check_deletion(self, action: DeletePod) -> None:
        pods = self.snapshot.pods[action.node]
        pod = next(pod for pod in pods if pod.ref == action.pod)
        users = [user for user in pods if self.must_leave(user)]
        if pod.labels.get("app") == names.DRIVER_APP and users:
            digest = self.snapshot.daemonsets[0].config_digest
            assert digest
            assert pod.config_digest == digest, f"{users[0].ref} still uses the driver of {action.node}"

    def must_leave(self, pod: PodView) -> bool:
        """Tell whether the driver may not be taken away under a pod."""
        holders = self.policy.rollout.device_holders
        return not pod.finished and (pod.uses_gpu or (bool(pod.holds) and holders is not DeviceHolders.IGNORE))

    def managed(self) -> set[str]:
        """Return the nodes that count: those with a driver pod, or that should get one."""
        return {
            name for name in self.snapshot.nodes
            if world.selected(self.snapshot, name)
            or any(pod.labels.get("app") == names.DRIVER_APP for pod in self.snapshot.pods.get(name, ()))
        }

    def perform(self, actions: Iterable[Action]) -> None:
        """Perform actions of which some may be refused; a refusal drops the rest of its node's actions."""
        dropped: set[str] = set()
        for action in actions:
            if action.lane in dropped:
                continue
            before = self.snapshot
            try:
                self.snapshot = world.perform(before, action, self.now)
            except world.Refused:
                dropped.add(action.lane)
                continue
            if isinstance(action, PatchNode):
                self.check_limits(before, action)

    def check_limits(self, before: Snapshot, patch: PatchNode) -> None:
        name = patch.node.name
        started = self.snapshot.nodes[name].state in IN_PROGRESS and before.nodes[name].state not in IN_PROGRESS
        if not started:
            return
        managed = {name: node for name, node in self.snapshot.nodes.items() if name in self.managed()}
        under_way = {name for name, node in managed.items() if node.state in IN_PROGRESS} - self.by_hand
        limit = self.policy.max_parallel_upgrades
        assert not limit or len(under_way) <= limit, f"{sorted(under_way)} are more than {limit}"
        if patch.unschedulable and before.nodes[name].ready and _serves(before, self.policy, name):
            serving = {name for name, node in managed.items() if node.ready and _serves(before, self.policy, name)}
            out = {name for name, node in managed.items() if node.unschedulable or name not in serving}
            allowed = self.policy.max_unavailable.of(len(managed))
            assert len(out) <= allowed, f"{sorted(out)} are more than {allowed}"
        self.by_hand.discard(name)

    # What the world and people do.

    def set_cordon(self, name: str) -> None:
        """Cordon a node; where ours was lifted and no pass has seen it since, nobody could tell that it is not ours."""
        node = self.snapshot.nodes[name]
        if node.unschedulable:
            return
        self.snapshot = world.cordon(self.snapshot, name)
        if node.record is None or node.record.cordon is not CordonOwner.GPUWARD:
            self.foreign.add(name)

    def lift_cordon(self, name: str) -> None:
        self.snapshot = world.cordon(self.snapshot, name, False)
        self.foreign.discard(name)

    def relabel(self, name: str, state: str) -> None:
        self.snapshot = world.relabel(self.snapshot, name, state or None)
        self.by_hand.add(name)


people = st.sampled_from(
    ["cordon", "uncordon", "ready", "unready", "retarget", "request", "pause", "resume", "leave", "return", "late pod"]
)
relabelling = st.sampled_from([str(state) for state in State])
machinery = st.sampled_from(["gone", "made", "pods-ready", "pass", "pass", "pass", "crash"])
steps = st.one_of(
    st.tuples(machinery, st.sampled_from(NAMES), st.just("")),
    st.tuples(people, st.sampled_from(NAMES), st.sampled_from(DRIVERS)),
)


def happen(cluster: Watched, step: tuple[str, str, str], dice: random.Random) -> None:
    """Let one thing happen; what concerns a node that the fleet does not have does not."""
    kind, name, value = step
    cluster.now += dice.choice([0.2, 1.0, 7.0, 40.0])
    if kind == "pass":
        run_pass(cluster, dice)
    elif name not in cluster.snapshot.nodes:
        return
    elif kind in ("gone", "made", "pods-ready"):
        move = {"gone": world.pods_gone, "made": world.pods_made, "pods-ready": world.pods_ready}[kind]
        cluster.snapshot = move(cluster.snapshot, name, cluster.now)
    elif kind == "crash":
        cluster.snapshot = world.crashed(cluster.snapshot, name)
    else:
        intervene(cluster, kind, name, value)


def intervene(cluster: Watched, kind: str, name: str, value: str) -> None:
    if kind == "cordon":
        cluster.set_cordon(name)
    elif kind == "uncordon":
        cluster.lift_cordon(name)
    elif kind in ("ready", "unready"):
        cluster.snapshot = world.set_ready(cluster.snapshot, name, kind == "ready")
    elif kind == "retarget":
        cluster.snapshot = world.retarget(cluster.snapshot, value)
    elif kind == "request":
        cluster.snapshot = world.annotate(cluster.snapshot, name, names.UPGRADE_REQUESTED, "true")
    elif kind in ("leave", "return"):
        cluster.snapshot = world.label(cluster.snapshot, name, "pool", "gpu" if kind == "return" else None)
    elif kind == "late pod":
        pods = [*cluster.snapshot.pods.get(name, ()), build.gpu_pod(name, f"late-{cluster.now}", created=cluster.now)]
        cluster.snapshot = world.with_pods(cluster.snapshot, name, pods)
    elif kind == "relabel":
        cluster.relabel(name, value)
    else:
        cluster.policy = msgspec.structs.replace(cluster.policy, auto_upgrade=kind == "resume")


def run_pass(cluster: Watched, dice: random.Random) -> None:
    """Decide once, and perform any part of it: nodes side by side in any order, each cut off anywhere."""
    actions = list(cluster.decide().actions)
    lanes = list({action.lane: None for action in actions})
    dice.shuffle(lanes)
    for lane in lanes:
        mine = [action for action in actions if action.lane == lane]
        cluster.perform(mine[: dice.choice([0, 1, len(mine), len(mine)])])


def check_end(end: world.Rollout, foreign: set[str]) -> None:
    """See that every node is done and in service, or says why not, and that nothing is left to do."""
    assert all(isinstance(action, EvictPod) and action.pod.uid in end.end.refusals for action in end.plan.actions)
    for name, node in end.end.nodes.items():
        if name not in end.plan.nodes and not world.selected(end.end, name):
            check_released(node, name in foreign)
    for name, status in end.plan.nodes.items():
        node = end.end.nodes[name]
        if status.hold is None or status.hold.reason is Reason.METADATA_BEHIND:
            assert status.state in (State.DONE, State.UNKNOWN), f"{name} is {status.state} and waits for nothing"
            assert node.unschedulable == (name in foreign), f"{name} was left {'' if node.unschedulable else 'un'}cordoned"
            assert node.record is None or node.record.cordon is not CordonOwner.GPUWARD, f"{name} is thought to carry our cordon"


def _serves(snapshot: Snapshot, policy: UpgradePolicy, name: str) -> bool:
    """Tell whether a node has a driver that nothing is about to take away, or pods that run on its GPUs."""
    pods = snapshot.pods.get(name, ())
    drivers = [pod for pod in pods if pod.labels.get("app") == names.DRIVER_APP and not pod.deleting]
    leaving = pods_to_evict(pods, policy, snapshot.namespace)
    users = (*leaving.pods, *(blocked.pod for blocked in leaving.blocked))
    return any(pod.ready and (pod.orphan or world.selected(snapshot, name)) for pod in drivers) or any(pod.ready for pod in users)


def check_released(node: NodeView, foreign: bool) -> None:
    """See that nothing of an upgrade is left on a node that is no driver's any more."""
    assert names.UPGRADE_STATE not in node.labels
    assert not {names.INITIALLY_UNSCHEDULABLE, names.WAIT_FOR_JOBS_SINCE} & set(node.annotations)
    if (kept := node.record) is not None:  # all that may be kept is which driver is loaded, and that it was not validated
        assert (kept.state, kept.forced or bool(kept.loaded), kept.cordon) == (State.UNKNOWN, True, None)
    assert node.unschedulable == foreign


@examples(100)
@given(snapshot=fleets(), policy=policies)
def test_an_undisturbed_rollout_ends_with_every_node_done_or_saying_why_not(snapshot: Snapshot, policy: UpgradePolicy) -> None:
    end = world.rollout(snapshot, policy)
    check_end(end, {name for name, node in snapshot.nodes.items() if node.unschedulable})
    for name, status in end.plan.nodes.items():
        driver = next(pod for pod in end.end.pods[name] if pod.labels.get("app") == names.DRIVER_APP)
        if policy.auto_upgrade and status.hold is None:
            assert driver.revision == "560"


@examples(250)
@given(snapshot=fleets(), policy=policies, script=st.lists(steps, max_size=25), seed=st.integers(0, 2**32))
def test_nothing_forbidden_happens_whatever_the_order(
    snapshot: Snapshot, policy: UpgradePolicy, script: list[tuple[str, str, str]], seed: int
) -> None:
    cluster, dice = Watched(snapshot, policy), random.Random(seed)
    for step in script:
        happen(cluster, step, dice)
    end = world.rollout(cluster.snapshot, cluster.policy, now=cluster.now)
    check_end(end, cluster.foreign)


@examples(150)
@given(
    snapshot=fleets(),
    policy=policies,
    script=st.lists(st.one_of(steps, st.tuples(st.just("relabel"), st.sampled_from(NAMES), relabelling)), max_size=25),
    seed=st.integers(0, 2**32),
)
def test_relabelling_by_hand_breaks_no_promise(
    snapshot: Snapshot, policy: UpgradePolicy, script: list[tuple[str, str, str]], seed: int
) -> None:
    known = world.apply(snapshot, decide(snapshot, build.policy(parallel=1, unavailable=0), build.NOW).actions)
    cluster, dice = Watched(known, policy), random.Random(seed)
    for step in script:
        happen(cluster, step, dice)
    end = world.rollout(cluster.snapshot, cluster.policy, now=cluster.now)
    assert all(isinstance(action, EvictPod) and action.pod.uid in end.end.refusals for action in end.plan.actions)


@examples(100)
@given(snapshot=fleets(), policy=policies, seed=st.integers(0, 2**32))
def test_the_same_facts_give_the_same_plan_in_whatever_order_they_come(
    snapshot: Snapshot, policy: UpgradePolicy, seed: int
) -> None:
    shuffled = shuffler(random.Random(seed))
    other = msgspec.structs.replace(
        snapshot,
        nodes=dict(shuffled(snapshot.nodes.items())),
        pods={name: tuple(shuffled(pods)) for name, pods in shuffled(snapshot.pods.items())},
        daemonsets=tuple(shuffled(snapshot.daemonsets)),
        revisions=tuple(shuffled(snapshot.revisions)),
    )
    assert decide(other, policy, build.NOW) == decide(snapshot, policy, build.NOW)


def shuffler(dice: random.Random) -> Callable[[Iterable[Any]], list[Any]]:
    def shuffled(items: Iterable[Any]) -> list[Any]:
        items = list(items)
        return dice.sample(items, len(items))

    return shuffled


garbage = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["\u00b2", "\u0663", "-1", "1e9", "9" * 400, "nan", "true", "True", "null", "{}", "[]", "upgrade-done"]),
)
keys = st.sampled_from(
    [names.UPGRADE_STATE, names.UPGRADE_SKIP, names.UPGRADE_REQUESTED, names.SAFE_LOAD, names.INITIALLY_UNSCHEDULABLE,
     names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, names.UPGRADE_RECORD, names.UPGRADE_ENABLED]
)
records = st.builds(
    build.record,
    st.sampled_from(State),
    ours=st.booleans(),
    foreign=st.booleans(),
    failed=st.sampled_from([None, *State]),
    since=st.sampled_from([0.0, build.ADMITTED, build.NOW + 1e6]),
    started=st.sampled_from([0.0, build.ADMITTED, build.NOW + 1e6]),
    forced=st.booleans(),
    target=st.sampled_from(["", "550", "560"]),
    paused=st.sampled_from([0.0, build.NOW - 9]),
)


@examples(300)
@given(
    state=st.sampled_from(State), remembers=records, cordoned=st.booleans(), driver=st.sampled_from(["550", "560"]),
    policy=st.sampled_from([build.policy(), build.PAUSED]), has_gpu_pod=st.booleans(),
)
def test_a_cordon_of_ours_that_is_gone_is_remembered_no_more(
    state: State, remembers: Record, cordoned: bool, driver: str, policy: UpgradePolicy, has_gpu_pod: bool
) -> None:
    pods = [build.driver_pod(driver=driver), build.validator(), *([build.gpu_pod()] if has_gpu_pod else [])]
    snapshot = build.cluster([build.node(state=state, remembers=remembers, cordoned=cordoned)], pods)
    end = world.apply(snapshot, decide(snapshot, policy, build.NOW).actions).nodes["n0"]
    ours = end.record is not None and end.record.cordon is CordonOwner.GPUWARD
    assert end.unschedulable or not ours


@pytest.mark.weakness(28)
@examples(150)
@given(
    snapshot=fleets(),
    policy=policies,
    labels=st.dictionaries(keys, garbage),
    annotations=st.dictionaries(keys, garbage),
    state=st.sampled_from([*(str(state) for state in State), "upgrade-dne"]),
    memory=st.one_of(st.none(), records),
    counts=st.integers(0, 10**6),
)
def test_garbage_on_a_node_never_stops_the_decision(
    snapshot: Snapshot,
    policy: UpgradePolicy,
    labels: dict[str, str],
    annotations: dict[str, str],
    state: str,
    memory: object,
    counts: int,
) -> None:
    n0 = snapshot.nodes["n0"]
    strange = msgspec.structs.replace(
        n0, labels={**n0.labels, names.UPGRADE_STATE: state, **labels}, annotations=annotations, record=memory
    )
    refusals = {pod.uid: Refusal(build.NOW - 5, counts, "no") for pod in snapshot.pods["n0"]}
    plan = decide(
        msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, "n0": strange}, refusals=refusals), policy, build.NOW
    )
    without = decide(msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, "n0": n0}), policy, build.NOW)
    assert set(plan.nodes) >= set(without.nodes) - {"n0"}
    for hold in plan.holds.values():
        assert sentence(hold)


def cuts() -> list[tuple[str, Snapshot, UpgradePolicy]]:
    plain = build.policy(parallel=2)
    drained = build.policy(drain=DrainSettings(enable=True, force=True))
    busy = build.fleet(nodes=3, gpu_pods={0: 2, 1: 1}, cordoned=[2])
    bare = build.cluster([build.node()], [build.driver_pod(), build.validator(), build.gpu_pod(owner=None)])
    return [("busy fleet", busy, plain), ("drain", bare, drained), ("one node", build.fleet(nodes=1, gpu_pods={0: 1}), plain)]


@pytest.mark.weakness(12, 34)
@pytest.mark.parametrize(("snapshot", "policy"), [case[1:] for case in cuts()], ids=[case[0] for case in cuts()])
def test_a_plan_cut_after_any_action_and_made_again_ends_the_same(snapshot: Snapshot, policy: UpgradePolicy) -> None:
    whole = world.rollout(snapshot, policy)
    wanted = outcome(whole.end)
    cut_somewhere = 0
    for before, plan in whole.history:
        for length in range(len(plan.actions)):
            cut_somewhere += 1
            part = world.apply(before, plan.actions[:length])
            assert outcome(world.rollout(part, policy, now=build.NOW + 100).end) == wanted
    assert cut_somewhere > len(whole.history) / 2


def outcome(snapshot: Snapshot) -> dict[str, tuple[str, bool, CordonOwner | None, list[str]]]:
    """Return what must come out the same however often a plan was cut: states, cordons and drivers."""
    return {
        name: (
            node.upgrade_label,
            node.unschedulable,
            node.record.cordon if node.record else None,
            sorted(pod.revision for pod in snapshot.pods[name] if pod.labels.get("app") == names.DRIVER_APP),
        )
        for name, node in snapshot.nodes.items()
    }
