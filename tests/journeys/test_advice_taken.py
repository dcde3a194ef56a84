"""Advice of `gpuward explain` that people follow to the letter: it names the field, and the value, that mends the trouble."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.cli.nodes import retry_nodes
from gpuward.cli.pause import pause_rollouts
from gpuward.cli.resume import resume_paused
from gpuward.cli.status import Choice
from gpuward.errors import InputError
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.cli.verbs import said
from tests.journeys.looking import condition_of, explanation_of, looking, screen_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver
from tests.journeys.test_operand_fails import explained
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_waves import abort, resume
from tests.journeys.test_withheld import set_driver


@pytest.mark.parametrize("mode", ["ClusterPolicy", "NVIDIADriver"])
def test_a_precompiled_driver_is_taken_back_by_its_branch(mode: str) -> None:
    """The version field takes a branch. With the kernel behind it, as in the image's tag, there is no such image for any node."""
    @on_stage(gpu_nodes=4)
    async def story(stage: Stage) -> None:
        stage.sandbox.has_image = lambda image: "599-" not in image
        if mode == "ClusterPolicy":
            await set_driver(stage, {"usePrecompiled": True, "version": "580"})
            await stage.installed()
            await stage.patch_policy("driver/version", "599")
        else:
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("a", default=True, version="580", usePrecompiled=True))
            await stage.installed()
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": {"version": "599"}})
        await stage.until(lambda: "DriverFailing" in {stage.hold(f"gpu-{number}") for number in (1, 2, 3, 4)})
        await stage.rest(30)
        told = [(await explained(stage, f"gpu-{number}"))["HELP"] for number in (1, 2, 3, 4)]
        back = [line for one in told for line in one.splitlines() if "take the new driver back" in line]
        assert len(back) == 4
        assert all(line.endswith("(580)") for line in back), back

    story()


@pytest.mark.parametrize("mode", ["ClusterPolicy", "NVIDIADriver"])
@pytest.mark.parametrize("changed", ["repository", "env"])
def test_a_driver_of_the_same_version_is_not_taken_back_by_its_version(mode: str, changed: str) -> None:
    """The version before is the version now: who sets it changes nothing, and the node keeps waiting."""
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        async def change(fields: dict[str, object]) -> None:
            if mode == "ClusterPolicy":
                await set_driver(stage, fields)
            else:
                await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": fields})

        if mode == "NVIDIADriver":
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("a", default=True))
        await stage.installed()
        if changed == "repository":
            stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image="mirror.example/*"))
            await change({"repository": "mirror.example/nvidia"})
        else:
            stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH))
            await change({"env": [{"name": "X", "value": "1"}]})
        await stage.until(lambda: "NewDriverFails" in map(stage.hold, stage.states()), within=900)
        await stage.rest(5)
        told = [remedy.do for node in stage.states() for remedy in (await explanation_of(stage, node)).remedies]
        back = {one for one in told if one.startswith("take the new driver back")}
        assert len(back) == 2, "of the node that has it, and of those that wait behind it"
        source = "clusterpolicy cluster-policy" if mode == "ClusterPolicy" else "nvidiadriver a"
        what, same = {"repository": ("repository and image", "the version is the same"),
                      "env": ("settings", "version and image are the same")}[changed]
        for one in back:
            assert one.startswith(f"take the new driver back: give {source} the {what} of the driver that it had before")
            assert one.endswith(same)
            assert ("(nvcr.io/nvidia/driver:" in one) is (changed == "repository")
        stage.sandbox.faults.clear()
        await change({changed: {"repository": "nvcr.io/nvidia", "env": None}[changed]})
        await stage.upgraded(OLD)

    story()


@on_stage(gpu_nodes=2)
async def test_an_image_of_the_validator_is_sought_in_the_settings_of_the_validator(stage: Stage) -> None:
    """Pods of all operands begin with its containers: who looks at spec.toolkit for their image finds nothing wrong there."""
    await stage.installed()
    stage.sandbox.has_image = lambda image: "v26.7.x" not in image
    await stage.patch_policy("validator/version", "v26.7.x")
    await stage.upgrade_to(NEW)
    await stage.rest(60)
    told = [(await explained(stage, name))["HELP"] for name in ("gpu-1", "gpu-2")]
    assert any("container driver-validation: it must exist" in one for one in told)
    for line in (line for one in told for line in one.splitlines() if "-validation: it must exist" in line):
        assert line.endswith("(its settings are spec.validator of the ClusterPolicy)")


