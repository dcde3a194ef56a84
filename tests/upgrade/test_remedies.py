"""What would help a held node: said only where it does, with commands that do what they say."""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given

from gpuward import names
from gpuward.crd.conversion import upgrade_policy
from gpuward.crd.driver_upgrade import DriverUpgradePolicy
from gpuward.model.approved_plan import ApprovedPlan
from gpuward.model.budgets import BudgetView
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Failure, Record
from gpuward.model.rollout import DeviceHolders, RolloutSettings
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.decide import decide
from gpuward.upgrade.remedies import Remedy, helps, ordinal, outlook, policy_fixes, remedies
from gpuward.upgrade.remedies.fixes import DecisionFacts, delete_pods, end_pods
from tests import build
from tests.build import NOW, PAUSED, cluster, driver_pod, fleet, gpu_pod, hold_of, node, policy, under_way
from tests.upgrade.test_properties import examples, fleets, policies
from tests.waits import held_by

replace = msgspec.structs.replace
ACTIVE = policy()
QUEUED = node(state=State.UPGRADE_REQUIRED)
AT_ONCE = "this node starts at once"
JOB = build.pod(owner="Job", labels={"app": "job"})
KILL = "let pods that are still there at the end of podDeletion.timeoutSeconds be deleted, whatever their budgets say"
NO_RIGHT = ('pods "train" is forbidden: User "system:serviceaccount:gpu-operator:gpuward" cannot create resource "pods/eviction" '
            'in API group "" in the namespace "default"')
RIGHT = "give the operator's service account the right to create pods/eviction"
TIGHT = BudgetView("default", "web", allowed=0)


class World(NamedTuple):
    """Hold a snapshot and a policy under which n0, or another node, is held."""

    snapshot: Snapshot
    policy: UpgradePolicy = ACTIVE
    node: str = "n0"


def of(view: NodeView, *pods: PodView, rules: UpgradePolicy | None = None, **rest: Any) -> World:
    return World(cluster([view], [driver_pod(), *pods], **rest), rules or ACTIVE)


def refused(pod: PodView, *budgets: BudgetView, why: str = "the budget says no") -> World:
    world = of(under_way(State.POD_DELETION_REQUIRED), pod, refusals={pod.uid: Refusal(NOW, 3, why)})
    return World(replace(world.snapshot, budgets=budgets))


def found_forbidden() -> World:
    """Return a node whose pods may not be evicted, as another one has found out."""
    views = [under_way(State.POD_DELETION_REQUIRED, name="n1"), QUEUED]
    pods = [gpu_pod(), gpu_pod("n1", "other"), driver_pod(), driver_pod("n1")]
    return World(cluster(views, pods, refusals={pods[1].uid: Refusal(NOW, 3, NO_RIGHT)}), LIMITED)


def unwritable() -> World:
    world = of(QUEUED)
    return World(replace(world.snapshot, refused_writes={QUEUED.uid: Refusal(NOW, 3, "a webhook says no")}))


def failed(attempts: int) -> World:
    remembers = build.record(State.FAILED, ours=True, failed=State.POD_RESTART_REQUIRED)
    failure = Failure(State.POD_RESTART_REQUIRED, "it broke", NOW - 1, attempts)
    return of(node(state=State.FAILED, remembers=replace(remembers, failure=failure), cordoned=True))


def said(world: World) -> list[tuple[str, str]]:
    """Return what each remedy says to do, without its reasons, and what becomes of the node."""
    found = remedies(world.snapshot, world.policy, NOW, world.node)
    return [(re.sub(r", which .*| \(.*|: .*", "", remedy.do), remedy.then.split(":")[0]) for remedy in found]


def failure_of_driver() -> Record:
    remembers = build.record(State.FAILED, ours=True, failed=State.POD_RESTART_REQUIRED)
    return replace(remembers, failure=Failure(State.POD_RESTART_REQUIRED, "it broke", NOW - 1, 9))


