"""Drivers that NVIDIADrivers describe: pools with drivers and limits of their own, trouble that stays where it is, and the move
from a ClusterPolicy's drivers to theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from gpuward import names
from gpuward.cli.resume import resume_rollout
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import IN_PROGRESS, State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import explanation_of
from tests.journeys.stage import NEW, OLD, Object, Stage, on_stage
from tests.operands.build import EXAMPLES

IS_DRIVER = {names.COMPONENT_LABEL: names.DRIVER_COMPONENT}
ALL_AT_ONCE = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}


def nvidia_driver(name: str, upgrade: Mapping[str, Any] | None = None, **spec: Any) -> Object:
    """Return the example NVIDIADriver under another name, for the nodes labelled `pool: <name>` unless it is the default."""
    body: Object = yaml.safe_load((EXAMPLES / "nvidiadriver.yaml").read_text())
    chosen = {} if spec.get("default") else {"default": False, "nodeSelector": {"pool": name}}
    body["metadata"]["name"] = name
    body["spec"] |= {"version": OLD, **chosen, **spec}
    body["spec"]["upgradePolicy"] |= upgrade or {}
    return body


async def make(stage: Stage, *drivers: Object) -> None:
    for driver in drivers:
        await stage.user.create(resources.NVIDIA_DRIVERS, driver)


async def set_driver(stage: Stage, name: str, spec: Mapping[str, Any]) -> None:
    await stage.user.patch_merge(resources.NVIDIA_DRIVERS, name, {"spec": spec})


async def label_pools(stage: Stage, **pools: str) -> None:
    """Label nodes with their pools: `a="gpu-1 gpu-2"`."""
    for pool, nodes in pools.items():
        for node in nodes.split():
            await stage.label(node, "pool", pool)


async def with_pools(stage: Stage, *drivers: Object) -> None:
    """Leave the drivers of gpu-1 to gpu-3 to NVIDIADriver a and of the others to b, and wait until they run."""
    await label_pools(stage, a="gpu-1 gpu-2 gpu-3", b="gpu-4 gpu-5 gpu-6")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, *drivers)
    await stage.installed()


def condition(stage: Stage, name: str) -> tuple[str, str, str]:
    """Return state, reason and message of an NVIDIADriver's true condition."""
    status = (stage.sandbox.store.get("nvidiadrivers.nvidia.com", None, name).get("status")) or {}
    true: dict[str, str] = next((one for one in status.get("conditions", ()) if one["status"] == "True"), {})
    return status.get("state", ""), true.get("reason", ""), true.get("message", "")


def driver_pods(stage: Stage, node: str = "") -> list[Object]:
    return [pod for pod in stage.pods(node=node) if IS_DRIVER.items() <= (pod["metadata"].get("labels") or {}).items()]


def owners(stage: Stage) -> dict[str, str]:
    return {name: stage.labels(name).get(names.DRIVER_OWNER, "") for name in stage.states()}


def writes(stage: Stage) -> dict[str, int]:
    """Return how often the operator wrote, by verb and resource."""
    spent = stage.client.stats.requests
    return {f"{key.verb} {key.resource}": count for key, count in spent.items() if key.verb not in ("get", "list", "watch")}


def most_at_once(stage: Stage, *nodes: str) -> int:
    """Return the most of some nodes that were under way at once since the limits are watched."""
    most = 0
    under_way: set[str] = set()
    for moment in stage.history:
        if moment.node in nodes:
            (under_way.add if moment.state in IN_PROGRESS else under_way.discard)(moment.node)
            most = max(most, len(under_way))
    return most


@on_stage(gpu_nodes=6)
async def test_two_pools_are_upgraded_each_within_its_own_limits(stage: Stage) -> None:
    two = {**ALL_AT_ONCE, "maxParallelUpgrades": 2}
    await with_pools(stage, nvidia_driver("a", {"maxUnavailable": 3}), nvidia_driver("b", two))
    assert owners(stage) == dict.fromkeys(("gpu-1", "gpu-2", "gpu-3"), "a") | dict.fromkeys(("gpu-4", "gpu-5", "gpu-6"), "b")
    assert condition(stage, "a") == ("ready", "Reconciled", "All resources have been successfully reconciled")
    stage.history.clear()
    for name in "ab":
        await set_driver(stage, name, {"version": NEW})
    await stage.upgraded()
    assert most_at_once(stage, "gpu-1", "gpu-2", "gpu-3") == 1
    assert most_at_once(stage, "gpu-4", "gpu-5", "gpu-6") == 2
    assert stage.cordons() == []
    await stage.until(lambda: stage.policy_status()["state"] == "ready")
    assert condition(stage, "b")[0] == "ready"


