"""What `kubectl logs` shows of the GPU stack's pods: what their simulated programs did."""

from __future__ import annotations

from gpuward import names
from kubesandbox.messages import Answer, Request
from tests.journeys.stage import NEW, OLD, Stage, on_stage


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
