"""What other controllers read on a node while it is out of service for an upgrade, and that nothing of it stays."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from gpuward.model.marks import NVSENTINEL_LABELS, SLURM_REASON
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from kubesandbox.store import Event
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_cleanup import cleanup, uninstall
from tests.journeys.test_nvidiadriver import driver_pods
from tests.journeys.test_removed import MODES, installed, remove
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_windows import ask

BOTH = {"nvsentinel": True, "slurm": True}


def told(stage: Stage, node: str) -> dict[str, str]:
    """Return what is on a node for others."""
    annotations = stage.node(node)["metadata"].get("annotations") or {}
    return {key: value for key, value in {**stage.labels(node), **annotations}.items()
            if key in (*NVSENTINEL_LABELS, SLURM_REASON, names.NVSENTINEL_OPTED_OUT)}


def watch(stage: Stage) -> list[str]:
    """Note each change of a node after which it is cordoned and not told of, or told of and not cordoned."""
    wrong: list[str] = []

    def look(event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if name.startswith("gpu-") and bool(event.obj["spec"].get("unschedulable")) is not bool(told(stage, name)):
            wrong.append(f"{name} at {stage.clock.now():.0f}: {told(stage, name)}")

    stage.sandbox.store.subscribe(look, "nodes")
    return wrong


@MODES
def test_others_are_told_for_as_long_as_a_node_is_out_of_service(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        await apply(stage, interop=BOTH)
        await stage.rest(5)
        wrong = watch(stage)
        await ask(stage, mode)
        await stage.until(lambda: bool(stage.cordons()))
        (node,) = stage.cordons()
        found = told(stage, node)
        assert {found[key] for key in NVSENTINEL_LABELS} == {"false"}
        assert found[SLURM_REASON].startswith("gpuward: driver upgrade to ")
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)
        assert (wrong, stage.cordons()) == ([], [])
        await remove(stage, mode)
        await stage.until(lambda: not driver_pods(stage), within=3600)
        await stage.rest(60)
        assert wrong == []

    scenario()


@on_stage(gpu_nodes=2)
async def test_what_others_have_written_stays_as_it_is(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop=BOTH)
    await stage.label("gpu-1", NVSENTINEL_LABELS[0], "true")
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {SLURM_REASON: "fans"}}})
    before = told(stage, "gpu-1")
    await stage.upgrade_to()
    await stage.until(lambda: stage.cordons() == ["gpu-1"])
    assert told(stage, "gpu-1") == before
    await stage.upgraded()
    assert told(stage, "gpu-1") == before
    assert told(stage, "gpu-2") == {}


@on_stage(gpu_nodes=2)
async def test_a_setting_that_is_taken_back_takes_what_it_told(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop=BOTH)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to()
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    assert set(told(stage, "gpu-1")) == {*NVSENTINEL_LABELS, SLURM_REASON, names.NVSENTINEL_OPTED_OUT}
    await edit(stage, interop={"nvsentinel": False})
    await stage.until(lambda: set(told(stage, "gpu-1")) == {SLURM_REASON})
    await edit(stage, interop=None)
    await stage.until(lambda: not told(stage, "gpu-1"))
    assert stage.cordons() == ["gpu-1"]


@on_stage(gpu_nodes=2)
async def test_a_cordon_that_somebody_lifts_is_told_of_no_more_and_an_uninstall_leaves_nothing(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop=BOTH)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to()
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    await uninstall(stage)
    await cleanup(stage, timeout=60)
    assert told(stage, "gpu-1") == {}
