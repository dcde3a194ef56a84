"""What `gpuward explain` passes on of the containers in which a node's pods are stuck."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

from gpuward import errors, names
from gpuward.cli.explain import show
from gpuward.cli.leader import Leader
from gpuward.cli.podwords import words_of
from gpuward.kube.http.client import Client
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.looking import explanation_of, looking
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_status_screen import delete_pods, shown

MANAGER = "init container k8s-driver-manager (1 of 1)"


async def told(stage: Stage, node: str = "gpu-1") -> list[str]:
    """Return what `gpuward explain` prints of what a node's pods say."""
    found, out = await explanation_of(stage, node), io.StringIO()
    with redirect_stdout(out):
        show(found, Leader("operator here", found.now))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    if "WHAT ITS PODS SAY" not in lines:
        return []
    lines = lines[lines.index("WHAT ITS PODS SAY") + 1:]
    return lines[:lines.index("")] if "" in lines else lines


@on_stage(gpu_nodes=1)
async def test_a_driver_that_crashes_is_told_with_how_it_ended_and_its_last_lines(stage: Stage) -> None:
    await stage.installed()
    assert await told(stage) == []
    stage.sandbox.trouble("gpu-1", "driver-crash")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "CrashLoopBackOff" in str(stage.pods(names.DRIVER_APP)))
    first, *rest = await told(stage)
    pod = stage.driver_pod("gpu-1")["metadata"]["name"]
    assert first.startswith(f"  container nvidia-driver-ctr of pod {pod}: CrashLoopBackOff, 1 restart")
    assert first.endswith("its last exit code was 1")
    assert rest == [
        "    could not build the kernel modules",
        "    the end of its log:",
        f"    | installing driver {NEW}: building its kernel modules",
        "    | could not build the kernel modules",
    ]


@on_stage(gpu_nodes=1)
async def test_a_step_of_the_validator_that_hangs_is_told(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "validator-hangs")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED)
    await stage.rest(60)
    first, *rest = await told(stage)
    assert first.startswith("  init container driver-validation (1 of ")
    assert first.endswith(": runs, and has not ended")
    assert "    | driver-validation: waiting for a driver that is loaded and ready" in rest
    assert "    | driver-validation: running the check, and waiting for its result" in rest


@on_stage(gpu_nodes=1, upgrade={"autoUpgrade": False})
async def test_a_driver_manager_that_waits_says_for_which_pod(stage: Stage) -> None:
    await stage.until(lambda: stage.policy_status().get("state") == "ready")
    await stage.deploy("train", node="gpu-1")
    stage.set_budget("train", 0)
    await stage.upgrade_to(NEW)
    stage.sandbox.store.delete("pods", names.DEFAULT_NAMESPACE, stage.driver_pod("gpu-1")["metadata"]["name"])
    await stage.rest(120)
    first, *rest = await told(stage)
    assert first.startswith(f"  {MANAGER} of pod nvidia-driver-daemonset-")
    assert rest[0] == "    the end of its log:"
    assert any(line.startswith("    | waiting for GPU pods to go: ml/train-") for line in rest)
    assert "disruption budget" in rest[-1]
    assert stage.driver("gpu-1") == OLD


@on_stage(gpu_nodes=1)
async def test_a_log_that_may_not_be_read_is_one_line_and_the_rest_is_told(stage: Stage) -> None:
    def refuses(request: Request, proceed: object) -> Answer | Stream:
        if request.path.endswith("/log"):
            return refusal(errors.Forbidden("pods/log is forbidden"))
        assert callable(proceed)
        answer: Answer | Stream = proceed()
        return answer

    await stage.installed()
    stage.sandbox.trouble("gpu-1", "driver-crash")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "CrashLoopBackOff" in str(stage.pods(names.DRIVER_APP)))
    transport = stage.sandbox.transport()
    transport.interfere = refuses
    async with looking(stage) as picture:
        (said,) = await words_of(Client(transport), picture.snapshot, "gpu-1")
    assert said.message == "could not build the kernel modules"
    assert (said.log, said.unread) == ((), "you may not read it (the right to get pods/log is missing)")


@on_stage(gpu_nodes=1)
async def test_what_a_terminal_obeys_is_shown_and_a_long_line_takes_one_line(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "driver-crash")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "CrashLoopBackOff" in str(stage.pods(names.DRIVER_APP)))
    pod = stage.driver_pod("gpu-1")["metadata"]["name"]
    stage.sandbox.api.logs.sources[names.DEFAULT_NAMESPACE, pod] = lambda: "\x1b[2J\x1b]0;evil\x07\n" + "x" * 5000 + "\n"
    cleared, long = (await told(stage))[-2:]
    assert cleared == r"    | \x1b[2J\x1b]0;evil\x07"
    assert long.startswith("    | xxx")
    assert len(long) < 300


@on_stage(gpu_nodes=1)
async def test_a_container_that_runs_and_is_not_ready_is_told_in_one_clause(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "validator-hangs")
    await delete_pods(stage, "nvidia-operator-validator", "gpu-1")
    await stage.rest(60)
    lines = "\n".join(await shown(stage))
    assert "gpu-1: init container driver-validation (1 of 4) runs, and has not ended" in lines