@on_stage(gpu_nodes=3)
async def test_nodes_behind_one_that_gets_no_driver_pod_do_not_go_on_by_themselves(stage: Stage) -> None:
    """The first line called it in trouble, and the one of the waiting nodes said that they go on by themselves."""
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "pod-restart-required" in stage.states().values())
    name = next(name for name, state in stage.states().items() if state == "pod-restart-required")
    taint = {"key": "acme", "value": "x", "effect": "NoExecute"}
    taints = [*(stage.node(name)["spec"].get("taints") or ()), taint]
    await stage.user.patch_merge(resources.NODES, name, {"spec": {"taints": taints}})
    await stage.until(lambda: not stage.pods(names.DRIVER_APP, name))
    await stage.rest(700)
    lines = await screen_of(stage)
    assert lines[0].endswith("1 under way in trouble")
    assert "  2 waiting for nodes under way, of which 1 needs somebody to look at it (2 UnavailableLimit)" in lines
    async with looking(stage) as picture:
        assert [report.node for report in Choice(held=True).of(picture)] == [name]


@on_stage(gpu_nodes=3, upgrade={"maxParallelUpgrades": 0, "maxUnavailable": 1})
async def test_nodes_behind_one_that_fell_silent_in_mid_upgrade_are_sent_there_first(stage: Stage) -> None:
    """Its old driver pod stays for as long as its kubelet is silent: all that was advised was to let more nodes be away."""
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    stage.sandbox.disconnect("gpu-1")
    await stage.until(lambda: stage.hold("gpu-1") == "NodeNotReady")
    first, *more = (await explanation_of(stage, "gpu-2")).remedies
    assert (first.do, first.commands) == ("look at node gpu-1, which is under way and needs somebody", ("gpuward explain gpu-1",))
    assert [each.do for each in more] == ["raise maxUnavailable to 2"]
    stage.sandbox.reconnect("gpu-1")
    await stage.upgraded()


@on_stage(gpu_nodes=2)
async def test_the_log_of_an_installation_calls_no_driver_the_wanted_one_before_it_is_loaded(stage: Stage) -> None:
    await stage.until(lambda: any("no driver to upgrade yet" in line["msg"] for line in stage.log))
    assert not any(stage.driver(name) for name in ("gpu-1", "gpu-2"))
    await stage.installed()
    assert not any("the driver that is wanted" in line["msg"] for line in stage.log)
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    assert sum("runs the driver that is wanted" in line["msg"] for line in stage.log) == 2


@on_stage(gpu_nodes=2)
async def test_the_log_says_of_no_node_that_it_has_no_driver_where_only_the_validator_is_not_ready(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY))
    for pod in stage.pods(names.VALIDATOR_APP):
        await stage.user.delete(resources.PODS, pod["metadata"]["name"], namespace=pod["metadata"]["namespace"])
    await stage.rest(60)
    said = len(stage.log)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.until(lambda: stage.all_are(State.DONE))
    assert not [line for line in stage.log[said:] if "no driver to upgrade" in line["msg"]]


@on_stage(gpu_nodes=4)
async def test_a_selector_that_matches_no_node_is_corrected_before_nodes_are_labelled_after_it(stage: Stage) -> None:
    """Advice that labels nodes as a typing error says keeps the error, and says nothing of it."""
    await label_pools(stage, a="gpu-1 gpu-2", b="gpu-3 gpu-4")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("b"))
    await stage.installed()
    await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "b", {"spec": {"nodeSelector": {"pool": "bb"}}})
    await stage.rest(60)
    told = (await explained(stage, "gpu-3"))["HELP"].splitlines()
    assert told[0] == "  1. correct spec.nodeSelector of NVIDIADriver b: it wants pool=bb, which no node has"
    assert "     $ kubectl edit nvidiadriver b" in told
    assert not any("select" in line and "NVIDIADriver a" in line and "correct" in line for line in told)