BROKEN = build.record(State.UPGRADE_REQUIRED, failed=State.POD_RESTART_REQUIRED)
BROKEN_NODES = [node(f"n{number}", State.UPGRADE_REQUIRED, remembers=BROKEN, ready=False) for number in range(1, 5)]
LIMITED = policy(unavailable=1, parallel=0)
WAITING = State.UPGRADE_REQUIRED
UNPLACED = driver_pod("", "560", ready=False, waiting="Unschedulable", meant_for="n0")
DONE = {2: State.DONE, 3: State.DONE}
CASES: dict[str, tuple[World, Reason, list[tuple[str, str]]]] = {
    "skip label": (
        of(node(state=State.UPGRADE_REQUIRED, labels={names.UPGRADE_SKIP: "true"})), Reason.SKIPPED,
        [("remove the skip label", AT_ONCE)],
    ),
    "pause": (
        of(under_way(State.POD_DELETION_REQUIRED), gpu_pod(), rules=PAUSED), Reason.PAUSED,
        [("set autoUpgrade", "this node goes on")],
    ),
    "invalid policy": (of(QUEUED, rules=policy(admit=False)), Reason.INVALID_POLICY, []),
    "plan that somebody approved of, and that the rollout does not keep to": (
        of(QUEUED, rules=policy(rollout=RolloutSettings(approved_plan=ApprovedPlan()))), Reason.PLAN_DIFFERS,
        [("approve of the rollout as it would go now", AT_ONCE), ("keep to no plan any more", AT_ONCE)],
    ),
    "node not ready": (
        of(node(state=State.UPGRADE_REQUIRED, ready=False)), Reason.NODE_NOT_READY, [("get node n0 Ready again", AT_ONCE)],
    ),
    "no driver pod": (
        World(cluster([under_way(State.UPGRADE_REQUIRED)])), Reason.DRIVER_POD_MISSING,
        [("let DaemonSet gpu-operator/nvidia-driver-daemonset make a driver pod here", AT_ONCE)],
    ),
    "driver pod that finds no place": (
        World(cluster([under_way(State.POD_RESTART_REQUIRED)], [UNPLACED])), Reason.DRIVER_UNPLACED,
        [("let the scheduler place driver pod driver-560-", "this node goes on")],
    ),
    "driver pod that found no place when its node failed": (
        World(cluster([under_way(State.UPGRADE_REQUIRED, failed=State.POD_RESTART_REQUIRED)], [UNPLACED])),
        Reason.DRIVER_UNPLACED, [("let the scheduler place driver pod driver-560-", AT_ONCE)],
    ),
    "no driver pod yet": (
        World(cluster([under_way(State.POD_RESTART_REQUIRED, since=NOW)])), Reason.DRIVER_POD_MISSING, [],
    ),
    "pod that ends": (of(under_way(State.POD_DELETION_REQUIRED), gpu_pod(deleting=True)), Reason.EVICTING, []),
    "pod that does not end": (
        of(under_way(State.POD_DELETION_REQUIRED), gpu_pod(deleting=True, grace=0.0)), Reason.EVICTING,
        [("get pod default/train to end", "this node goes on")],
    ),
    "template that settles": (of(QUEUED, settled=False), Reason.TEMPLATE_SETTLING, []),
    "bare pod": (
        of(QUEUED, gpu_pod(owner=None)), Reason.PROTECTED_PODS,
        [("delete pod default/train", AT_ONCE), ("set podDeletion.force", AT_ONCE)],
    ),
    "two bare pods": (
        of(QUEUED, gpu_pod(owner=None), gpu_pod(name="b", owner=None)), Reason.PROTECTED_PODS,
        [("delete pods default/b and default/train", AT_ONCE), ("set podDeletion.force", AT_ONCE)],
    ),
    "pod with an emptyDir, which its controller would start here again": (
        of(QUEUED, gpu_pod(empty_dir=True)), Reason.PROTECTED_PODS, [("set podDeletion.deleteEmptyDir", AT_ONCE)],
    ),
    "pod that a drain may take": (
        of(QUEUED, gpu_pod(empty_dir=True), rules=policy(drain=DrainSettings(delete_empty_dir=True))), Reason.PROTECTED_PODS,
        [("set podDeletion.deleteEmptyDir", AT_ONCE), ("set drain.enable", AT_ONCE)],
    ),
    "pod of a DaemonSet": (
        of(QUEUED, gpu_pod(owner="DaemonSet")), Reason.PROTECTED_PODS,
        [("take node n0 out of the node selector of DaemonSet default/train-owner", AT_ONCE)],
    ),
    "static pod": (
        of(QUEUED, gpu_pod(mirror=True)), Reason.PROTECTED_PODS,
        [("remove the manifest of static pod default/train from node n0", AT_ONCE)],
    ),
    "bare pod that holds the driver": (
        of(QUEUED, build.pod(owner=None, holds="runtimeClass nvidia")), Reason.HELD_DEVICES,
        [("delete pod default/web", AT_ONCE),
         ("leave such pods alone", AT_ONCE)],
    ),
    "pod of a controller that holds the driver": (
        of(QUEUED, build.pod(holds="runtimeClass nvidia")), Reason.HELD_DEVICES,
        [("let such pods be evicted like GPU pods", AT_ONCE),
         ("leave such pods alone", AT_ONCE)],
    ),
    "disruption budget": (
        World(replace(of(QUEUED, gpu_pod()).snapshot, budgets=(TIGHT,))), Reason.BUDGET_USED_UP,
        [("let disruption budget default/web allow 1 disruption, not 0", AT_ONCE)],
    ),
    "disruption budget without room as other pods of it are not ready": (
        World(replace(of(QUEUED, gpu_pod(), gpu_pod("n1", "other", ready=False)).snapshot,
                      budgets=(replace(TIGHT, healthy=1, desired=1, expected=2),))), Reason.BUDGET_USED_UP,
        [("get pods ready that disruption budget default/web counts", AT_ONCE),
         ("let disruption budget default/web allow 1 disruption, not 0", AT_ONCE)],
    ),
    "disruption budget that would never let the pod go": (
        World(replace(of(QUEUED, gpu_pod()).snapshot, budgets=(replace(TIGHT, desired=2, expected=2),))), Reason.BUDGET_BLOCKS,
        [("let disruption budget default/web allow 1 disruption, not 0", AT_ONCE), (KILL, AT_ONCE)],
    ),
    "two disruption budgets over one pod": (
        World(replace(of(QUEUED, gpu_pod()).snapshot, budgets=(TIGHT, BudgetView("default", "b", allowed=1)))),
        Reason.PROTECTED_PODS,
        [("delete disruption budget default/web", AT_ONCE),
         ("delete disruption budget default/b", "then this node waits")],
    ),
    "refused eviction": (
        refused(gpu_pod(), TIGHT), Reason.EVICTION_REFUSED,
        [("let disruption budget default/web allow 1 disruption, not 0", "this node goes on"),
         ("delete pod default/train", "this node goes on")],
    ),
    "refused eviction where budgets may not be read": (
        refused(gpu_pod()), Reason.EVICTION_REFUSED, [("delete pod default/train", "this node goes on")],
    ),
    "eviction without the right to it": (
        refused(gpu_pod(), why=NO_RIGHT), Reason.EVICTION_REFUSED,
        [(RIGHT, "this node goes on"), ("delete pod default/train", "this node goes on")],
    ),
    "another node's eviction without the right to it": (
        found_forbidden(), Reason.EVICTION_FORBIDDEN, [(RIGHT, "this node then waits for its turn (1st)")],
    ),
    "another node's cordon": (
        World(fleet(4, state=WAITING, states={3: State.DONE}, cordoned=[3]), LIMITED), Reason.NO_NODE_MAY_START,
        [("uncordon node n3, if it may serve again", AT_ONCE), ("raise maxUnavailable to 2", AT_ONCE)],
    ),
    "another node that is not ready": (
        World(fleet(4, state=State.UPGRADE_REQUIRED, not_ready=[3]), LIMITED), Reason.NO_NODE_MAY_START,
        [("get node n3 Ready again", AT_ONCE), ("raise maxUnavailable to 2", AT_ONCE)],
    ),
    "two other nodes, of which each alone is one too many": (
        World(fleet(4, state=WAITING, states=DONE, not_ready=[3], cordoned=[2]), LIMITED),
        Reason.NO_NODE_MAY_START,
        [("raise maxUnavailable to 3", AT_ONCE),
         ("get node n3 Ready again, and uncordon node n2, if it may serve again", AT_ONCE)],
    ),
    "place in a queue for one": (
        World(fleet(4, state=State.UPGRADE_REQUIRED), policy(parallel=1), "n2"), Reason.PARALLEL_LIMIT,
        [("raise maxParallelUpgrades to 3", AT_ONCE)],
    ),
    "place in a queue under two limits": (
        World(fleet(4, state=WAITING, states={3: State.DONE}, cordoned=[3]), policy(unavailable=1, parallel=1), "n2"),
        Reason.NO_NODE_MAY_START,
        [("uncordon node n3, if it may serve again", "this node then waits for its turn (2nd)"),
         ("raise maxUnavailable to 2", "this node then waits for its turn (2nd)")],
    ),
    "place in a queue that moves, under two limits": (
        World(fleet(4, state=WAITING), policy(unavailable=1, parallel=1), "n2"), Reason.UNAVAILABLE_LIMIT,
        [("raise maxParallelUpgrades to 3, and maxUnavailable to 3", AT_ONCE)],
    ),
    "place in a queue under two limits of which one is higher": (
        World(fleet(8, state=WAITING), policy(unavailable=3, parallel=1), "n4"), Reason.PARALLEL_LIMIT,
        [("raise maxParallelUpgrades to 5, and maxUnavailable to 5", AT_ONCE)],
    ),
    "place in a queue where others are out of service, too": (
        World(fleet(8, state=WAITING, states={6: State.DONE, 7: State.DONE}, cordoned=[6, 7]), policy(unavailable=3, parallel=1),
              "n4"), Reason.UNAVAILABLE_LIMIT,
        [("raise maxParallelUpgrades to 5, and maxUnavailable to 7", AT_ONCE)],
    ),
    "place behind a node whose driver failed": (
        World(cluster([node("n0", WAITING), node("n1", State.FAILED, remembers=failure_of_driver(), cordoned=True),
                       node("n2", State.DONE)],
                      [driver_pod("n0"), driver_pod("n1", driver="560", ready=False), driver_pod("n2", driver="560"),
                       build.validator("n2")]), LIMITED),
        Reason.NO_NODE_MAY_START,
        [("look at node n1, whose upgrade failed", AT_ONCE), ("take the new driver back", "then this node goes on"),
         ("raise maxUnavailable to 2", AT_ONCE)],
    ),
    "job": (
        of(under_way(State.WAIT_FOR_JOBS_REQUIRED), JOB, rules=policy(wait_for="app=job")), Reason.JOBS_RUNNING,
        [("delete pod default/web", "this node goes on"),
         ("set waitForCompletion.timeoutSeconds to 60", "this node goes on")],
    ),
    "failure": (failed(attempts=9), Reason.FAILED, [("let it be tried again now, once the cause is mended", AT_ONCE)]),
    "failure that is tried again later": (
        failed(attempts=1), Reason.RETRY_LATER, [("let it be tried again now, once the cause is mended", AT_ONCE)],
    ),
    "failure budget": (
        World(cluster([QUEUED, *BROKEN_NODES], [driver_pod(f"n{number}") for number in range(5)])), Reason.FAILURE_BUDGET,
        [("let the failures so far count no more, once their cause is mended", AT_ONCE),
         ("take the new driver back", "then this node goes on")],
    ),
    "state that is none": (
        of(node(state="bogus")), Reason.UNKNOWN_STATE,
        [("remove the state label", AT_ONCE), ("ask for an upgrade of this node", AT_ONCE)],
    ),
    "orphan beside the driver pod": (
        of(QUEUED, driver_pod(driver="540", orphan=True)), Reason.TWO_DRIVER_PODS,
        [("delete pod gpu-operator/driver-540-n0", AT_ONCE)],
    ),
    "old driver pod that does not stop": (
        World(cluster([under_way(State.POD_RESTART_REQUIRED)], [driver_pod(deleting=True)])), Reason.DRIVER_STOPPING,
        [("get pod gpu-operator/driver-550-n0 to end", "this node goes on")],
    ),
    "old driver pod that stops": (
        World(cluster([under_way(State.POD_RESTART_REQUIRED, since=NOW)], [driver_pod(deleting=True)])),
        Reason.DRIVER_STOPPING, [],
    ),
    "driver pod that takes long": (
        World(cluster([under_way(State.POD_RESTART_REQUIRED)], [driver_pod(driver="560", ready=False)])),
        Reason.DRIVER_STARTING, [("see what driver pod driver-560-n0 does", "this node goes on")],
    ),
    "writes that are refused": (
        unwritable(), Reason.WRITE_REFUSED,
        [("mend the admission webhook, the policy or the right that refuses changes of this node", AT_ONCE)],
    ),
    "maintenance": (
        of(node(state=State.NODE_MAINTENANCE_REQUIRED)), Reason.MAINTENANCE,
        [("take the node back from the maintenance operator", "this node goes on")],
    ),
}


