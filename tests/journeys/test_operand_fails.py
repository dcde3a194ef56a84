"""A node whose driver is up to date and on which another part of the GPU stack fails: what people are told."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest

from gpuward import names
from gpuward.cli.explain import refused_pods, show
from gpuward.cli.leader import Leader
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_ready
from tests.journeys.looking import condition_of, explanation_of, headline_of, looking, screen_of, status_of
from tests.journeys.stage import NEW, Stage, blind_to_events, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, label_pools, make, nvidia_driver
from tests.journeys.test_status_screen import delete_pods, shown
from tests.journeys.test_withheld import set_driver

PLUGIN = "nvidia-device-plugin-daemonset"


async def explained(stage: Stage, node: str = "gpu-1") -> dict[str, str]:
    """Return the lines of `gpuward explain` by their titles; `HELP` has what would help."""
    found, out = await explanation_of(stage, node), io.StringIO()
    with redirect_stdout(out):
        show(found, Leader("operator here", found.now))
    lines = out.getvalue().splitlines()
    told = {line.split()[0]: line for line in lines if line and not line.startswith(" ")}
    at = lines.index("WHAT WOULD HELP") if "WHAT WOULD HELP" in lines else len(lines)
    return told | {"HELP": "\n".join(lines[at + 1:]), "ALL": out.getvalue()}


async def installed(stage: Stage, mode: str) -> None:
    if mode == "NVIDIADriver":
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE))
    if mode == "late NVIDIADriver":
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.rest(120)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE, default=True))
    if mode == "precompiled":
        await set_driver(stage, {"usePrecompiled": True, "version": "595"})
    await stage.installed()


@pytest.mark.parametrize("mode", ["ClusterPolicy", "precompiled", "NVIDIADriver", "late NVIDIADriver", "paused"])
def test_a_device_plugin_that_crashes_on_a_node_that_is_done_is_told_of(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        if mode == "paused":
            await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        stage.sandbox.trouble("gpu-1", "device-plugin-crash")
        await delete_pods(stage, PLUGIN, "gpu-1")
        await stage.until(lambda: "CrashLoopBackOff" in str(stage.pods(PLUGIN)))
        told = await explained(stage)
        (pod,) = [pod["metadata"]["name"] for pod in stage.pods(PLUGIN, "gpu-1")]
        assert told["REASON"].split(maxsplit=1)[1] == (
            f"OperandFailing: pod {pod} of this node is not ready: container nvidia-device-plugin: CrashLoopBackOff, "
            "its last exit code was 1")
        assert f"container nvidia-device-plugin of pod {pod}: CrashLoopBackOff" in told["ALL"]
        assert "the end of its log:" in told["ALL"]
        assert "correct what container nvidia-device-plugin complains about" in told["HELP"]
        assert "spec.devicePlugin of the ClusterPolicy" in told["HELP"]
        assert f"$ kubectl logs {pod} -n gpu-operator -c nvidia-device-plugin --previous" in told["HELP"]
        lines = await shown(stage)
        assert lines[0].startswith("ClusterPolicy cluster-policy: 2 of 2 nodes up to date, 1 with a failing operand")
        (row, _) = [line for line in lines if line.startswith("gpu-")]
        assert row.startswith("gpu-1  operand failing")
        assert f"pod {pod} of this node is not ready" in row
        assert any("gpuward explain gpu-1 has its last words" in line for line in lines)
        assert [line.split()[0] for line in await shown(stage, held=True) if line.startswith("gpu-")] == ["gpu-1"]
        await stage.until(lambda: "held: 1 OperandFailing (gpu-1)" in condition_of(stage)[2], within=60)
        assert [event for event in stage.sandbox.store.list("events", "default") if "OperandFailing" in event["message"]]
        stage.sandbox.trouble("gpu-1")
        await stage.until(lambda: all(map(is_ready, stage.pods(PLUGIN))), within=3600)
        assert "REASON" not in await explained(stage)
        assert (await shown(stage))[0].startswith("ClusterPolicy cluster-policy: 2 of 2 nodes up to date")

    story()


CASES = [
    (Fault(FaultKind.TOOLKIT_CRASH, node="gpu-1"), names.TOOLKIT_APP, "container nvidia-container-toolkit-ctr", "spec.toolkit"),
    (Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1"), names.VALIDATOR_APP, "init container driver-validation (1 of 4)",
     "spec.validator"),
    (Fault(FaultKind.IMAGE_PULL, node="gpu-1", pod="nvidia-dcgm-exporter*"), "nvidia-dcgm-exporter",
     "container toolkit-validation", "spec.validator"),
    (Fault(FaultKind.IMAGE_PULL, node="gpu-1", pod="gpu-feature-discovery*"), "gpu-feature-discovery",
     "container toolkit-validation", "spec.validator"),
]


@pytest.mark.parametrize(("fault", "app", "container", "section"), CASES, ids=[case[1] for case in CASES])
def test_any_operand_that_fails_or_is_stuck_on_a_node_that_is_done_is_told_of(
        fault: Fault, app: str, container: str, section: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        stage.sandbox.faults.add(fault)
        await delete_pods(stage, app, "gpu-1")
        await stage.rest(400)
        told = await explained(stage)
        (pod,) = [pod["metadata"]["name"] for pod in stage.pods(app, "gpu-1")]
        assert told["REASON"].split(maxsplit=1)[1].startswith(f"OperandFailing: pod {pod} of this node is not ready: ")
        assert container in told["REASON"]
        assert section in told["HELP"]
        assert f" {pod} -n gpu-operator" in told["HELP"]
        lines = await shown(stage)
        assert any("gpuward explain gpu-1 has its last words" in line for line in lines) or "1 held" in lines[0], lines
        (row, _) = [line for line in lines if line.startswith("gpu-")]
        assert f"pod {pod} of this node is not ready" in row

    story()


@on_stage(gpu_nodes=1)
async def test_a_node_with_a_driver_of_its_own_is_told_of_too(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/enabled", False)
    await stage.until(lambda: not stage.pods(names.DRIVER_APP))
    stage.sandbox.trouble("gpu-1", "device-plugin-crash")
    await delete_pods(stage, PLUGIN, "gpu-1")
    await stage.rest(400)
    told = await explained(stage)
    assert "driver.enabled: false" in told["STATE"]
    assert told["REASON"].split()[1] == "OperandFailing:"
    assert "kubectl " in told["HELP"]
    assert any("gpuward explain gpu-1" in line for line in await shown(stage))


@on_stage(gpu_nodes=1)
async def test_a_pod_that_just_starts_is_no_trouble(stage: Stage) -> None:
    await stage.installed()
    await delete_pods(stage, names.VALIDATOR_APP, "gpu-1")
    await delete_pods(stage, PLUGIN, "gpu-1")
    for _ in range(120):
        await stage.rest(0.5)
        assert stage.hold("gpu-1") != "OperandFailing"
    assert (await status_of(stage))["nodes"][0]["group"] == "up to date"


@on_stage(gpu_nodes=1)
async def test_a_config_map_that_the_device_plugin_mounts_and_that_is_missing_is_named(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("devicePlugin/config", {"name": "slices", "default": "any"})
    await stage.rest(600)
    told = await explained(stage)
    assert told["REASON"].endswith("of this node is not ready: none of its containers has been started")
    assert 'configmap "slices" not found' in told["ALL"]
    assert "$ kubectl describe pod " in told["HELP"]


@on_stage(gpu_nodes=1)
async def test_a_validation_that_waits_for_the_toolkit_names_the_toolkit(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "toolkit-crash")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED)
    await stage.until(lambda: "CrashLoopBackOff" in str(stage.pods(names.TOOLKIT_APP)))
    assert "container nvidia-container-toolkit-ctr" in (await explained(stage))["REASON"]
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=1200)
    assert f"pod {names.TOOLKIT_APP}" in (await explained(stage))["FAILED"]


@on_stage(gpu_nodes=2)
async def test_the_first_line_counts_nodes_in_trouble_under_way(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "driver-crash")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "DriverFailing")
    await stage.rest(5)
    assert (await shown(stage))[0].endswith(
        ", 1 under way in trouble; the rollout has stopped: the new driver does not come up on gpu-1")


@on_stage(gpu_nodes=3)
async def test_a_toolkit_that_crashes_in_an_upgrade_is_trouble_with_a_remedy(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.TOOLKIT_CRASH))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "CrashLoopBackOff" in str(stage.pods("nvidia-container-toolkit-daemonset")), within=900)
    await stage.until(lambda: "validation-required" in stage.states().values(), within=900)
    await stage.rest(60)
    (node,) = [node for node, state in stage.states().items() if state == "validation-required"]
    told = await explained(stage, node)
    assert "ValidatorStarting" in told["REASON"]
    assert "correct what container nvidia-container-toolkit-ctr complains about" in told["HELP"]
    assert "this node is up to date then" in told["HELP"]
    await stage.rest(400)
    assert "this node is up to date then" in (await explained(stage, node))["HELP"], "the others only wait for the toolkit"
    blames_no_driver = f"; the rollout has stopped: the new driver is not validated on {node}"
    assert ", 1 under way in trouble" in await headline_of(stage)
    assert f"held: 1 ValidatorStarting ({node})" in condition_of(stage)[2], "as the first line has it"
    assert stage.sandbox.machine(node).driver == NEW
    await stage.until(lambda: stage.state(node) == State.FAILED, within=1200)
    assert (await headline_of(stage)).endswith(blames_no_driver)
    other = next(name for name in stage.states() if name != node)
    why = (await explained(stage, other))["REASON"]
    assert f"none is up to date with the new driver yet, and node {node} is in trouble with it" in why


@on_stage(gpu_nodes=3)
async def test_the_hint_in_status_names_a_node_whose_pod_can_be_read(stage: Stage) -> None:
    await stage.installed()
    for node in ("gpu-1", "gpu-3"):
        stage.sandbox.trouble(node, "device-plugin-crash")
        await delete_pods(stage, PLUGIN, node)
    await stage.until(lambda: all("CrashLoopBackOff" in str(stage.pods(PLUGIN, node)) for node in ("gpu-1", "gpu-3")))
    stage.sandbox.disconnect("gpu-1")
    await stage.until(lambda: stage.hold("gpu-1") == "NodeNotReady", within=600)
    await stage.rest(30)
    assert "gpuward explain gpu-3 has its last words and what would help" in "\n".join(await shown(stage))


@on_stage(gpu_nodes=2)
async def test_where_a_status_file_is_gone_the_validator_is_named(stage: Stage) -> None:
    """It has left the file when it began, and leaves it no second time."""
    await stage.installed()
    stage.sandbox.machine("gpu-1").files.remove("toolkit-ready")
    await delete_pods(stage, PLUGIN, "gpu-1")
    await stage.until(lambda: stage.hold("gpu-1") == "OperandFailing", within=900)
    (plugin,) = [pod["metadata"]["name"] for pod in stage.pods(PLUGIN, "gpu-1")]
    (validator,) = [pod["metadata"]["name"] for pod in stage.pods(names.VALIDATOR_APP, "gpu-1")]
    told = await explained(stage)
    assert f"the status file that pod {plugin} waits for is gone" in told["HELP"]
    assert f"$ kubectl delete pod {validator} -n gpu-operator" in told["HELP"]
    assert "devicePlugin" not in told["HELP"]
    await delete_pods(stage, names.VALIDATOR_APP, "gpu-1")
    await stage.until(lambda: all(map(is_ready, stage.pods(PLUGIN))), within=600)
    await stage.rest(120)
    assert "REASON" not in await explained(stage)


@on_stage(gpu_nodes=2)
async def test_an_operand_whose_pods_are_refused_says_why(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("daemonsets/priorityClassName", "system-node-crtical")
    await stage.rest(60)
    (line,) = (line for line in await screen_of(stage) if line.split()[:1] == ["device-plugin"])
    assert line.endswith("pods are unavailable; none is made, as the API server refuses: "
                         "no PriorityClass with name system-node-crtical was found")
    await stage.patch_policy("daemonsets/priorityClassName", "system-node-critical")
    await stage.rest(1800)
    assert "operands  all 8 ready" in await screen_of(stage)
    await delete_pods(stage, PLUGIN, "gpu-1")
    assert not any("refuses" in line for line in await screen_of(stage)), "it has made pods since"


@on_stage(gpu_nodes=1)
async def test_who_may_not_read_why_pods_are_refused_is_told_so(stage: Stage) -> None:
    """As in the operator's pod, where the notes of the chart have people look."""
    await stage.installed()
    await stage.user.patch_merge(resources.NAMESPACES, names.DEFAULT_NAMESPACE, {
        "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
    await delete_pods(stage, PLUGIN, "gpu-1")
    await delete_pods(stage, names.DRIVER_APP, "gpu-1")
    await stage.rest(60)
    transport = stage.sandbox.transport()
    transport.interfere = blind_to_events
    blind = Client(transport)
    (line,) = (line for line in await screen_of(stage, client=blind) if line.split()[:1] == ["device-plugin"])
    assert line.endswith("pods are unavailable; its events would say why, and who looks may not list them")
    assert stage.hold("gpu-1") == "DriverPodMissing"
    async with looking(stage, client=blind) as picture:
        (told,) = await refused_pods(blind, picture, "gpu-1")
    assert told.endswith("has made no pod here: its events would say why, and who looks may not list them")


@on_stage(gpu_nodes=3)
async def test_a_device_plugin_that_has_failed_for_long_stops_a_rollout_at_its_first_node(stage: Stage) -> None:
    """The pods of the others would be evicted, and no node would have a GPU for them."""
    await stage.installed()
    for node in stage.states():
        await stage.deploy(f"train-{node}", node=node)
        stage.sandbox.trouble(node, "device-plugin-crash")
        await delete_pods(stage, PLUGIN, node)
    await stage.until(lambda: all(stage.node(node)["status"]["capacity"]["nvidia.com/gpu"] == "0" for node in stage.states()))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "NewDriverFails" in {stage.hold(node) for node in stage.states()}, within=3600)
    await stage.rest(3600)
    assert [stage.sandbox.machine(node).driver for node in stage.states()].count(NEW) == 1
    assert "the rollout has stopped: the new driver is not validated on " in await headline_of(stage)
