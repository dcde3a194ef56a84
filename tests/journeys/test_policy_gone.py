"""A ClusterPolicy or NVIDIADriver that is being deleted, or is gone: what goes with it goes once, and nobody is disturbed."""

from __future__ import annotations

from collections import Counter

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.store import Event
from tests.journeys.stage import OLD, POLICY, Stage, on_stage, policy
from tests.journeys.test_nvidiadriver import make, nvidia_driver

SPACE = names.DEFAULT_NAMESPACE
FINALIZER = "example.com/held"


class Made:
    """Count the objects made from now on."""

    def __init__(self, stage: Stage) -> None:
        self.kinds: Counter[str] = Counter()
        stage.sandbox.store.subscribe(self._saw)

    def _saw(self, event: Event) -> None:
        if event.type == "ADDED" and event.resource_key not in ("events", "pods", "controllerrevisions.apps"):
            self.kinds[event.resource_key] += 1


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