@on_stage(gpu_nodes=6)
async def test_one_pool_is_upgraded_and_the_other_left_alone(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a"), nvidia_driver("b"))
    before = {pod["metadata"]["uid"] for node in ("gpu-4", "gpu-5", "gpu-6") for pod in driver_pods(stage, node)}
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.policy_status()["state"] == "notReady")
    assert "NVIDIADriver upgrade has not completed" in stage.condition()["message"]
    await stage.until(lambda: [stage.driver(f"gpu-{number}") for number in (1, 2, 3)] == [NEW] * 3)
    assert {pod["metadata"]["uid"] for node in ("gpu-4", "gpu-5", "gpu-6") for pod in driver_pods(stage, node)} == before
    assert stage.driver("gpu-4") == OLD


@on_stage(gpu_nodes=3)
async def test_drivers_run_on_through_the_switch_and_are_replaced_node_by_node(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", 3)
    before = {pod["metadata"]["uid"] for pod in driver_pods(stage)}
    workloads = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.until(lambda: all(not pod["metadata"].get("ownerReferences") for pod in driver_pods(stage)))
    await stage.rest(120)
    assert stage.sandbox.store.find("daemonsets.apps", names.DEFAULT_NAMESPACE, names.DRIVER_APP) is None
    assert {pod["metadata"]["uid"] for pod in driver_pods(stage)} == before, "no NVIDIADriver: the drivers run on"
    assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == workloads
    assert stage.drivers() == [OLD]
    stage.watch_limits()
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.upgraded()
    assert stage.most_in_progress == 1
    assert not before & {pod["metadata"]["uid"] for pod in driver_pods(stage)}
    assert stage.cordons() == []
    await stage.until(lambda: stage.policy_status()["state"] == condition(stage, "default")[0] == "ready")
    assert len(stage.warnings("Pod is held")) <= 1, "that new driver pods wait for their nodes is by design"


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_a_switch_in_mid_rollout_loses_no_node_s_state(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", 3)
    await make(stage, nvidia_driver("default", ALL_AT_ONCE, default=True, version=NEW))
    await stage.upgrade_to()
    await stage.until(lambda: stage.all_are(State.POD_RESTART_REQUIRED) and all(map(stage.cordoned, stage.states())))
    stage.watch_limits()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.upgraded()
    for node in stage.states():
        assert stage.entered(node) == [State.VALIDATION_REQUIRED, State.DONE]
        assert len(driver_pods(stage, node)) == 1
    assert stage.cordons() == []


@on_stage(gpu_nodes=6)
async def test_one_that_cannot_be_followed_does_not_stop_the_other(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a", ALL_AT_ONCE), nvidia_driver("b", ALL_AT_ONCE))
    before = {pod["metadata"]["uid"] for node in ("gpu-1", "gpu-2", "gpu-3") for pod in driver_pods(stage, node)}
    await set_driver(stage, "a", {"version": NEW, "secretEnv": "gone", "upgradePolicy": {"maxUnavailable": "few"}})
    await set_driver(stage, "b", {"version": NEW})
    await stage.until(lambda: [stage.driver(f"gpu-{number}") for number in (4, 5, 6)] == [NEW] * 3)
    state, reason, message = condition(stage, "a")
    assert (state, reason) == ("notReady", "ReconcileFailed")
    assert "spec.upgradePolicy.maxUnavailable: 'few'" in message
    await set_driver(stage, "a", {"upgradePolicy": {"maxUnavailable": "100%"}})
    await stage.until(lambda: "Error syncing state state-driver: spec.secretEnv" in condition(stage, "a")[2])
    assert {pod["metadata"]["uid"] for node in ("gpu-1", "gpu-2", "gpu-3") for pod in driver_pods(stage, node)} == before
    await set_driver(stage, "a", {"secretEnv": None})
    await stage.upgraded()


@on_stage(gpu_nodes=6)
async def test_a_conflict_is_told_to_those_that_are_in_it_and_changes_nothing(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a", ALL_AT_ONCE), nvidia_driver("b", ALL_AT_ONCE))
    await make(stage, nvidia_driver("greedy", nodeSelector={"pool": "a", names.GPU_PRESENT: "true"}))
    told = ("notReady", "ConflictingNodeSelector", "multiple NVIDIADrivers match the same node gpu-1: [a greedy]")
    await stage.until(lambda: condition(stage, "a") == condition(stage, "greedy") == told)
    for name in "ab":
        await set_driver(stage, name, {"version": NEW})
    await stage.until(lambda: stage.driver("gpu-4") == NEW and condition(stage, "b")[0] == "ready")
    assert owners(stage)["gpu-1"] == "a"
    assert stage.driver("gpu-1") == OLD
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}})
    await stage.until(lambda: stage.hold("gpu-1") == "InvalidPolicy")
    assert sentence(stage.operator.plan.holds["gpu-1"]) == "nothing new starts while NVIDIADriver a is invalid; see its condition"
    await stage.user.delete(resources.NVIDIA_DRIVERS, "greedy")
    await stage.upgraded()


@on_stage(gpu_nodes=2)
async def test_a_node_that_two_others_select_says_so_while_it_keeps_its_nvidiadriver(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("standard", default=True))
    await stage.installed()
    await make(stage, *(nvidia_driver(name, nodeSelector={"kubernetes.io/hostname": "gpu-1"}) for name in ("one", "two")))
    await stage.rest(60)
    told = "NVIDIADriver standard, which keeps the node while it is open whose it is"
    two = "multiple NVIDIADrivers match the same node gpu-1: [one two]"
    assert (await explanation_of(stage, "gpu-1")).policy == f"{told}: {two}"
    assert (await explanation_of(stage, "gpu-2")).policy == "NVIDIADriver standard"


@on_stage(gpu_nodes=6)
async def test_drivers_in_a_conflict_keep_what_they_need_to_come_up_again(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a", ALL_AT_ONCE), nvidia_driver("b", ALL_AT_ONCE))
    await make(stage, nvidia_driver("greedy", nodeSelector={"pool": "a", names.GPU_PRESENT: "true"}))
    await stage.until(lambda: condition(stage, "a")[1] == "ConflictingNodeSelector")
    account = next(obj["metadata"]["name"] for obj in stage.sandbox.store.list("serviceaccounts", names.DEFAULT_NAMESPACE)
                   if obj["metadata"]["name"].startswith("nvidia-gpu-driver-a-"))
    await stage.user.delete(resources.SERVICE_ACCOUNTS, account, names.DEFAULT_NAMESPACE)
    pod = driver_pods(stage, "gpu-1")[0]["metadata"]
    await stage.user.delete(resources.PODS, pod["name"], names.DEFAULT_NAMESPACE)
    await stage.until(lambda: [each["metadata"]["uid"] for each in driver_pods(stage, "gpu-1")] not in ([], [pod["uid"]])
                      and stage.driver("gpu-1") == OLD)


@on_stage(gpu_nodes=6)
async def test_an_empty_daemon_set_of_an_earlier_one_goes_while_its_namesake_is_in_a_conflict(stage: Stage) -> None:
    """Its accounts are gone with the earlier one, so that no driver of it could come up if a node were given back to it."""
    await with_pools(stage, nvidia_driver("a", ALL_AT_ONCE), nvidia_driver("b", ALL_AT_ONCE))
    await stage.user.delete(resources.NVIDIA_DRIVERS, "b")
    await make(stage, nvidia_driver("b", nodeSelector={"pool": "a"}))
    await stage.until(lambda: condition(stage, "b")[1] == "ConflictingNodeSelector")
    earlier = [pod["metadata"]["labels"]["app"] for pod in driver_pods(stage, "gpu-4")]
    for node in ("gpu-4", "gpu-5", "gpu-6"):
        await stage.label(node, names.DRIVER_OWNER, "")
        for pod in driver_pods(stage, node):
            await stage.user.delete(resources.PODS, pod["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.until(lambda: earlier[0] not in {ds["metadata"]["name"] for ds in stage.sandbox.store.list(
        "daemonsets.apps", names.DEFAULT_NAMESPACE)}, within=1800)
    assert stage.driver("gpu-1") == OLD


@on_stage(gpu_nodes=2)
async def test_a_second_default_is_refused_and_what_runs_stays(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    await make(stage, nvidia_driver("other", default=True, version=NEW))
    told = ("notReady", "ReconcileFailed", "multiple default NVIDIADrivers found: [default other]")
    await stage.until(lambda: condition(stage, "default") == condition(stage, "other") == told)
    await stage.rest(60)
    assert stage.drivers() == [OLD]
    assert set(owners(stage).values()) == {"default"}


@on_stage(gpu_nodes=3)
async def test_a_restart_in_a_conflict_writes_nothing(stage: Stage) -> None:
    """The DaemonSet that comes first in the alphabet was made last: nobody remembers that after a restart."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    await stage.label("gpu-1", names.NFD_OS_VERSION, "20.04")
    await stage.until(lambda: stage.labels("gpu-1").get(names.DRIVER_OS) == "ubuntu20.04" and stage.all_are(State.DONE))
    await make(stage, nvidia_driver("other", default=True, version=NEW))
    await stage.until(lambda: condition(stage, "default")[1] == "ReconcileFailed")
    before = stage.get("configmaps", "nvidia-driver-startup-probe")
    await stage.restart_operator()
    await stage.rest(120)
    assert stage.get("configmaps", "nvidia-driver-startup-probe") == before


@on_stage(gpu_nodes=6)
async def test_what_belonged_to_a_deleted_one_goes_and_its_nodes_get_the_default(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a", ALL_AT_ONCE), nvidia_driver("fallback", default=True, version=NEW))
    assert owners(stage)["gpu-4"] == "fallback"
    await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
    await stage.until(lambda: set(owners(stage).values()) == {"fallback"} and stage.finished(NEW))
    accounts = {obj["metadata"]["name"] for obj in stage.sandbox.store.list("serviceaccounts", names.DEFAULT_NAMESPACE)}
    assert not [name for name in accounts if name.startswith("nvidia-gpu-driver-a-")]
    probe = stage.get("configmaps", "nvidia-driver-startup-probe")
    assert [owner["name"] for owner in probe["metadata"]["ownerReferences"]] == ["fallback"]


@on_stage(gpu_nodes=6)
async def test_a_pool_that_is_gone_takes_its_objects_with_it(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("all", default=True))
    for number in (3, 4, 5):  # those with Ubuntu 24.04
        await stage.user.delete(resources.NODES, f"gpu-{number}")

    def left() -> set[str]:
        return {obj["metadata"]["name"] for obj in stage.sandbox.store.list("daemonsets.apps")
                if IS_DRIVER.items() <= obj["metadata"]["labels"].items()}

    await stage.until(lambda: len(left()) == 1)
    assert "ubuntu22.04" in left().pop()


@on_stage(gpu_nodes=4)
async def test_at_rest_nothing_is_written_and_a_restart_changes_nothing(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("other", default=True))
    await stage.installed()
    await stage.rest(60)
    for _ in range(2):
        before = writes(stage)
        await stage.restart_operator()
        await stage.rest(120)
        assert writes(stage) == before


@on_stage(gpu_nodes=2)
async def test_an_nvidia_driver_is_disabled_while_the_policy_has_drivers_of_its_own(stage: Stage) -> None:
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.installed()
    await stage.until(lambda: condition(stage, "default")
                      == ("disabled", "Reconciled", "useNvidiaDriverCRD is not enabled in ClusterPolicy"))
    assert stage.drivers() == [OLD]
    assert set(owners(stage).values()) == {""}


@on_stage(gpu_nodes=6)
async def test_a_rollout_that_its_failures_paused_is_resumed_for_its_nvidia_driver_alone(stage: Stage) -> None:
    await stage.user.create(resources.ROLLOUT_POLICIES, {
        "apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
        "spec": {"failureBudget": {"nodes": 0, "percent": 0}, "retries": 0}})
    one_by_one = {"maxParallelUpgrades": 1, "maxUnavailable": "100%"}
    await with_pools(stage, nvidia_driver("a", one_by_one), nvidia_driver("b", one_by_one))
    fault = Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*")
    stage.sandbox.faults.add(fault)
    for name in ("a", "b"):
        await set_driver(stage, name, {"version": NEW})

    def held() -> list[str]:
        return [node for node in stage.states() if stage.hold(node) == "FailureBudget"]

    await stage.until(lambda: len(held()) == 4, within=7200)
    stage.sandbox.faults.clear(fault)
    done = await resume_rollout(stage.user, stage.clock.now(), "a")
    assert (done.policy, len(done.nodes)) == ("a", 1)
    pools = {name: [node for node, owner in owners(stage).items() if owner == name] for name in ("a", "b")}
    await stage.until(lambda: [stage.driver(node) for node in pools["a"]] == [NEW] * 3, within=3600)
    assert len(held()) == 2
    assert set(held()) < set(pools["b"])


def blind_to_drivers(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
    """Refuse to list NVIDIADrivers, as where the operator's rights are too few."""
    if request.path.endswith("/nvidiadrivers"):
        return refusal(Forbidden("nvidiadrivers.nvidia.com is forbidden"))
    return proceed()


@on_stage(gpu_nodes=2, interfere=blind_to_drivers)
async def test_drivers_stay_the_policy_s_while_nvidia_drivers_cannot_be_listed(stage: Stage) -> None:
    await stage.installed()
    before = {pod["metadata"]["uid"] for pod in driver_pods(stage)}
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.until(lambda: "NVIDIADriver objects cannot be listed" in stage.condition()["message"])
    assert stage.get("daemonsets.apps", names.DRIVER_APP)
    assert {pod["metadata"]["uid"] for pod in driver_pods(stage)} == before
    stage.transport.interfere = lambda request, proceed: proceed()
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.upgraded()


@on_stage(gpu_nodes=2)
async def test_an_invalid_cluster_policy_lets_their_drivers_run_and_starts_nothing(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "few")
    await stage.until(lambda: stage.policy_status()["state"] == "notReady")
    await set_driver(stage, "default", {"version": NEW})
    await stage.rest(120)
    assert stage.drivers() == [OLD]
    assert set(owners(stage).values()) == {"default"}
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "25%")
    await stage.upgraded()
