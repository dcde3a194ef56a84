"""Typing errors that no schema finds: a label that nodes have not got, a value that asks for nothing. People are told."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.cli.plan import as_json
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import explanation_of, reason_of, screen_of, status_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_driver_truth import ONE, rollout
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE
from tests.journeys.test_plan import plan_of
from tests.journeys.test_removed import MODES, installed
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_windows import ask, window

NO_DOMAIN = "none of the 3 GPU nodes has the label rak, by which domains of the RolloutPolicy go: each is a domain of its own"
UNBOUND = "maxUnavailable 100% and maxParallelUpgrades 0 let all 3 GPU nodes be out of service at once"


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_domains_by_a_label_that_no_node_has_are_warned_of(stage: Stage) -> None:
    """They bound nothing, and kept the warning away that all nodes may be out of service at once."""
    await stage.installed()
    await apply(stage, domains={"key": "rak", "max": 1})
    await stage.rest(5)
    assert (await status_of(stage))["warnings"] == [NO_DOMAIN, UNBOUND]
    assert f"warning: {NO_DOMAIN}" in await screen_of(stage)
    assert as_json(await plan_of(stage, NEW))["warnings"] == [NO_DOMAIN, UNBOUND]
    await stage.label("gpu-1", "rak", "r1")
    await stage.rest(5)
    assert (await status_of(stage))["warnings"] == []


@on_stage(gpu_nodes=3)
async def test_domains_that_discovery_names_are_not_missed_before_drivers_run(stage: Stage) -> None:
    await apply(stage, domains={"key": "nvidia.com/gpu.clique", "mode": "Whole", "max": 1})
    await stage.rest(3)
    assert (await status_of(stage))["warnings"] == []
    await stage.installed()
    await stage.rest(5)
    (told,) = (await status_of(stage))["warnings"]
    assert told.startswith("none of the 3 GPU nodes has the label nvidia.com/gpu.clique,")


@on_stage(gpu_nodes=2)
async def test_a_request_by_another_value_than_true_is_warned_of(stage: Stage) -> None:
    await stage.installed()
    await stage.user.patch_merge(resources.NODES, "gpu-2", {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "True"}}})
    await stage.rest(60)
    assert (await status_of(stage))["warnings"] == [
        f"no upgrade of gpu-2 is asked for by the annotation {names.UPGRADE_REQUESTED}=True: only `true` asks for one"]
    (note,) = (await explanation_of(stage, "gpu-2")).notes
    assert note == (f"the annotation {names.UPGRADE_REQUESTED}=True asks for no upgrade: only `true` does; "
                    f"`kubectl annotate node gpu-2 {names.UPGRADE_REQUESTED}=true --overwrite` sets that")


@on_stage(gpu_nodes=2)
async def test_a_node_without_operands_names_the_label_that_people_set(stage: Stage) -> None:
    """It named a label of gpuward's own that was missing, which people then set by hand, in vain."""
    await stage.installed()
    await stage.label("gpu-1", names.DEPLOY_OPERANDS, "false")
    await stage.rest(60)
    told = reason_of(await explanation_of(stage, "gpu-1"))
    assert told == f"its label {names.DEPLOY_OPERANDS}=false says that it is to have nothing of the GPU stack"


@MODES
@pytest.mark.parametrize("state", [State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED])
def test_a_driver_label_that_is_mistyped_in_mid_upgrade_holds_no_other_node(mode: str, state: State) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await installed(stage, mode, out=2)
        (old,) = stage.drivers()
        await ask(stage, mode)
        await stage.until(lambda: state in stage.states().values())
        node = next(name for name, found in stage.states().items() if found == state)
        await stage.label(node, names.DEPLOY_DRIVER, "ture")
        others = [name for name in stage.states() if name != node]
        await stage.until(lambda: stage.state(node) == State.FAILED, within=3600)
        await stage.until(lambda: all(stage.states()[name] == State.DONE and stage.driver(name) != old for name in others), 3600)
        assert stage.hold(node) == "DriverLabelUnknown"
        await stage.label(node, names.DEPLOY_DRIVER, "true")
        await stage.until(lambda: rollout(stage)[:2] == ("True", "UpToDate"), within=3600)
        assert (old in stage.drivers(), stage.cordons()) == (False, [])

    story()


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_driver_label_that_is_mistyped_makes_no_driver_better_that_fails(stage: Stage) -> None:
    """The first node failed before that label was mistyped: the others still keep their drivers."""
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.FAILED in stage.states().values(), within=3600)
    node = next(name for name, found in stage.states().items() if found == State.FAILED)
    await stage.label(node, names.DEPLOY_DRIVER, "flase")
    await stage.rest(3 * 3600)
    assert [name for name in stage.states() if stage.driver(name) != OLD] == [node]
    assert rollout(stage)[1] == "NewDriverFails"


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_such_a_label_that_is_put_right_holds_no_other_node(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values())
    node = next(name for name, found in stage.states().items() if found == State.POD_RESTART_REQUIRED)
    await stage.label(node, names.DEPLOY_DRIVER, "ture")
    await apply(stage, windows=[window(36000, 72000)])
    await stage.until(lambda: stage.state(node) == State.FAILED, within=3600)
    await stage.label(node, names.DEPLOY_DRIVER, "true")
    said = set()
    while stage.state(node) != State.DONE:
        await stage.rest(1)
        said |= {stage.hold(name) for name in stage.states() if name != node}
    assert said == {"WindowShut"}