@pytest.mark.parametrize(("world", "reason", "expected"), CASES.values(), ids=CASES.keys())
def test_a_hold_has_the_remedies_that_work(world: World, reason: Reason, expected: list[tuple[str, str]]) -> None:
    hold = hold_of(decide(world.snapshot, world.policy, NOW), world.node)
    assert (hold.reason, said(world)) == (reason, expected)


def test_two_settings_are_shown_together_where_one_alone_changes_nothing() -> None:
    do = [remedy.do for remedy in remedies(*of(QUEUED, gpu_pod(owner=None, empty_dir=True))[:2], NOW, "n0")]
    assert do[1:] == ["set podDeletion.deleteEmptyDir: true, and set podDeletion.force: true"]


def test_a_pod_that_would_be_in_the_way_for_another_reason_is_no_remedy() -> None:
    world = of(QUEUED, build.pod(owner="DaemonSet", holds="runtimeClass nvidia"))
    assert not [do for do, _ in said(world) if "evicted" in do]


def test_the_rollout_of_an_nvidia_driver_is_resumed_by_its_name() -> None:
    case = DecisionFacts(cluster([QUEUED]), replace(ACTIVE, driver="a"))
    assert policy_fixes.resume(case, NOW).command == "gpuward resume --driver a"


def test_a_failed_node_is_not_to_be_tried_again_without_a_policy() -> None:
    world = failed(attempts=9)
    gone = replace(ACTIVE, auto_upgrade=False, absent="there is no ClusterPolicy")
    assert said(World(world.snapshot, gone)) == []


