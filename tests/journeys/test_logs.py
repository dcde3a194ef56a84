"""What the operator logs of a fleet, and what `kubectl logs` shows of the GPU stack's pods: what their simulated programs did."""

from __future__ import annotations

from gpuward import names
from kubesandbox.messages import Answer, Request
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_rolloutpolicy import apply


def log(stage: Stage, pod: str, container: str, **query: str) -> list[str]:
    """Return the lines that kubectl would print."""
    path = f"/api/v1/namespaces/{names.DEFAULT_NAMESPACE}/pods/{pod}/log"
    answer = stage.sandbox.api.handle(Request("GET", path, {"container": container, **query}))
    assert isinstance(answer, Answer)
    assert answer.status == 200, answer.body
    return answer.body.decode().splitlines()


def driver_log(stage: Stage, node: str, container: str, **query: str) -> list[str]:
    return log(stage, stage.driver_pod(node)["metadata"]["name"], container, **query)


@on_stage(gpu_nodes=1)
async def test_driver_pods_tell_what_they_do_to_the_machine(stage: Stage) -> None:
    await stage.installed()
    assert driver_log(stage, "gpu-1", "k8s-driver-manager") == ["no driver is loaded: there is nothing to make room for"]
    assert driver_log(stage, "gpu-1", "nvidia-driver-ctr")[-1].startswith(f"driver {OLD} is loaded and ready for ")
    stage.sandbox.trouble("gpu-1", "driver-crash")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: any("CrashLoopBackOff" in str(pod["status"]) for pod in stage.pods(names.DRIVER_APP)))
    assert driver_log(stage, "gpu-1", "k8s-driver-manager")[-1] == f"driver {OLD} is unloaded"
    crash = [f"installing driver {NEW}: building its kernel modules", "could not build the kernel modules"]
    assert driver_log(stage, "gpu-1", "nvidia-driver-ctr") == crash
    assert driver_log(stage, "gpu-1", "nvidia-driver-ctr", previous="true") == crash
    stage.sandbox.trouble("gpu-1")
    await stage.until(lambda: stage.sandbox.machine("gpu-1").driver == NEW)


@on_stage(gpu_nodes=20, upgrade={"maxParallelUpgrades": 1})
async def test_an_edit_of_a_policy_that_concerns_the_fleet_is_a_line_for_each_step_and_not_for_each_node(stage: Stage) -> None:
    await stage.installed()
    labelled = [line for line in stage.log if line["msg"].startswith("Changed labels of 20 nodes")]
    assert (labelled[0]["count"], labelled[0]["nodes"]) == (20, [f"gpu-{number:02}" for number in range(1, 6)])
    before = len(stage.log)
    await stage.patch_policy("dcgmExporter/enabled", False)
    await stage.rest(30)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: any(line["msg"].startswith("Node starts its upgrade") for line in stage.log[before:]))
    lines = stage.log[before:]
    assert [line["msg"] for line in lines if "new driver" in line["msg"]] == [f"20 nodes need the new driver {NEW}"]
    assert [line["node"] for line in lines if line["msg"] == f"Node starts its upgrade to driver {NEW}"] == ["gpu-01"]
    assert len(lines) < 20, [line["msg"] for line in lines]


@on_stage(gpu_nodes=2)
async def test_a_driver_pod_that_crashes_again_and_again_is_a_line_and_not_one_for_each_restart(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "driver-crash")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: any(status["restartCount"] > 4 for pod in stage.pods(names.DRIVER_APP)
                                  for status in pod["status"].get("containerStatuses", ())), within=1500)
    (told,) = [line for line in stage.log if line["msg"] == "Node is held" and line["node"] == "gpu-1"]
    assert "which does not start" in told["reason"]


@on_stage(gpu_nodes=1)
async def test_a_status_that_is_written_is_told_by_the_name_of_its_object(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, retries=0)
    await stage.until(lambda: any(line["msg"] == "Wrote the status of a RolloutPolicy" for line in stage.log), within=60)
    told = {line["object"] for line in stage.log if line["msg"] == "Wrote the status of a RolloutPolicy"}
    assert told == {"RolloutPolicy/default"}
