"""What `gpuward explain` says where a kubelet ends pods: those that it evicts or refuses, and those that a finalizer outlives."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.sim.kubelet import TERMINATION_SECONDS
from tests.journeys.stage import Object, Stage, on_stage
from tests.journeys.test_explained import explained


@on_stage(gpu_nodes=1)
async def test_no_finalizer_is_blamed_while_a_pod_has_its_grace_period_to_end(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", node="gpu-1")
    (pod,) = stage.workload_pods("train")
    slow = {"finalizers": ["batch.kubernetes.io/job-tracking", "example.com/save"], "annotations": {TERMINATION_SECONDS: "25"}}
    await stage.user.patch_merge(resources.PODS, pod["metadata"]["name"], {"metadata": slow}, WORKLOAD_NAMESPACE)
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "Evicting")
    await stage.rest(10)
    told = await explained(stage, "gpu-1")
    assert "example.com/save" not in told
    assert "pods have their grace periods to end" in told
    await stage.rest(30)
    assert "stays until its finalizer example.com/save is removed" in await explained(stage, "gpu-1")


@on_stage(gpu_nodes=1)
async def test_an_evicted_driver_pod_is_told_with_the_words_of_its_kubelet_and_what_the_node_is_short_of(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    for _ in range(4):  # from the second failed pod on, the DaemonSet's controller takes its time
        await stage.until(lambda: stage.hold("gpu-1") in ("DriverStarting", "DriverFailing") and any(
            pod["status"].get("phase") == "Running" for pod in stage.pods(names.DRIVER_APP, "gpu-1")))
        stage.sandbox.evict_for_shortage(names.DEFAULT_NAMESPACE, stage.driver_pod("gpu-1")["metadata"]["name"])
    stage.sandbox.store.patch_status("nodes", None, "gpu-1", press)
    await stage.rest(1)
    pod = stage.driver_pod("gpu-1")["metadata"]["name"]
    told = await explained(stage, "gpu-1")
    assert f"  pod {pod}: Evicted\n    The node was low on resource: ephemeral-storage." in told
    assert ("  its condition DiskPressure is True since 2026-01-01T00:00:00Z: KubeletHasDiskPressure: kubelet has disk pressure; "
            "meanwhile its kubelet may evict pods, refuse new ones and fail to pull images") in told


def press(node: Object) -> None:
    """Let a node tell that its disk is nearly full."""
    short = {"status": "True", "reason": "KubeletHasDiskPressure", "message": "kubelet has disk pressure",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = node["status"]["conditions"]
    node["status"]["conditions"] = [{**one, **short} if one["type"] == "DiskPressure" else one for one in conditions]
