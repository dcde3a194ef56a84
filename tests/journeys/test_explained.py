"""A node that is held says so wherever people look: events, the policy's condition, metrics."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial

import pytest
from rich.console import Console

from gpuward import errors, names
from gpuward.cli.drivers import pool_table
from gpuward.cli.explain import refused_pods, show
from gpuward.cli.leader import Leader
from gpuward.cli.overview import headline
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.report.nodes import node_reports
from gpuward.report.pools import pool_reports
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import explanation_of, looking, status_of
from tests.journeys.stage import NEW, OLD, POLICY, Object, Stage, on_stage


def rollout(stage: Stage) -> Object:
    """Return the condition of the driver upgrade."""
    return next((one for one in stage.policy_status().get("conditions", ()) if one["type"] == "DriverUpgrade"), {})


def held_events(stage: Stage, node: str) -> list[tuple[str, str]]:
    """Return type and message of the events that say why a node is held."""
    return [(event["type"], event["message"]) for event in stage.sandbox.store.list("events", "default")
            if event["reason"] == names.HELD_EVENT_REASON and event["involvedObject"]["name"] == node]


def metric(stage: Stage, reason: str) -> str:
    """Return the value of the metric of held nodes."""
    lines = stage.operator.metrics.text().decode().splitlines()
    return next(line.split()[-1] for line in lines if f'held_nodes{{reason="{reason}"}}' in line)


@on_stage(gpu_nodes=2)
async def test_a_node_with_a_bare_gpu_pod_says_so_everywhere(stage: Stage) -> None:
    await stage.installed()
    await stage.until(lambda: rollout(stage).get("reason") == "UpToDate")
    assert stage.condition()["type"] == "Ready"
    stage.run_pod("notebook", "gpu-1")
    await stage.upgrade_to()
    await stage.until(lambda: rollout(stage).get("reason") == "Blocked")
    assert rollout(stage)["status"] == "False"
    await stage.until(lambda: "1 of 2 nodes up to date" in rollout(stage)["message"])
    assert "held: 1 ProtectedPods (gpu-1)" in rollout(stage)["message"]
    ((kind, message),) = held_events(stage, "gpu-1")
    assert kind == "Warning"
    assert message.startswith(f"ProtectedPods: pod {WORKLOAD_NAMESPACE}/notebook has to leave")
    assert {message.partition(":")[0] for _, message in held_events(stage, "gpu-2")} <= {"DevicePluginStopping"}
    assert (metric(stage, "ProtectedPods"), metric(stage, "Skipped")) == ("1.0", "0.0")
    await stage.restart_operator()
    await stage.rest(60)
    assert len(held_events(stage, "gpu-1")) == 1, "what the former leader said is not said again"
    stage.sandbox.store.delete("pods", WORKLOAD_NAMESPACE, "notebook")
    await stage.upgraded()
    await stage.until(lambda: rollout(stage).get("status") == "True")


async def explained(stage: Stage, node: str) -> str:
    """Return what `gpuward explain` prints of a node."""
    found, out = await explanation_of(stage, node), io.StringIO()
    with redirect_stdout(out):
        show(found, Leader("operator here", found.now))
    return out.getvalue()


@on_stage(gpu_nodes=1)
async def test_a_pod_that_a_finalizer_keeps_is_told_with_it_and_not_as_a_grace_period_that_ends(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", node="gpu-1")
    (pod,) = stage.workload_pods("train")
    await stage.user.patch_merge(resources.PODS, pod["metadata"]["name"], {"metadata": {"finalizers": ["example.com/save"]}},
                                 WORKLOAD_NAMESPACE)
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "Evicting")
    await stage.rest(120)
    told = await explained(stage, "gpu-1")
    assert "stays until its finalizer example.com/save is removed" in told
    assert "grace periods to end" not in told


@on_stage(gpu_nodes=1, upgrade={"podDeletion": {"timeoutSeconds": 900}})
async def test_a_pod_that_outlasts_its_grace_period_is_named_and_no_grace_period_is_said_to_end(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", node="gpu-1")
    (pod,) = stage.workload_pods("train")
    stage.sandbox.faults.add(Fault(FaultKind.STUCK_TERMINATING, pod=pod["metadata"]["name"]))
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "Evicting")
    await stage.rest(2)
    told = await explained(stage, "gpu-1")
    assert ("grace periods to end" in told, "it is terminating" in told, "after its grace period" in told) == (True, True, False)
    await stage.rest(300)
    told = await explained(stage, "gpu-1")
    assert f"the grace period of pod {WORKLOAD_NAMESPACE}/{pod['metadata']['name']} has been over for 4m" in told
    assert "it is terminating, 4m" in told
    assert "the upgrade of this node fails" in told
    assert "grace periods to end" not in told


@on_stage(gpu_nodes=1)
async def test_the_container_that_a_driver_pod_waits_for_is_named(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1"))
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "ValidatorStarting")
    await stage.rest(60)
    assert ": init container driver-validation (1 of 4) " in await explained(stage, "gpu-1")


@on_stage(gpu_nodes=2, upgrade={"maxParallelUpgrades": 1, "maxUnavailable": 1})
async def test_in_a_pause_it_is_told_which_driver_a_node_has_and_which_it_is_to_get(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.until(lambda: NEW in stage.drivers())
    upgrades = {"spec": {"driver": {"upgradePolicy": {"autoUpgrade": False}}}}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, upgrades)
    await stage.rest(300)
    told = {stage.driver(node): (await explained(stage, node)).splitlines() for node in stage.states()}
    assert f"DRIVER    {OLD} -> {NEW}" in told[OLD]
    (state,) = [line for line in told[OLD] if line.startswith("STATE")]
    assert state == "STATE     on another driver; it has no label while upgrades are off"
    assert f"DRIVER    {NEW}" in told[NEW]


@on_stage(gpu_nodes=2)
async def test_what_only_the_operator_knows_of_a_node_is_quoted_from_its_event(stage: Stage) -> None:
    await stage.installed()

    def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        changes = request.method == "PATCH" and request.path == "/api/v1/nodes/gpu-1"
        return refusal(errors.Forbidden("policy X says no")) if changes else proceed()

    stage.transport.interfere = interfere
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "WriteRefused" and held_events(stage, "gpu-1"))
    told = await explained(stage, "gpu-1")
    assert "REASON    WriteRefused: the API server refuses to change this node: " in told
    assert "policy X says no" in told
    assert "   $ kubectl auth can-i patch nodes --as=system:serviceaccount:gpu-operator:gpu-operator" in told


@on_stage(gpu_nodes=2)
async def test_what_was_said_of_an_earlier_wait_is_not_quoted_as_if_it_were_about_this_one(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("notebook", "gpu-1")
    await stage.upgrade_to()
    await stage.until(lambda: bool(held_events(stage, "gpu-1")))
    assert (await explanation_of(stage, "gpu-1")).event[1].startswith("ProtectedPods")
    stage.sandbox.store.delete("pods", WORKLOAD_NAMESPACE, "notebook")
    await stage.upgraded()
    assert held_events(stage, "gpu-1")
    assert (await explanation_of(stage, "gpu-1")).event[1] == ""


@on_stage(gpu_nodes=2)
async def test_a_pause_of_gpuward_pause_is_ended_by_gpuward_resume(stage: Stage) -> None:
    await stage.installed()
    off = {"spec": {"driver": {"upgradePolicy": {"autoUpgrade": False}}}}
    noted = {"metadata": {"annotations": {names.PAUSED_AT: "2026-01-01T00:00:00Z"}}}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, off | noted)
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "Paused")
    (remedy,) = (await explanation_of(stage, "gpu-1")).remedies
    assert (remedy.do, remedy.commands) == ("end the pause", ("gpuward resume",))
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"metadata": {"annotations": {names.PAUSED_AT: None}}})
    await stage.rest(10)
    (remedy,) = (await explanation_of(stage, "gpu-1")).remedies
    assert remedy.commands[0].startswith("kubectl patch"), "the field was set by hand"


@on_stage(gpu_nodes=2)
async def test_who_mistypes_the_label_that_skips_a_node_is_told_so(stage: Stage) -> None:
    await stage.installed()
    for harmless in ("false", "true"):
        await stage.label("gpu-1", names.UPGRADE_SKIP, harmless)
        await stage.rest(10)
        assert not (await status_of(stage))["warnings"]
    await stage.label("gpu-1", names.UPGRADE_SKIP, "True")
    await stage.rest(10)
    (warned,) = (await status_of(stage))["warnings"]
    assert warned == (f"gpu-1 is upgraded like any other, whatever the label {names.UPGRADE_SKIP}=True was to say: "
                      "only `true` skips a node")
    (note,) = [note for note in (await explanation_of(stage, "gpu-1")).notes if names.UPGRADE_SKIP in note]
    assert "`gpuward skip gpu-1` sets that" in note
    await stage.upgrade_to()
    await stage.upgraded()
    assert stage.driver("gpu-1") == NEW


@on_stage(gpu_nodes=3)
async def test_a_node_on_which_discovery_sees_no_gpu_any_more_is_warned_of_before_its_driver_goes(stage: Stage) -> None:
    await stage.installed()
    await stage.label("gpu-1", names.NFD_GPU_LABELS[0], None)
    await stage.rest(10)
    (warned,) = (await status_of(stage))["warnings"]
    assert warned.startswith("node feature discovery sees no GPU on gpu-1 any more: the GPU stack there goes, driver included")
    await stage.label("gpu-1", names.NFD_GPU_LABELS[0], "true")
    await stage.rest(10)
    assert not (await status_of(stage))["warnings"]


@pytest.mark.parametrize("value", ["false", "ture"])
def test_who_keeps_the_device_plugin_from_a_node_by_its_label_is_told_so(value: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        assert not (await status_of(stage))["warnings"]
        await stage.label("gpu-1", names.DEPLOY_PLUGIN, value)
        await stage.rest(60)
        (warned,) = (await status_of(stage))["warnings"]
        assert warned == f"gpu-1 has no device plugin, as the label {names.DEPLOY_PLUGIN}={value} says: gpuward explain gpu-1"
        (note,) = [note for note in (await explanation_of(stage, "gpu-1")).notes if "has no device plugin" in note]
        assert f"`kubectl label node gpu-1 {names.DEPLOY_PLUGIN}-`" in note
        await stage.label("gpu-1", names.DEPLOY_PLUGIN, None)
        await stage.rest(60)
        assert stage.labels("gpu-1")[names.DEPLOY_PLUGIN] == "true"
        assert not (await status_of(stage))["warnings"]

    story()


@on_stage(gpu_nodes=2)
async def test_why_a_driver_pod_may_not_be_made_is_quoted(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("daemonsets/priorityClassName", "vital")
    await stage.until(lambda: stage.hold("gpu-1") == "DriverPodMissing", within=900)
    await stage.rest(60)
    async with looking(stage) as picture:
        (told,) = await refused_pods(stage.user, picture, "gpu-1")
        assert await refused_pods(stage.user, picture, "gpu-2") == ()
    assert told.startswith("DaemonSet nvidia-driver-daemonset could not make a pod")
    assert "no PriorityClass with name vital" in told


def held_for(stage: Stage, node: str, reason: str) -> bool:
    return stage.hold(node) == reason


@on_stage(gpu_nodes=1)
async def test_why_a_validator_pod_may_not_be_made_is_quoted(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "ValidatorStarting", within=900)
    await stage.user.patch_merge(resources.NAMESPACES, names.DEFAULT_NAMESPACE, {
        "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
    for pod in stage.pods(names.VALIDATOR_APP):
        await stage.user.delete(resources.PODS, pod["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.until(lambda: stage.hold("gpu-1") == "ValidatorMissing", within=900)
    await stage.rest(20)
    async with looking(stage) as picture:
        (told,) = await refused_pods(stage.user, picture, "gpu-1")
    assert told.startswith("DaemonSet nvidia-operator-validator could not make a pod")
    assert 'ago: violates PodSecurity "baseline' in told
    for reason in ("RetryLater", "Failed"):
        await stage.until(partial(held_for, stage, "gpu-1", reason), within=9000)
        await stage.rest(20)
        async with looking(stage) as picture:
            (told,) = await refused_pods(stage.user, picture, "gpu-1")
        assert 'violates PodSecurity "baseline' in told, "as long as none is there"
        first, *_ = (await explanation_of(stage, "gpu-1")).remedies
        assert first.do.startswith("let DaemonSet gpu-operator/nvidia-operator-validator make a validator pod here: a quota")
    await stage.user.patch_merge(resources.NAMESPACES, names.DEFAULT_NAMESPACE, {
        "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}})
    await stage.until(lambda: stage.state("gpu-1") == State.DONE, within=3600)
    async with looking(stage) as picture:
        assert await refused_pods(stage.user, picture, "gpu-1") == ()


@on_stage(gpu_nodes=1)
async def test_what_the_reason_says_is_not_said_again_for_a_pod_that_has_started_anew_since(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "driver-crash")
    await stage.upgrade_to()
    await stage.until(lambda: bool(held_events(stage, "gpu-1")), within=1500)
    await stage.rest(120)
    told = await explained(stage, "gpu-1")
    assert "REASON    DriverFailing: " in told
    assert "EVENT" not in told


@on_stage(gpu_nodes=1)
async def test_a_node_whose_start_is_refused_says_since_when_and_what_would_help(stage: Stage) -> None:
    def deny(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        changes = request.method == "PATCH" and request.path.endswith("/nodes/gpu-1")
        return refusal(errors.Forbidden("policy X says no")) if changes else proceed()

    await stage.installed()
    done = stage.clock.now()
    await stage.rest(100)
    stage.transport.interfere = deny
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "WriteRefused" and held_events(stage, "gpu-1"))
    await stage.rest(60)
    told = await explained(stage, "gpu-1")
    found = await explanation_of(stage, "gpu-1")
    assert found.status is not None
    assert found.status.since <= done, told
    assert "UNTIL" not in told, "only the operator knows when it tries again"
    assert "$ kubectl get validatingwebhookconfigurations" in told
    assert "policy X says no" in told


@on_stage(gpu_nodes=1)
async def test_a_pod_under_two_budgets_is_not_said_to_be_evictable(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("served", node="gpu-1", max_unavailable=1)
    stage.sandbox.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                         "metadata": {"name": "second", "namespace": WORKLOAD_NAMESPACE},
                         "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "served"}}}})
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "ProtectedPods")
    (pod,) = (await explanation_of(stage, "gpu-1")).pods
    assert pod.why == "disruption budgets ml/second, ml/served cover it, and the API allows for one"


@on_stage(gpu_nodes=2, upgrade={"maxParallelUpgrades": 1, "maxUnavailable": 1})
async def test_a_driver_that_its_manager_has_unloaded_is_not_said_to_be_loaded(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH))
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "DriverFailing" or stage.hold("gpu-2") == "DriverFailing")
    await stage.rest(60)
    failing = next(node for node in stage.states() if stage.hold(node) == "DriverFailing")
    assert f"DRIVER    none -> {NEW}" in await explained(stage, failing)
    async with looking(stage) as picture:
        (pool,) = pool_reports(node_reports(picture.plan, picture.snapshot, picture.drivers), picture.snapshot, picture.drivers)
    assert dict(pool.loaded) == {OLD: 1, "": 1}


@on_stage(gpu_nodes=3)
async def test_a_node_with_a_failing_operand_counts_alike_in_all_places(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DEVICE_PLUGIN_CRASH, node="gpu-1"))
    await stage.user.delete(resources.PODS, stage.pods("nvidia-device-plugin-daemonset", "gpu-1")[0]["metadata"]["name"],
                            names.DEFAULT_NAMESPACE)
    await stage.until(lambda: stage.hold("gpu-1") == "OperandFailing")
    out = io.StringIO()
    async with looking(stage) as picture:
        pools = pool_reports(node_reports(picture.plan, picture.snapshot, picture.drivers), picture.snapshot, picture.drivers)
        assert "3 of 3 nodes up to date" in headline(picture)
    Console(file=out, width=300).print(pool_table(pools))
    assert "3/3 up to date (1 with a failing operand)" in out.getvalue()
    assert pools[0].as_json()["upToDate"] == 3
