"""A ClusterPolicy or NVIDIADriver that is being deleted, or is gone: what goes with it goes once, and nobody is disturbed."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuward import names
from gpuward.cli.look import Picture
from gpuward.cli.overview import headline
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.report.nodes import group_reports, node_reports
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from kubesandbox.store import Event
from tests.journeys.stage import NEW, OLD, POLICY, Object, Stage, blind_to_budgets, on_stage, policy
from tests.journeys.test_nvidiadriver import condition, driver_pods, label_pools, make, nvidia_driver, set_driver

SPACE = names.DEFAULT_NAMESPACE
FINALIZER = "example.com/held"


class Made:
    """Count the objects made from now on."""

    def __init__(self, stage: Stage) -> None:
        self.kinds: Counter[str] = Counter()
        self.names: Counter[tuple[str, str]] = Counter()
        stage.sandbox.store.subscribe(self._saw)

    def _saw(self, event: Event) -> None:
        if event.type == "ADDED" and event.resource_key not in ("events", "pods", "controllerrevisions.apps"):
            self.kinds[event.resource_key] += 1
            self.names[event.resource_key, event.obj["metadata"]["name"]] += 1


async def hold(stage: Stage, gvr: resources.GVR, name: str, finalizers: list[str]) -> None:
    await stage.user.patch_merge(gvr, name, {"metadata": {"finalizers": finalizers}})


@on_stage(gpu_nodes=2)
async def test_what_a_policy_takes_with_it_in_the_foreground_is_not_made_again(stage: Stage) -> None:
    await stage.installed()
    made = Made(stage)
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY, propagation="Foreground")
    await stage.until(lambda: stage.sandbox.store.find("clusterpolicies.nvidia.com", None, POLICY) is None, 120)
    assert not made.kinds
    assert stage.sandbox.store.list("daemonsets.apps", SPACE) == []


@pytest.mark.parametrize("crd", [False, True], ids=["ClusterPolicy", "NVIDIADriver"])
def test_what_goes_with_an_owner_whose_end_the_watch_has_not_shown_is_made_again_once_at_most(crd: bool) -> None:
    """Kubernetes deletes what has an owner that is gone: made for it again and again, it would go as often."""
    lags: dict[str, float] = {}

    @on_stage(gpu_nodes=2, watch_delay=lambda resource: lags.get(str(resource), 0.01))
    async def story(stage: Stage) -> None:
        if crd:
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("default", default=True))
        await stage.installed()
        made = Made(stage)
        lags.update({"clusterpolicies.nvidia.com": 60.0, "nvidiadrivers.nvidia.com": 60.0})
        owner = (resources.NVIDIA_DRIVERS, "default") if crd else (resources.CLUSTER_POLICIES, POLICY)
        await stage.user.delete(*owner)
        await stage.rest(50)
        assert max(made.names.values(), default=0) <= 1
        await make(stage, nvidia_driver("default", default=True)) if crd else stage.sandbox.apply(policy())
        await stage.rest(120)
        assert max(made.names.values(), default=0) <= 2
        await stage.installed()

    story()


@on_stage(gpu_nodes=2)
async def test_what_an_nvidiadriver_takes_with_it_in_the_foreground_is_not_made_again(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    made = Made(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default", propagation="Foreground")
    await stage.until(lambda: stage.sandbox.store.find("nvidiadrivers.nvidia.com", None, "default") is None, 120)
    assert not made.kinds


@on_stage(gpu_nodes=2)
async def test_a_policy_that_somebody_holds_in_its_deletion_is_not_written_for(stage: Stage) -> None:
    await stage.installed()
    await hold(stage, resources.CLUSTER_POLICIES, POLICY, [FINALIZER])
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(60)
    status, made = stage.policy_status(), Made(stage)
    await stage.user.delete(resources.CONFIG_MAPS, "nvidia-driver-startup-probe", SPACE)
    await stage.label("gpu-1", names.DEPLOY_PREFIX + "dcgm", None)
    before = stage.client.stats.writes()
    await stage.rest(300)
    assert stage.client.stats.writes() == before
    assert stage.policy_status() == status
    assert not made.kinds
    assert stage.drivers() == [OLD]
    await hold(stage, resources.CLUSTER_POLICIES, POLICY, [])
    await stage.until(lambda: not stage.sandbox.store.list("daemonsets.apps", SPACE), 120)
    assert not made.kinds


@on_stage(gpu_nodes=2)
async def test_another_policy_takes_over_from_one_that_is_being_deleted(stage: Stage) -> None:
    await stage.installed()
    await stage.user.create(resources.CLUSTER_POLICIES, policy("second"))
    await stage.until(lambda: stage.policy_status("second").get("state") == "ignored")
    await hold(stage, resources.CLUSTER_POLICIES, POLICY, [FINALIZER])
    pods = {pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)}
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.until(lambda: stage.policy_status("second").get("state") == "ready" and stage.all_are(State.DONE))
    await hold(stage, resources.CLUSTER_POLICIES, POLICY, [])
    await stage.rest(120)
    assert {pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)} == pods, "the same drivers, of another owner"
    owned = [obj for key in ("daemonsets.apps", "serviceaccounts", "configmaps", "roles.rbac.authorization.k8s.io")
             for obj in stage.sandbox.store.list(key, SPACE) if obj["metadata"].get("ownerReferences")]
    assert {obj["metadata"]["ownerReferences"][0]["name"] for obj in owned} == {"second"}
    assert stage.policy_status("second")["state"] == "ready"
    assert stage.drivers() == [OLD]


# In mid-rollout.


def said(stage: Stage) -> str:
    """Return the first line of `gpuward status`."""
    operator = stage.operator
    snapshot = operator.cluster.observe()
    return headline(Picture(snapshot, operator.policies.read(snapshot), operator.plan, stage.clock.now()))


async def with_drivers(stage: Stage, **upgrade: object) -> None:
    """Leave drivers to two NVIDIADrivers, and wait until they run."""
    await label_pools(stage, a="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a", upgrade), nvidia_driver("default", upgrade, default=True))
    await stage.installed()


async def upgrade_drivers(stage: Stage) -> None:
    for name in ("a", "default"):
        await set_driver(stage, name, {"version": NEW})


def leaving_policy() -> Object:
    body = policy()
    body["spec"]["driver"] |= {"useNvidiaDriverCRD": True, "version": NEW}
    return body


ALL = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}


@on_stage(gpu_nodes=3, interfere=blind_to_budgets)
async def test_nodes_that_are_being_emptied_get_their_cordons_back(stage: Stage) -> None:
    await with_drivers(stage, **ALL)
    for node in ("gpu-1", "gpu-3"):
        await stage.deploy(node, node=node, max_unavailable=0)
    await stage.cordon("gpu-2")
    await upgrade_drivers(stage)
    await stage.until(lambda: stage.hold("gpu-1") == stage.hold("gpu-3") == "EvictionRefused")
    await stage.until(lambda: stage.state("gpu-2") == State.DONE)
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.until(lambda: stage.cordons() == ["gpu-2"], 30)
    assert stage.state("gpu-1") == stage.state("gpu-3") == State.UPGRADE_REQUIRED
    evictions = stage.client.stats.total("create", "pods/eviction")
    workloads = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
    for node in ("gpu-1", "gpu-3"):
        stage.set_budget(node, 1)
    await stage.rest(900)
    assert stage.client.stats.total("create", "pods/eviction") == evictions
    assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == workloads
    assert [stage.driver(node) for node in ("gpu-1", "gpu-2", "gpu-3")] == [OLD, NEW, OLD]
    assert stage.cordons() == ["gpu-2"], "people cordoned it"
    assert stage.hold("gpu-1") == stage.hold("gpu-3") == "NoPolicy"
    assert [line["reason"] for line in stage.log if line["msg"] == "Driver upgrade is held"][-1] == "NoPolicy"
    assert said(stage) == "no ClusterPolicy: no driver is upgraded until one is in force (`gpuward check` says what to do)"
    assert [str(group) for group in group_reports(node_reports(stage.operator.plan))] == [
        "3 stopped, all for one reason (3 NoPolicy), 1 of them cordoned by somebody else"]
    assert condition(stage, "a")[:2] == ("notReady", "NoClusterPolicy")
    assert "there is no ClusterPolicy: drivers run on" in condition(stage, "default")[2]
    await stage.user.create(resources.CLUSTER_POLICIES, leaving_policy())
    await stage.upgraded()
    assert stage.cordons() == ["gpu-2"]
    await stage.until(lambda: condition(stage, "a")[0] == condition(stage, "default")[0] == "ready")


@on_stage(gpu_nodes=3)
async def test_a_node_whose_driver_is_being_replaced_gets_the_new_one_and_is_validated_later(stage: Stage) -> None:
    await with_drivers(stage)
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: State.POD_RESTART_REQUIRED in (stage.state("gpu-1"), stage.state("gpu-2")))
    first, other = ("gpu-1", "gpu-2") if stage.state("gpu-1") == State.POD_RESTART_REQUIRED else ("gpu-2", "gpu-1")
    await stage.until(lambda: stage.driver(first) != OLD)
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.until(lambda: stage.driver(first) == NEW and not stage.cordoned(first))
    await stage.rest(1800)
    assert (stage.state(first), stage.hold(first)) == (State.VALIDATION_REQUIRED, "NoPolicy")
    assert "is validated then" in sentence(stage.operator.plan.holds[first])
    assert (stage.driver(other), stage.cordons()) == (OLD, [])
    await stage.restart_operator()
    await stage.rest(60)
    assert (stage.state(first), stage.cordons()) == (State.VALIDATION_REQUIRED, [])
    await stage.user.create(resources.CLUSTER_POLICIES, leaving_policy())
    await stage.until(lambda: stage.all_are(State.DONE) and stage.driver(other) == NEW)
    assert State.FAILED not in stage.entered(first)
    assert stage.cordons() == []


@on_stage(gpu_nodes=3)
async def test_a_node_whose_new_driver_never_gets_ready_stays_cordoned_and_says_so(stage: Stage) -> None:
    await with_drivers(stage)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, image=f"*{NEW}*"))
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: any(stage.driver(node) != OLD for node in ("gpu-1", "gpu-2")))
    first = next(node for node in ("gpu-1", "gpu-2") if stage.driver(node) != OLD)
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(7200)
    assert stage.cordons() == [first], "it has no driver"
    assert stage.hold(first) == "NoPolicy"
    assert "stays cordoned until its new driver is ready" in sentence(stage.operator.plan.holds[first])
    assert sum(stage.driver(node) == OLD for node in stage.states()) == 2


@on_stage(gpu_nodes=3, upgrade=ALL, interfere=blind_to_budgets)
async def test_a_policy_that_is_held_in_its_deletion_in_mid_rollout_gives_its_cordons_back(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
    await hold(stage, resources.CLUSTER_POLICIES, POLICY, [FINALIZER])
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.until(lambda: not stage.cordoned("gpu-1"), 30)
    workloads = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
    stage.set_budget("inference", 1)
    await stage.rest(900)
    assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == workloads
    assert (stage.driver("gpu-1"), stage.hold("gpu-1")) == (OLD, "NoPolicy")
    assert said(stage).startswith(f"ClusterPolicy {POLICY} is being deleted: no driver is upgraded until one is in force")
    second = policy("second", ALL)
    second["spec"]["driver"]["version"] = NEW
    await stage.user.create(resources.CLUSTER_POLICIES, second)
    await stage.upgraded()
    assert stage.cordons() == []


@on_stage(gpu_nodes=2, upgrade=ALL, interfere=blind_to_budgets)
async def test_a_policy_that_leaves_its_daemonsets_behind_gives_its_cordons_back(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused" and stage.state("gpu-2") == State.DONE)
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY, propagation="Orphan")
    await stage.rest(300)
    assert stage.cordons() == []
    assert [stage.driver(node) for node in ("gpu-1", "gpu-2")] == [OLD, NEW]
    assert len(stage.workload_pods()) == 1
    stage.set_budget("inference", 1)
    again = policy(upgrade=ALL)
    again["spec"]["driver"]["version"] = NEW
    await stage.user.create(resources.CLUSTER_POLICIES, again)
    await stage.upgraded()


async def with_one_under_way(stage: Stage) -> str:
    """Let an NVIDIADriver upgrade its nodes, and the ClusterPolicy be refused while the first is validated; return that node."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, pod="nvidia-operator-validator*"))
    await set_driver(stage, "default", {"version": NEW})
    await stage.until(lambda: State.VALIDATION_REQUIRED in stage.states().values())
    await stage.patch_policy("cdi", {"enabled": False, "nriPluginEnabled": True})
    await stage.until(lambda: "nriPluginEnabled" in stage.condition().get("message", ""))
    return next(node for node, state in stage.states().items() if state == State.VALIDATION_REQUIRED)