@pytest.mark.parametrize("waves", [False, True])
def test_a_node_that_failed_with_a_driver_that_runs_nowhere_is_told_to_take_it_back(waves: bool) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 2})
    async def story(stage: Stage) -> None:
        await stage.installed()
        await apply(stage, retries=0, waves=[{"name": "canary", "nodes": 1}] if waves else [])
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
        await stage.rest(5)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: State.FAILED in stage.states().values(), within=3600)
        await stage.rest(5)
        (node,) = [node for node, state in stage.states().items() if state == State.FAILED]
        again, back = (await explanation_of(stage, node)).remedies
        assert again.commands == (f"gpuward retry {node}",)
        assert back.do.startswith("take the new driver back: give clusterpolicy cluster-policy the driver version that it had")
        assert (back.do.endswith(f"({OLD})"), back.then) == (True, "this node starts at once")
        other = next(each for each in stage.states() if each != node)
        on = next(each for each in (await explanation_of(stage, other)).remedies if each.commands == ("gpuward resume",))
        held = f"this node is then held by something else: waits for wave canary: 0 of 1 nodes done (not yet: {node})"
        assert on.then == (held if waves else "this node starts at once"), "nobody tries the canary again"
        await stage.upgrade_to(OLD)
        await stage.upgraded(OLD)
        assert not stage.cordons()

    story()


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 2})
async def test_a_failed_node_is_tried_again_in_a_pause_as_explain_says(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, retries=0)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-2", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-2") == State.FAILED and stage.driver("gpu-3") == NEW, within=7200)
    assert await said(pause_rollouts(stage.user, "", dry_run=False))
    await stage.rest(60)
    stage.sandbox.faults.clear()
    (remedy,) = (await explanation_of(stage, "gpu-2")).remedies
    assert (remedy.commands, remedy.then) == (("gpuward resume && gpuward retry gpu-2",), "this node starts at once")
    with pytest.raises(InputError, match="`gpuward resume` first"):
        await said(retry_nodes(stage.user, ["gpu-2"], dry_run=False))
    assert await said(resume_paused(stage.user, "", dry_run=False))
    assert await said(retry_nodes(stage.user, ["gpu-2"], dry_run=False))
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=3)
async def test_a_node_that_an_abort_leaves_without_a_driver_is_told_the_way_back(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-2", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "DriverFailing" and stage.driver("gpu-1") == NEW, within=3600)
    await abort(stage)
    await stage.until(lambda: stage.hold("gpu-2") == "Aborted", within=3600)
    await stage.rest(30)
    assert stage.driver("gpu-2") == ""
    message = condition_of(stage)[2]
    assert "gpu-2 has failed once" in message
    assert "and is tried again with another driver, or once the abort is taken back" in message
    back, _ = (await explanation_of(stage, "gpu-2")).remedies
    assert back.do.endswith(f"the driver version that it had before ({OLD})")
    assert (back.then, bool(back.risk)) == ("this node starts at once", True)
    await stage.upgrade_to(OLD)
    await stage.upgraded(OLD)


@on_stage(gpu_nodes=3)
async def test_what_a_resume_after_an_abort_forgives_is_told_beforehand(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "NewDriverFails", within=3600)
    await abort(stage)
    await stage.until(lambda: stage.hold("gpu-2") == "Aborted")
    *_, on = (await explanation_of(stage, "gpu-2")).remedies
    assert on.do == "let the rollout go on, and failures so far count no more"
    assert on.then == "this node then waits for its turn (1st)"
    await resume(stage)
    await stage.rest(2)
    assert stage.hold("gpu-2") == "UnavailableLimit"


@on_stage(gpu_nodes=3)
async def test_a_node_that_failed_as_another_operand_was_not_ready_is_told_which(stage: Stage) -> None:
    """It was told so until it failed, and to take the driver back from then on, which helps nothing."""
    await stage.installed()
    stage.sandbox.has_image = lambda image: "typo" not in image
    await stage.patch_policy("toolkit/version", "v1.19.typo")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.FAILED in stage.states().values(), within=3600)
    node = next(name for name, state in stage.states().items() if state == State.FAILED)
    first, *_ = (await explanation_of(stage, node)).remedies
    assert first.do.startswith("let the node pull the image of container nvidia-container-toolkit-ctr")
    assert "spec.toolkit of the ClusterPolicy" in first.do
    assert first.then == "this node is up to date then"
    await stage.patch_policy("toolkit/version", "v1.19.0")
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=3)
async def test_a_driver_whose_repository_was_changed_with_its_version_is_taken_back_with_both(stage: Stage) -> None:
    """The version alone would ask for an image of the mistyped repository on all nodes."""
    await stage.installed()
    stage.sandbox.has_image = lambda image: "typo" not in image
    await set_driver(stage, {"repository": "nvcr.io/typo", "version": NEW})
    await stage.until(lambda: "DriverFailing" in map(stage.hold, stage.states()), within=900)
    for node in stage.states():
        back, = (each for each in (await explanation_of(stage, node)).remedies if each.do.startswith("take the new driver back"))
        assert "the repository, image and version of the driver that it had before" in back.do
        assert f"(nvcr.io/nvidia/driver:{OLD}-" in back.do


@on_stage(gpu_nodes=3, upgrade={"maxParallelUpgrades": 1})
async def test_a_driver_that_did_not_come_up_in_its_time_may_be_taken_back_while_it_is_tried_again(stage: Stage) -> None:
    """It starts then, as far as anybody sees, and hangs as it did before."""
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "driver-hangs")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
    await stage.until(lambda: stage.hold("gpu-1") == "DriverStarting", within=900)
    told = [each.do for each in (await explanation_of(stage, "gpu-1")).remedies]
    assert f"take the new driver back: give clusterpolicy cluster-policy the driver version that it had before ({OLD})" in told