def test_a_node_that_is_not_held_needs_nothing() -> None:
    assert said(of(node(state=State.DONE))) == []
    assert said(World(Snapshot("gpu-operator"))) == []


def test_getting_worse_is_no_help() -> None:
    def plan(state: State, reason: Reason) -> Plan:
        return Plan(nodes={"n0": NodeStatus(state, 0.0, held_by(reason))})

    before = plan(State.POD_DELETION_REQUIRED, Reason.EVICTING)
    assert helps(before, plan(State.POD_DELETION_REQUIRED, Reason.KILLING), "n0")
    assert not helps(before, plan(State.FAILED, Reason.FAILED), "n0")
    assert not helps(before, plan(State.POD_DELETION_REQUIRED, Reason.UNDECIDED), "n0")
    assert not helps(before, Plan(), "n0")


def test_whoever_would_end_a_job_is_told_what_that_costs() -> None:
    world = of(under_way(State.WAIT_FOR_JOBS_REQUIRED), JOB, rules=policy(wait_for="app=job"))
    first = remedies(world.snapshot, world.policy, NOW, world.node)[0]
    assert (first.do, first.risk) == (
        "delete pod default/web", "this ends the pod: what it has not saved is lost, emptyDir volumes too")


HARMLESS = re.compile(r"kubectl (patch \S+ \S+ .*(maxUnavailable|maxParallelUpgrades|failureBudget)|label node \S+ "
                      r"(nvidia.com/gpu-driver-upgrade-state-|nvidia.com/gpu.deploy.driver=true|pool=)|describe|logs|"
                      r"get |auth can-i)|"
                      r"gpuward (resume|explain|check)|echo .*failureBudget")
