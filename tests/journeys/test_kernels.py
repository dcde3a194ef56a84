"""One kernel under two operating systems, where drivers are precompiled: as Ubuntu's releases have it, or by a wrong label."""

from __future__ import annotations

from gpuward import names
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_moves import images
from tests.journeys.test_nvidiadriver import make, nvidia_driver, set_driver

RIGHT = [f"gpu-{number}" for number in range(1, 6)]
WRONG = "gpu-6"


async def mislabelled(stage: Stage) -> None:
    """Let discovery say of one node that it runs Debian, for which there are no images."""
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image="*-debian12"))
    await stage.label(WRONG, names.NFD_OS_ID, "debian")
    await stage.label(WRONG, names.NFD_OS_VERSION, "12")


def run(stage: Stage, nodes: list[str], version: str) -> bool:
    """Tell whether nodes are done, and have a precompiled driver of a version."""
    return all(f"driver:{version}-" in "".join(images(stage, node)) and stage.state(node) == State.DONE for node in nodes)


async def goes_on_without(stage: Stage) -> None:
    """See that the one node alone is held, and says why, until its labels are right."""
    await stage.until(lambda: run(stage, RIGHT, "590"), within=7200)
    await stage.until(lambda: stage.hold(WRONG) == "DriverFailing", within=7200)
    assert images(stage, WRONG)[0].endswith("-debian12")
    assert {node: stage.hold(node) for node in RIGHT} == dict.fromkeys(RIGHT, "")
    await stage.label(WRONG, names.NFD_OS_ID, "ubuntu")
    await stage.label(WRONG, names.NFD_OS_VERSION, "22.04")
    await stage.until(lambda: run(stage, [*RIGHT, WRONG], "590"), within=7200)
    assert images(stage, WRONG)[0].endswith("-ubuntu22.04")
    assert stage.cordons() == []


@on_stage(gpu_nodes=6)
async def test_a_wrong_operating_system_on_one_node_holds_that_node_alone(stage: Stage) -> None:
    await stage.installed()
    await mislabelled(stage)
    await stage.patch_policy("driver/version", "580")
    await stage.patch_policy("driver/usePrecompiled", True)
    await stage.until(lambda: run(stage, RIGHT, "580"), within=7200)
    await stage.patch_policy("driver/version", "590")
    await goes_on_without(stage)


@on_stage(gpu_nodes=6)
async def test_it_holds_that_node_alone_under_an_nvidia_driver_too(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True, version="580", usePrecompiled=True))
    await stage.installed()
    await mislabelled(stage)
    await set_driver(stage, "default", {"version": "590"})
    await goes_on_without(stage)
