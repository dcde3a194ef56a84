"""An edit that no operator has taken up: what is told of nodes is about the driver that was asked for before, and says so."""

from __future__ import annotations

from gpuward import errors
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.looking import explanation_of, screen_of, status_of
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, label_pools, make, nvidia_driver, set_driver

NOT_YET = "the operator has not taken up the last edit of"


def full(request: Request, proceed: Proceed) -> Answer | Stream:
    """Refuse every write, as an API server does whose database is full."""
    if request.method == "GET":
        return proceed()
    error = errors.ApiError("etcdserver: mvcc: database space exceeded")
    return messages.answer(messages.status_object(error), error.status)


@on_stage(gpu_nodes=2)
async def test_it_is_told_where_all_writes_of_the_operator_are_refused(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    assert (await status_of(stage))["warnings"] == []
    stage.transport.interfere = full
    await stage.upgrade_to(NEW)
    await stage.rest(600)
    assert stage.drivers() == [OLD]
    (warning,) = (await status_of(stage))["warnings"]
    assert warning.startswith(f"{NOT_YET} ClusterPolicy cluster-policy yet (generation 2, it speaks of 1)")
    assert any(line.startswith(f"warning: {NOT_YET}") for line in await screen_of(stage))
    assert (await explanation_of(stage, "gpu-1")).notes[0] == warning
    stage.transport.interfere = lambda request, proceed: proceed()
    await stage.upgraded(NEW)
    await stage.rest(60)
    assert (await status_of(stage))["warnings"] == []


@on_stage(gpu_nodes=2)
async def test_it_is_told_where_no_operator_runs_also_of_an_nvidiadriver(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a", ALL_AT_ONCE))
    await stage.installed()
    await stage.rest(60)
    await stage.kill_operator()
    await set_driver(stage, "a", {"version": NEW})
    told = (await status_of(stage))["warnings"]
    assert [one.startswith(f"{NOT_YET} NVIDIADriver a yet") for one in told if NOT_YET in one] == [True]
