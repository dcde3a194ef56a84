"""Upgrades are left to people, together with another driver, while a node cannot be told so: the driver is applied all the same.

The annotation that gpuward empties the nodes has to go first, so that the driver manager empties them itself. One node that keeps
it must not keep the DaemonSet as it was for ever.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuward import errors, names
from gpuward.kube import resources
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.looking import condition_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import make, nvidia_driver
from tests.journeys.test_withheld import set_driver, with_notebooks

BY_HAND = {"version": NEW, "upgradePolicy": {"autoUpgrade": False}}


def is_applied(stage: Stage) -> bool:
    images = [container["image"] for ds in stage.sandbox.store.list("daemonsets.apps") if "driver" in ds["metadata"]["name"]
              for container in ds["spec"]["template"]["spec"]["containers"]]
    return all(NEW in image for image in images)


@on_stage(gpu_nodes=3)
async def test_a_node_that_is_held_in_its_deletion_stops_no_edit(stage: Stage) -> None:
    await stage.installed()
    await with_notebooks(stage)
    await stage.user.patch_merge(resources.NODES, "gpu-3", {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
    await stage.user.delete(resources.NODES, "gpu-3")
    await stage.rest(5)
    await set_driver(stage, BY_HAND)
    await stage.until(lambda: is_applied(stage))


@pytest.mark.parametrize("error", [errors.Forbidden, errors.ServerError])
@pytest.mark.parametrize("mode", ["plain", "nvidiadriver"])
def test_a_node_that_may_not_be_changed_is_named_and_waited_for_only_so_long(error: type[errors.ApiError], mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        if mode == "nvidiadriver":
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("default", default=True))
        await stage.installed()

        def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if request.method == "PATCH" and request.path == "/api/v1/nodes/gpu-1":
                return refusal(error("admission webhook denied the request: node is frozen"))
            return proceed()

        stage.transport.interfere = interfere
        if mode == "nvidiadriver":
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", {"spec": BY_HAND})
        else:
            await set_driver(stage, BY_HAND)
            await stage.until(lambda: f"gpu-1 has yet to lose the annotation {names.UPGRADE_ENABLED}" in condition_of(stage)[2])
            assert not is_applied(stage)
        await stage.until(lambda: is_applied(stage), within=1800)

    story()


@on_stage(gpu_nodes=3)
async def test_a_busy_node_that_is_said_to_have_no_gpu_is_told_too(stage: Stage) -> None:
    await stage.installed()
    await with_notebooks(stage)
    gone = {key: None for key in stage.labels("gpu-1") if key in names.NFD_GPU_LABELS}
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"labels": gone | {names.GPU_PRESENT: "false"}}})
    await stage.rest(60)
    await set_driver(stage, BY_HAND)
    await stage.until(lambda: is_applied(stage))
    assert names.UPGRADE_ENABLED not in stage.node("gpu-1")["metadata"]["annotations"]