@on_stage(gpu_nodes=2)
async def test_a_node_under_way_whose_nvidia_driver_goes_while_the_policy_is_refused_keeps_its_driver(stage: Stage) -> None:
    node = await with_one_under_way(stage)
    before = {pod["metadata"]["uid"] for pod in driver_pods(stage)}
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
    await stage.rest(120)
    assert {pod["metadata"]["uid"] for pod in driver_pods(stage)} == before
    assert (stage.driver(node), stage.cordons()) == (NEW, [node])
    await stage.patch_policy("cdi", {"enabled": True, "nriPluginEnabled": False})
    await stage.until(lambda: not stage.cordons() and set(stage.states().values()) == {""}, within=3600)
    assert driver_pods(stage) == []


@on_stage(gpu_nodes=2)
async def test_a_node_under_way_that_its_nvidia_driver_left_behind_while_the_policy_is_refused_has_a_reason(stage: Stage) -> None:
    node = await with_one_under_way(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default", propagation="Orphan")
    for ds in [ds for ds in stage.sandbox.store.list("daemonsets.apps", SPACE) if names.DRIVER_OWNER in
               ds["spec"]["template"]["spec"].get("nodeSelector", {})]:
        await stage.user.delete(resources.DAEMON_SETS, ds["metadata"]["name"], SPACE, propagation="Orphan")
    await stage.until(lambda: stage.hold(node) == "NotSelected")
    await stage.rest(600)
    assert (stage.driver(node), stage.cordons(), stage.state(node)) == (NEW, [node], State.VALIDATION_REQUIRED)
    assert stage.operator.plan.counts.total == 2
    stage.sandbox.faults.clear()
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.patch_policy("cdi", {"enabled": True, "nriPluginEnabled": False})
    await stage.upgraded()
    await stage.until(lambda: not stage.cordons())


@on_stage(gpu_nodes=3)
async def test_the_log_calls_it_no_pause_while_the_drivers_of_a_deleted_policy_stop(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "pod-restart-required" in stage.states().values())
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(20)
    assert {line["reason"] for line in stage.log if line["msg"] == "Driver upgrade is held"} == {"NoPolicy"}
