"""Taints that the next driver pod would not tolerate: a node that has one keeps its driver, and its pods, until then."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_ready
from tests.journeys.looking import explanation_of, reason_of
from tests.journeys.stage import NEW, OLD, Stage, gpu_template, on_stage
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver, owners, set_driver
from tests.journeys.test_tolerations_taken import USUAL, driver_pods

WIDE = [*USUAL, {"key": "team", "operator": "Exists"}]


async def used(stage: Stage) -> set[str]:
    """Give a node the taint, which lets its driver pod run on, and a pod that tolerates it; return the driver pods."""
    await stage.installed()
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"spec": {"taints": taints}})
    template = gpu_template("training")
    template["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": "gpu-1"}, "tolerations": WIDE}
    stage.sandbox.apply(deployment("training", WORKLOAD_NAMESPACE, 1, template))
    await stage.until(lambda: any(map(is_ready, stage.workload_pods("training"))))
    return driver_pods(stage)


async def is_kept(stage: Stage, before: set[str]) -> None:
    """See that nothing happens to the node, and what people are told."""
    training = [pod["metadata"]["uid"] for pod in stage.workload_pods("training")]
    await stage.until(lambda: stage.hold("gpu-1") == "DriverRepelled", within=3600)
    await stage.rest(1800)
    (pod,) = stage.pods(names.DRIVER_APP, "gpu-1") or [
        pod for pod in stage.pods(node="gpu-1") if pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.DRIVER_COMPONENT]
    assert pod["metadata"]["uid"] in before
    assert [pod["metadata"]["uid"] for pod in stage.workload_pods("training")] == training
    assert (stage.driver("gpu-1"), stage.cordons(), stage.hold("gpu-1")) == (OLD, [], "DriverRepelled")
    told = await explanation_of(stage, "gpu-1")
    assert reason_of(told) == ("stays as it is: the next driver pod, or its validator, does not tolerate taint "
                               "team=a:NoSchedule of this node, and would not come")
    assert told.remedies[0].commands == ("kubectl taint node gpu-1 team:NoSchedule-",)


def with_drivers(stage: Stage, **fields: Any) -> dict[str, Any]:
    return nvidia_driver("all", default=True, tolerations=WIDE, **fields)


@on_stage(gpu_nodes=3)
async def test_a_node_is_not_emptied_for_a_driver_pod_that_would_not_come(stage: Stage) -> None:
    before = await used(stage)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: [stage.driver("gpu-2"), stage.driver("gpu-3")] == [NEW, NEW], within=3600)
    await is_kept(stage, before)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"spec": {"taints": None}})
    await stage.upgraded()


@on_stage(gpu_nodes=2)
async def test_no_driver_pod_goes_under_pods_for_a_toleration_that_is_taken(stage: Stage) -> None:
    """The driver is the same, so that its pod is only restarted; what keeps it loaded meanwhile tolerates the taint as before."""
    await stage.patch_policy("daemonsets/tolerations", WIDE)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, with_drivers(stage))
    before = await used(stage)
    await set_driver(stage, "all", {"tolerations": []})
    await is_kept(stage, before)
    await set_driver(stage, "all", {"tolerations": WIDE})
    await stage.until(lambda: stage.all_are(State.DONE) and not stage.operator.plan.holds, within=3600)


@on_stage(gpu_nodes=1)
async def test_a_driver_pod_that_waits_for_leave_to_load_gets_it_whatever_its_node_repels(stage: Stage) -> None:
    """It is there already, as after a reboot."""
    before = await used(stage)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.SAFE_LOAD: "true"}}})
    await stage.until(lambda: names.SAFE_LOAD not in stage.node("gpu-1")["metadata"]["annotations"])
    await stage.until(lambda: stage.all_are(State.DONE) and not stage.operator.plan.holds)
    assert (driver_pods(stage), stage.cordons()) == (before, [])


@pytest.mark.parametrize("tolerates", [False, True])
def test_no_node_goes_to_an_nvidiadriver_whose_pods_would_not_come(tolerates: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.patch_policy("daemonsets/tolerations", WIDE)
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        other: Any = {"tolerations": WIDE} if tolerates else {}
        await make(stage, with_drivers(stage), nvidia_driver("b", version=NEW, **other))
        before = await used(stage)
        await label_pools(stage, b="gpu-1")
        if not tolerates:
            await is_kept(stage, before)
            await set_driver(stage, "b", {"tolerations": WIDE})
        await stage.until(lambda: stage.driver("gpu-1") == NEW and owners(stage)["gpu-1"] == "b", within=3600)

    story()


@on_stage(gpu_nodes=2)
async def test_no_node_is_emptied_for_a_driver_that_nobody_would_confirm(stage: Stage) -> None:
    """What an NVIDIADriver tolerates holds for its drivers alone."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, with_drivers(stage))
    before = await used(stage)
    await set_driver(stage, "all", {"version": NEW})
    await stage.until(lambda: stage.driver("gpu-2") == NEW, within=3600)
    await is_kept(stage, before)
    await stage.patch_policy("daemonsets/tolerations", WIDE)
    await stage.upgraded()


@on_stage(gpu_nodes=2)
async def test_a_driver_that_was_mistyped_is_replaced_where_only_the_validator_is_kept_away(stage: Stage) -> None:
    """What its pod has not loaded nothing goes by, and the next one comes."""
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*{OLD}*"))
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}})
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, with_drivers(stage))
    await stage.until(lambda: stage.hold("gpu-1") == stage.hold("gpu-2") == "DriverFailing")
    await set_driver(stage, "all", {"version": NEW})
    await stage.until(lambda: stage.drivers() == [NEW] and not stage.cordons())