"""Commands that end no pod of a user's, and lift no protection."""


@pytest.mark.parametrize("world", [case[0] for case in CASES.values()], ids=CASES.keys())
def test_what_a_remedy_destroys_is_told_with_it(world: World) -> None:
    for remedy in remedies(world.snapshot, world.policy, NOW, world.node):
        dangerous = [command for command in remedy.commands if not HARMLESS.match(command)]
        leaves = any(said in " ".join(dangerous) for said in ("gpuward retry", "upgrade-required", "upgrade.skip-"))
        assert remedy.risk or not dangerous or leaves, (remedy.do, dangerous)


@pytest.mark.parametrize("world", [case[0] for case in CASES.values()], ids=CASES.keys())
def test_commands_stand_on_lines_of_their_own(world: World) -> None:
    for remedy in remedies(world.snapshot, world.policy, NOW, world.node):
        assert "kubectl" not in remedy.do


def test_the_finalizer_that_keeps_a_pod_is_named() -> None:
    kept = driver_pod(deleting=True, kept_by_finalizers=("example.com/audit",))
    world = World(cluster([under_way(State.POD_RESTART_REQUIRED)], [kept]))
    (told,) = remedies(world.snapshot, world.policy, NOW, world.node)
    assert "finalizer example.com/audit keeps it until whoever set it takes it off" in told.do
    assert told.commands == ("kubectl describe pod driver-550-n0 -n gpu-operator",)


