"""Admission webhooks that change what gpuward writes, as policy engines do with every workload."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from gpuward import names
from gpuward.errors import BadRequest
from gpuward.kube import resources
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.looking import condition_of, row_of
from tests.journeys.stage import NEW, OLD, Object, Stage, on_stage
from tests.journeys.test_images import BAD, WithRegistry
from tests.journeys.test_nvidiadriver import make, nvidia_driver, set_driver
from tests.journeys.test_withheld import torn, with_notebooks

Mutation = Callable[[Object], object]
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
PROXY = {"name": "proxy", "image": "registry.example/proxy:1.9.2"}


def proxy_first(pod: Object) -> None:
    pod["containers"].insert(0, PROXY)


def from_a_mirror(pod: Object) -> None:
    for container in (*pod["initContainers"], *pod["containers"]):
        container["image"] = container["image"].replace("nvcr.io/", "mirror.example/")


def tolerated(pod: Object) -> None:
    pod["tolerations"].append({"key": "spot", "operator": "Exists"})


def behind(stage: Stage, mutation: Mutation) -> list[str]:
    """Let a webhook change the pods of the driver's DaemonSet with every write of it; return the methods of these."""
    return changed(stage, lambda spec: mutation(spec["template"]["spec"]))


def changed(stage: Stage, mutation: Mutation, *, app: str = names.DRIVER_APP, takes_dry_runs: bool = True) -> list[str]:
    """Let a webhook change a DaemonSet of drivers with every write of it; return the methods of these."""
    written: list[str] = []

    def webhook(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        body = json.loads(request.body) if request.method in ("POST", "PUT") and "/daemonsets" in request.path else {}
        if not body.get("metadata", {}).get("name", "").startswith(app):
            return proceed()
        tried = "dryRun" in request.query
        if tried and not takes_dry_runs:
            return refusal(BadRequest("admission webhook \"a.example\" does not support dry run"))
        written.extend([] if tried else [request.method])
        mutation(body["spec"])
        object.__setattr__(request, "body", msgspec.json.encode(body))
        return proceed()

    stage.transport.interfere = webhook
    return written


@pytest.mark.parametrize("mutation", [proxy_first, from_a_mirror, tolerated])
def test_a_mutated_driver_is_written_once_and_rolled_out(mutation: Mutation) -> None:
    @on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%"})
    async def story(stage: Stage) -> None:
        written = behind(stage, mutation)
        await stage.installed()
        for node in stage.states():
            stage.run_pod(f"training-{node}", node, owned=True)
        await stage.rest(900)
        assert written == ["POST"]
        await stage.restart_operator()
        await stage.rest(900)
        assert (len(stage.workload_pods()), len(written)) == (2, 2)
        await stage.upgrade_to()
        await stage.upgraded()
        assert stage.cordons() == []
        assert (await row_of(stage, "gpu-1")).driver == NEW

    story()


@on_stage(gpu_nodes=2, kind=WithRegistry)
async def test_the_image_of_the_driver_is_asked_for_and_not_that_of_a_container_put_before_it(stage: Stage) -> None:
    behind(stage, proxy_first)
    await stage.installed()
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, "cluster-policy", {"spec": {"driver": {"version": BAD}}})
    await stage.until(lambda: {stage.hold(node) for node in stage.states()} == {"ImageMissing"}, 60)
    await stage.rest(600)
    assert (stage.drivers(), stage.cordons()) == ([OLD], [])


def rolled(spec: Object) -> None:
    spec["updateStrategy"] = ROLLING


@pytest.mark.parametrize("mode", ["plain", "nvidiadriver"])
def test_no_driver_is_replaced_at_once_by_a_strategy_that_a_webhook_sets(mode: str) -> None:
    """The write that brings another driver would have all driver pods replaced by the controller of their DaemonSet."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        if mode == "nvidiadriver":
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("default", default=True))
        await stage.installed()
        await with_notebooks(stage)
        (app,) = {pod["metadata"]["labels"]["app"] for pod in stage.pods() if pod["metadata"]["labels"].get(
            names.COMPONENT_LABEL) == names.DRIVER_COMPONENT}
        written = changed(stage, rolled, app=app)
        if mode == "nvidiadriver":
            await set_driver(stage, "default", {"version": NEW})
        else:
            await stage.upgrade_to()
        await stage.rest(600)
        assert (written, torn(stage), stage.drivers(), stage.cordons()) == ([], [], [OLD], [])
        status, reason, message = condition_of(stage)
        assert (status, reason) == ("False", "DriverNotApplied")
        assert "a webhook makes RollingUpdate of its updateStrategy OnDelete" in message
        stage.transport.interfere = lambda request, proceed: proceed()
        await stage.upgraded()
        assert torn(stage) == []

    story()


@on_stage(gpu_nodes=2)
async def test_a_webhook_that_takes_no_dry_runs_keeps_no_driver_away(stage: Stage) -> None:
    changed(stage, lambda spec: tolerated(spec["template"]["spec"]), takes_dry_runs=False)
    await stage.installed()
    await stage.upgrade_to()
    await stage.upgraded()


@pytest.mark.parametrize("deletion", ["Background", "Orphan"])
def test_no_driver_is_replaced_at_once_as_a_webhook_changes_the_strategy_with_a_mere_annotation(deletion: str) -> None:
    """Its pods are of the earlier driver while their nodes wait, and what becomes of its NVIDIADriver is noted on it."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("default", default=True))
        await stage.installed()
        for node in stage.states():
            await stage.deploy(f"training-{node}", node=node, max_unavailable=0)
        await set_driver(stage, "default", {"version": NEW})
        await stage.until(lambda: {stage.hold(node) for node in stage.states()} == {"BudgetBlocks"})
        pods = {pod["metadata"]["uid"] for pod in stage.pods() if "driver" in pod["metadata"]["name"]}

        def webhook(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if request.method in ("PATCH", "PUT") and "/daemonsets/nvidia-gpu-driver" in request.path:
                body = json.loads(request.body)
                body.setdefault("spec", {})["updateStrategy"] = ROLLING
                object.__setattr__(request, "body", msgspec.json.encode(body))
            return proceed()

        stage.transport.interfere = webhook
        await stage.user.delete(resources.NVIDIA_DRIVERS, "default", propagation=deletion)
        await stage.rest(300)
        assert {pod["metadata"]["uid"] for pod in stage.pods() if "driver" in pod["metadata"]["name"]} == pods
        assert (torn(stage), stage.cordons()) == ([], [])
        if deletion == "Background":
            assert {stage.hold(node) for node in stage.states()} == {"DeletionUnseen"}
            stage.transport.interfere = lambda request, proceed: proceed()
            await stage.until(lambda: {stage.hold(node) for node in stage.states()} == {"BudgetBlocks"})

    story()
