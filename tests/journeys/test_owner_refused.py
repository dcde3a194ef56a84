"""A node that may not be given its NVIDIADriver: it is in the totals and says why, and holds up no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuward import errors, names
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.looking import condition_of, headline_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver
from tests.journeys.test_withheld import set_driver, torn, with_notebooks

ANSWERS = {
    "forbidden": errors.Forbidden("policy X says no"),
    "invalid": errors.Invalid("policy X says no"),
    "conflict": errors.Conflict("the object has been modified"),
    "hangs": errors.ServerError("timed out"),
}


def refuse(stage: Stage, how: str) -> None:
    """Refuse every change of gpu-1 from now on."""
    def concerns(request: Request) -> bool:
        return (request.method, request.path) == ("PATCH", "/api/v1/nodes/gpu-1")

    def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        return refusal(ANSWERS[how]) if concerns(request) else proceed()

    stage.transport.interfere = interfere
    if how == "hangs":
        stage.transport.delay = lambda request: 29.0 if concerns(request) else 0.0


@pytest.mark.parametrize("how", sorted(ANSWERS))
@pytest.mark.parametrize("version", [OLD, NEW])
def test_it_keeps_the_condition_from_being_true(how: str, version: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        refuse(stage, how)
        await set_driver(stage, {"useNvidiaDriverCRD": True})
        await make(stage, nvidia_driver("default", default=True, version=version))
        await stage.until(lambda: stage.driver("gpu-2") == version and stage.state("gpu-2") == State.DONE
                          and names.DRIVER_OWNER in stage.labels("gpu-2"))
        await stage.rest(900)
        status, reason, message = condition_of(stage)
        assert (status, reason) != ("True", "UpToDate")
        assert "1 of 2 nodes up to date" in message
        why = "WriteRefused" if how == "forbidden" else "WriteUnanswered"
        await stage.until(lambda: stage.hold("gpu-1") == why, within=60)
        assert torn(stage) == []

    story()


@on_stage(gpu_nodes=3)
async def test_one_whose_owner_somebody_removes_is_counted(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    refuse(stage, "forbidden")
    await stage.label("gpu-1", names.DRIVER_OWNER, None)
    await stage.rest(900)
    assert not driver_pods(stage, "gpu-1")
    assert condition_of(stage)[1] != "UpToDate"
    assert "2 of 3" in await headline_of(stage)
    assert stage.hold("gpu-1") == "WriteRefused"


@pytest.mark.parametrize("refuses", [True, False])
def test_no_other_node_keeps_its_cordon_for_it(refuses: bool) -> None:
    """One that no NVIDIADriver has is sent back with the driver that nobody has touched, whatever becomes of the others."""
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.installed()
        await stage.deploy("work", 1, node="gpu-3", max_unavailable=1)
        for node in ("gpu-1", "gpu-2"):
            await stage.label(node, names.UPGRADE_SKIP, "true")
        stage.set_budget("work", 1)
        await stage.upgrade_to(NEW)
        stage.sandbox.store.subscribe(lambda event: _close(stage, event.obj["metadata"]["labels"]), "nodes")
        await stage.until(lambda: stage.state("gpu-3") == State.POD_DELETION_REQUIRED)
        for node in ("gpu-1", "gpu-2"):
            await stage.label(node, names.UPGRADE_SKIP, None)
        if refuses:
            refuse(stage, "forbidden")
        await make(stage, nvidia_driver("a", {"maxUnavailable": 0}, version=NEW))
        await set_driver(stage, {"useNvidiaDriverCRD": True})
        await stage.until(lambda: not stage.cordons(), within=1800)
        await stage.rest(300)
        assert stage.cordons() == []

    story()


def _close(stage: Stage, labels: dict[str, str]) -> None:
    if labels.get(names.UPGRADE_STATE) == State.POD_DELETION_REQUIRED:
        stage.set_budget("work", 0)


@on_stage(gpu_nodes=3)
async def test_a_new_driver_that_nobody_can_validate_any_more_keeps_no_cordon(stage: Stage) -> None:
    """The switch to NVIDIADrivers leaves its node to nobody, with a driver pod that is ready and that nothing replaces."""
    await label_pools(stage, a="gpu-1 gpu-2")
    await stage.installed()
    for node in ("gpu-1", "gpu-2"):
        await stage.label(node, names.UPGRADE_SKIP, "true")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-3") == State.VALIDATION_REQUIRED)
    for node in ("gpu-1", "gpu-2"):
        await stage.label(node, names.UPGRADE_SKIP, None)
    await make(stage, nvidia_driver("a", {"maxUnavailable": 0}, version=NEW))
    await set_driver(stage, {"useNvidiaDriverCRD": True})
    await stage.until(lambda: names.DRIVER_OWNER in stage.labels("gpu-1") and not stage.cordons())
    await stage.rest(600)
    assert stage.cordons() == []
    assert (stage.state("gpu-3"), stage.driver("gpu-3"), stage.hold("gpu-3")) == ("", NEW, "NotSelected")
    await make(stage, nvidia_driver("rest", default=True, version=NEW))
    await stage.until(lambda: stage.state("gpu-3") == State.DONE and not stage.cordons())
    assert torn(stage) == []