def test_a_pod_of_a_gang_is_not_deleted_without_a_word_of_the_others() -> None:
    alone = gpu_pod("n0", "solo")
    gang = [gpu_pod("n0", name, gang="pod group team/bert") for name in "ab"]
    assert "pod group" not in delete_pods([alone]).risk
    assert delete_pods([alone, *gang]).risk.endswith("; other pods of pod group team/bert may not go on without it")


def test_several_pods_that_do_not_end_are_several() -> None:
    pods = [gpu_pod("n0", name, deleting=True) for name in "abc"]
    assert end_pods(pods).do == "get pods default/a, default/b and default/c to end (a process that does not stop may keep them)"
    assert end_pods(pods[:2]).do == "get pods default/a and default/b to end (a process that does not stop may keep them)"
    assert end_pods(pods[:1]).do == "get pod default/a to end (a process that does not stop may keep it)"


def test_what_becomes_of_a_node_is_told() -> None:
    before = NodeStatus(State.UPGRADE_REQUIRED, 0.0, held_by(Reason.NODE_NOT_READY))
    assert outlook(before, NodeStatus(State.DONE, 0.0, up_to_date=True)) == "this node is up to date then"
    assert outlook(before, NodeStatus(State.DONE, 0.0)) == "the upgrade of this node is over then", "its driver may not be ready"
    other = NodeStatus(State.UPGRADE_REQUIRED, 0.0, held_by(Reason.NODE_GONE))
    assert outlook(before, other) == "this node is then held by something else: the node is being deleted"


@pytest.mark.parametrize(("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (112, "112th"),
                                              (21, "21st"), (103, "103rd")])
def test_places_are_counted_as_people_do(number: int, text: str) -> None:
    assert ordinal(number) == text


# The commands: carried out by hand, on the facts, they must do what the remedy promised.


def obey(command: str, world: World) -> World:
    """Carry a command out as a cluster would."""
    for part in command.split(" && "):
        world = _obey(shlex.split(part), world)
    return world


def _obey(words: list[str], world: World) -> World:
    snapshot = world.snapshot
    if words[0] == "echo":
        assert words[2:] == ["|", "kubectl", "apply", "--server-side", "-f", "-"]
        spec = msgspec.json.decode(words[1])["spec"]
        holders = DeviceHolders(spec.get("deviceHolders", "Hold"))
        rollout = replace(world.policy.rollout, device_holders=holders, kill_at_deadline=spec.get("killAtDeadline", False))
        return world._replace(policy=replace(world.policy, rollout=rollout))
    match words[1:]:
        case ["label", "node", name, change, *_]:
            return world._replace(snapshot=_relabelled(snapshot, name, change))
        case ["retry", name]:
            return world._replace(snapshot=_relabelled(snapshot, name, f"{names.UPGRADE_STATE}={State.UPGRADE_REQUIRED}"))
        case ["uncordon", name]:
            nodes = {**snapshot.nodes, name: replace(snapshot.nodes[name], unschedulable=False)}
            return world._replace(snapshot=replace(snapshot, nodes=nodes))
        case ["delete", "pdb", name, "-n", _]:
            budgets = tuple(budget for budget in snapshot.budgets if budget.name != name)
            return world._replace(snapshot=replace(snapshot, budgets=budgets))
        case ["delete", "pod", name, "-n", namespace]:
            pods = {at: tuple(pod for pod in here if (pod.namespace, pod.name) != (namespace, name))
                    for at, here in snapshot.pods.items()}
            assert pods != snapshot.pods
            return world._replace(snapshot=replace(snapshot, pods=pods))
        case ["patch", "clusterpolicy", "cluster-policy", "--type", "merge", "-p", text]:
            fields = msgspec.json.decode(text)["spec"]["driver"]["upgradePolicy"]
            return world._replace(policy=_patched(world.policy, fields))
    raise AssertionError(f"no such command: {words}")


