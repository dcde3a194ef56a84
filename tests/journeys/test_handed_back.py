"""What people do before NVIDIA's operator takes a cluster back, as docs/move-from-nvidia.md has them do it."""

from __future__ import annotations

import copy

import pytest

from gpuward import names
from gpuward.errors import Invalid
from gpuward.kube import resources
from tests.journeys.kernels import runs_kernel
from tests.journeys.stage import Object, Stage, on_stage
from tests.journeys.test_kernels_shared import KERNEL, driver_sets
from tests.journeys.test_moves import be_precompiled, uids, with_workloads
from tests.journeys.test_nvidiadriver import make, nvidia_driver


def as_nvidias(ds: Object) -> Object:
    """Return a DaemonSet as NVIDIA's operator would write it."""
    made = copy.deepcopy(ds)
    chosen = made["spec"]["template"]["spec"]["nodeSelector"]
    del chosen[names.DRIVER_OS]
    chosen[names.NFD_KERNEL] = chosen.pop(names.DRIVER_KERNEL)
    made["spec"]["selector"] = {"matchLabels": {"app": names.DRIVER_APP}}
    return made


@on_stage(gpu_nodes=3)
async def test_precompiled_drivers_for_one_kernel_run_on(stage: Stage) -> None:
    await runs_kernel(stage, "gpu-3", KERNEL)
    await stage.label("gpu-3", names.NFD_OS_VERSION, "22.04")
    await be_precompiled(stage)
    watcher, before = await with_workloads(stage), uids(stage)
    await stage.kill_operator()
    (ds,) = driver_sets(stage)
    with pytest.raises(Invalid, match="field is immutable"):
        await stage.user.replace(resources.DAEMON_SETS, as_nvidias(ds))
    meta = ds["metadata"]
    assert {"app": names.DRIVER_APP, names.PRECOMPILED: "true"}.items() <= meta["labels"].items()
    await stage.user.delete(resources.DAEMON_SETS, meta["name"], names.DEFAULT_NAMESPACE, propagation="Orphan")
    await stage.rest(10)
    made = as_nvidias(ds)
    made["metadata"] = {key: meta[key] for key in ("name", "namespace", "labels", "ownerReferences")}
    stage.sandbox.apply(made)
    await stage.rest(120)
    assert (watcher.torn, uids(stage)) == ([], before)


@on_stage(gpu_nodes=2)
async def test_a_daemon_set_that_nvidias_operator_would_delete_is_older_than_its_nvidiadriver(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default", propagation="Orphan")
    await stage.rest(10)
    await make(stage, nvidia_driver("default", default=True))
    (driver,) = stage.sandbox.store.list("nvidiadrivers.nvidia.com")
    await stage.until(lambda: driver_sets(stage)[0]["metadata"].get("ownerReferences"))
    (ds,) = driver_sets(stage)
    assert ds["metadata"]["ownerReferences"][0]["uid"] == driver["metadata"]["uid"]
    assert ds["metadata"]["creationTimestamp"] < driver["metadata"]["creationTimestamp"]
