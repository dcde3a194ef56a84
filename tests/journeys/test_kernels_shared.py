"""NVIDIA's operator makes one DaemonSet of precompiled drivers for a kernel, also where several operating systems have it."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from kubesandbox.sim.objects import is_ready
from tests.journeys.kernels import runs_kernel
from tests.journeys.stage import Object, Stage, on_stage
from tests.journeys.test_moves import at_rest, be_precompiled, images, uids, with_workloads
from tests.journeys.test_nvidiadriver import IS_DRIVER, driver_pods

KERNEL = "5.15.0-101-generic"
OURS = (names.DRIVER_OS, names.DRIVER_KERNEL)
NAME = f"{names.DRIVER_APP}-{KERNEL}-ubuntu22.04"


def driver_sets(stage: Stage) -> list[Object]:
    return [ds for ds in stage.sandbox.store.list("daemonsets.apps") if IS_DRIVER.items() <= ds["metadata"]["labels"].items()]


async def left_by_nvidias(stage: Stage) -> None:
    """Leave one DaemonSet for all nodes, of which the third has another operating system and the same kernel."""
    await runs_kernel(stage, "gpu-3", KERNEL)
    await be_precompiled(stage)
    await stage.kill_operator()
    found = driver_sets(stage)
    assert {ds["metadata"]["name"].rpartition("-")[2] for ds in found} == {"ubuntu22.04", "ubuntu24.04"}
    for ds in found:
        await stage.user.delete(resources.DAEMON_SETS, ds["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.until(lambda: not driver_pods(stage))
    kept = next(ds for ds in found if ds["metadata"]["name"] == NAME)
    meta, spec = kept["metadata"], kept["spec"]
    chosen, there = spec["template"]["spec"]["nodeSelector"], spec["template"]["metadata"]["labels"]
    for key in OURS:
        for labels in (chosen, there, meta["labels"]):
            labels.pop(key, None)
    chosen[names.NFD_KERNEL] = KERNEL
    stage.sandbox.apply({**kept, "metadata": {key: meta[key] for key in ("name", "namespace", "labels", "ownerReferences")},
                         "spec": {**spec, "selector": {"matchLabels": {"app": names.DRIVER_APP}}}})
    for node in stage.states():
        for key in OURS:
            await stage.label(node, key, None)
    await stage.until(lambda: len(driver_pods(stage)) == 3 and all(map(is_ready, driver_pods(stage))))


@pytest.mark.parametrize("placed", [False, True])
def test_a_daemon_set_for_several_systems_is_taken_over_without_a_restart(placed: bool) -> None:
    """The node may have been labelled for a DaemonSet of its own system before."""
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await left_by_nvidias(stage)
        if placed:
            await stage.label("gpu-3", names.DRIVER_OS, "ubuntu24.04")
            await stage.label("gpu-3", names.DRIVER_KERNEL, KERNEL)
        before = uids(stage)
        watcher = await with_workloads(stage)
        await stage.restart_operator()
        await stage.until(lambda: stage.policy_status().get("state") == "ready")
        await stage.until(lambda: [ds["metadata"]["name"] for ds in driver_sets(stage)] == [NAME])
        assert uids(stage) == before
        await stage.patch_policy("driver/version", "590")
        await stage.until(lambda: watcher.torn or all("590" in (images(stage, node) or [""])[0] for node in stage.states()), 3600)
        await at_rest(stage, watcher)
        assert images(stage, "gpu-3")[0].endswith("ubuntu24.04"), "it may have the driver of its own system now"
        assert stage.most_in_progress == 1

    story()