def _relabelled(snapshot: Snapshot, name: str, change: str) -> Snapshot:
    view = snapshot.nodes[name]
    key, _, value = change.partition("=")
    labels = {other: text for other, text in view.labels.items() if other != key.removesuffix("-")}
    view = replace(view, labels={**labels, key: value} if value else labels)
    return replace(snapshot, nodes={**snapshot.nodes, name: view})


def _patched(current: UpgradePolicy, fields: dict[str, Any]) -> UpgradePolicy:
    """Read the fields as the API's types do, and set nothing else."""
    read = upgrade_policy(msgspec.convert(fields, DriverUpgradePolicy))
    spelt = {"autoUpgrade": "auto_upgrade", "maxUnavailable": "max_unavailable", "maxParallelUpgrades": "max_parallel_upgrades"}
    parts = {"podDeletion": "pod_deletion", "drain": "drain", "waitForCompletion": "wait_for_completion"}
    inner = {"deleteEmptyDir": "delete_empty_dir", "timeoutSeconds": "timeout_seconds"}
    changes: dict[str, Any] = {spelt[key]: getattr(read, spelt[key]) for key in fields if key in spelt}
    for part in fields.keys() & parts.keys():
        values = {inner.get(key, key): getattr(getattr(read, parts[part]), inner.get(key, key)) for key in fields[part]}
        changes[parts[part]] = replace(getattr(current, parts[part]), **values)
    return replace(current, **changes)


OBEYED = ("kubectl label", "gpuward retry", "kubectl uncordon", "kubectl delete", "kubectl patch", "echo '{\"apiVersion\"")


def complete(remedy: Remedy) -> bool:
    """Tell whether its commands are all that a remedy needs, and are ones that can be carried out here."""
    whole = remedy.do.count(", and ") + 1 == len(remedy.commands)
    return whole and all(command.startswith(OBEYED) and "failureBudget" not in command for command in remedy.commands)


@pytest.mark.parametrize("world", [world for world, _, _ in CASES.values()], ids=CASES.keys())
def test_the_commands_do_what_the_remedy_says(world: World) -> None:
    before = decide(world.snapshot, world.policy, NOW).nodes[world.node]
    for remedy in remedies(world.snapshot, world.policy, NOW, world.node):
        if not complete(remedy):
            continue
        done = world
        for command in remedy.commands:
            done = obey(command, done)
        after = decide(done.snapshot, done.policy, NOW).nodes[world.node]
        assert outlook(before, after) == remedy.then


@examples(60)
@given(fleets(), policies)
def test_whatever_is_said_to_help_does(snapshot: Snapshot, rules: UpgradePolicy) -> None:
    plan = decide(snapshot, rules, NOW)
    marked = {name: replace(view, labels={**view.labels, names.UPGRADE_STATE: str(plan.nodes[name].state)})
              for name, view in snapshot.nodes.items() if name in plan.nodes}
    snapshot = replace(snapshot, nodes={**snapshot.nodes, **marked})
    before = decide(snapshot, rules, NOW)
    for name, hold in before.holds.items():
        for remedy in remedies(snapshot, rules, NOW, name):
            after = decide(remedy.after.snapshot, remedy.after.policy, NOW).nodes[name]
            assert after.hold != hold
            assert after.state is not State.FAILED or before.nodes[name].state is State.FAILED


def test_a_name_from_a_strangers_recording_cannot_end_the_command_that_it_stands_in() -> None:
    hostile = node("n0; rm -rf /", State.UPGRADE_REQUIRED, labels={names.UPGRADE_SKIP: "true"})
    (skip,) = [remedy for remedy in remedies(cluster([hostile], [driver_pod(hostile.name)]), policy(), NOW, hostile.name)]
    assert skip.commands == (f"kubectl label node 'n0; rm -rf /' {names.UPGRADE_SKIP}-",)
