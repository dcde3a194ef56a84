"""What a driver manager of gpuward's own that is killed leaves on its node: labels in a pause, its cordon, and its note."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuward import names
from gpuward.cli.explain import as_json
from gpuward.cli.leader import Leader
from gpuward.kube import resources
from gpuward.model.states import State
from kubesandbox.builders import namespace
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys import test_removed
from tests.journeys.looking import explanation_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_cordoned_by_others import cordon_as
from tests.journeys.test_operand_fails import explained, installed
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_status_screen import shown
from tests.journeys.test_windows import ask, window

PLUGIN, CLIENT = names.DEPLOY_PREFIX + "device-plugin", names.DEPLOY_PREFIX + "client"
PAUSED = "paused-for-driver-upgrade"
NOTES = {names.DRIVER_MANAGER_CORDON: "true", names.DRIVER_MANAGER_PAUSE: "true"}


async def left(stage: Stage, *, cordoned: bool = True, told: bool = False) -> None:
    """Leave what a driver manager leaves that is killed while it waits for the operands. `told`: managedFields say so."""
    if told:
        cordon_as(stage, "gpu-1", names.FIELD_MANAGER)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {
        "metadata": {"annotations": NOTES, "labels": {PLUGIN: PAUSED, CLIENT: f"vm_{PAUSED}"}},
        "spec": {"unschedulable": cordoned or None}})


def notes(stage: Stage) -> set[str]:
    found = stage.sandbox.store.get("nodes", None, "gpu-1")
    return NOTES.keys() & (found["metadata"].get("annotations") or {})


def noted(stage: Stage) -> bool:
    return names.DRIVER_MANAGER_CORDON in notes(stage)


def stands(stage: Stage) -> tuple[list[str], str | None, str | None, bool]:
    labels = stage.labels("gpu-1")
    return stage.cordons(), labels.get(PLUGIN), labels.get(CLIENT), bool(notes(stage))


GIVEN_BACK: tuple[list[str], str, str, bool] = ([], "true", "vm", False)


@pytest.mark.parametrize("mode", ["ClusterPolicy", "precompiled", "NVIDIADriver"])
def test_a_node_that_gets_no_driver_any_more_is_given_back(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")
        await stage.rest(60)
        await left(stage)
        await stage.rest(60)
        assert stands(stage) == GIVEN_BACK

    story()


@on_stage(gpu_nodes=2)
async def test_a_label_of_peoples_own_that_the_note_names_is_given_back_too(stage: Stage) -> None:
    await stage.installed()
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")
    await stage.rest(60)
    await left(stage)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {
        "annotations": {names.DRIVER_MANAGER_PAUSE: "example.com/gpus"},
        "labels": {"example.com/gpus": PAUSED, "example.com/others": PAUSED}}})
    await stage.rest(60)
    assert stands(stage) == GIVEN_BACK
    assert [stage.labels("gpu-1")[f"example.com/{name}"] for name in ("gpus", "others")] == ["true", PAUSED]


def test_a_node_whose_drivers_were_switched_off_is_given_back() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.patch_policy("driver/enabled", False)
        await stage.rest(600)
        await left(stage)
        await stage.rest(60)
        assert stands(stage) == GIVEN_BACK

    story()


@pytest.mark.parametrize("mode", ["ClusterPolicy", "precompiled", "NVIDIADriver"])
def test_labels_that_somebody_else_pauses_on_a_host_with_its_own_driver_stay_paused(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")
        await stage.rest(60)
        await stage.label("gpu-1", PLUGIN, PAUSED)
        await stage.rest(60)
        assert stage.labels("gpu-1")[PLUGIN] == PAUSED
        assert stage.pods("nvidia-device-plugin-daemonset", "gpu-1") == []

    story()


def test_labels_that_the_driver_manager_of_another_daemonset_pauses_stay_paused() -> None:
    """Drivers are people's own there; their pods begin with NVIDIA's driver manager, which waits until the operands have gone."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.switch_off_at_once()
        await stage.rest(300)
        stage.sandbox.apply(namespace("our-drivers"))
        labels = {"app": "our-driver"}
        pod = {"nodeSelector": {names.GPU_PRESENT: "true"},
               "initContainers": [{"name": "k8s-driver-manager", "image": "manager:1"}],
               "containers": [{"name": "driver", "image": "our-driver:1"}]}
        stage.sandbox.apply({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "our-driver", "namespace": "our-drivers"},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}})
        await stage.rest(60)
        await stage.label("gpu-1", PLUGIN, PAUSED)
        await stage.rest(60)
        assert stage.labels("gpu-1")[PLUGIN] == PAUSED
        assert stage.pods("nvidia-device-plugin-daemonset", "gpu-1") == []

    story()


def test_the_note_of_a_pause_that_somebody_ended_goes() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")
        left_note = {"metadata": {"annotations": {names.DRIVER_MANAGER_PAUSE: "true"}}}
        await stage.user.patch_merge(resources.NODES, "gpu-1", left_note)
        await stage.rest(5)
        assert not notes(stage)
        await stage.label("gpu-1", PLUGIN, PAUSED)
        await stage.rest(60)
        assert stage.labels("gpu-1")[PLUGIN] == PAUSED, "the next pause is somebody else's"

    story()


def test_while_a_driver_pod_is_to_come_all_of_it_is_the_driver_managers() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.rest(30)
        pod = stage.driver_pod("gpu-1")["metadata"]["name"]
        await stage.user.delete(resources.PODS, pod, names.DEFAULT_NAMESPACE)
        await stage.rest(0.5)
        await left(stage, told=True)
        await stage.rest(2)
        assert stands(stage) == (["gpu-1"], PAUSED, f"vm_{PAUSED}", True)
        await stage.rest(300)
        assert stands(stage) == GIVEN_BACK, "the labels by the driver manager, and the cordon as that has ended"

    story()


async def wait_for_a_window(stage: Stage, mode: str) -> None:
    """Ask for another driver, which no node gets for a day."""
    await apply(stage, windows=[window(86_400, 90_000)])
    await stage.rest(5)
    await ask(stage, mode)
    await stage.until(lambda: stage.hold("gpu-1") == "WindowShut")


@test_removed.MODES
def test_a_node_that_waits_for_its_turn_is_given_back_when_the_driver_manager_has_ended(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await test_removed.installed(stage, mode)
        await wait_for_a_window(stage, mode)
        (before,) = stage.drivers()
        await left(stage, told=True)
        await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {
            "annotations": {names.DRIVER_MANAGER_PAUSE: None}, "labels": {PLUGIN: "true", CLIENT: "vm"}}})
        await stage.rest(60)
        assert (stage.cordons(), notes(stage)) == ([], set())
        assert (stage.hold("gpu-1"), stage.drivers()) == ("WindowShut", [before])
        await stage.until(lambda: before not in stage.drivers() and stage.all_are(State.DONE), within=2 * 86_400)
        assert stage.cordons() == []

    story()


def test_the_cordon_of_a_driver_manager_at_work_stays_on_a_node_that_waits_for_its_turn() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await wait_for_a_window(stage, test_removed.COMPILED)
        pod = stage.driver_pod("gpu-1")["metadata"]["name"]
        await stage.user.delete(resources.PODS, pod, names.DEFAULT_NAMESPACE)
        await stage.rest(0.5)
        await left(stage, told=True)
        await stage.rest(2)
        assert stage.cordons() == ["gpu-1"]
        await stage.rest(600)
        assert (stage.cordons(), notes(stage)) == ([], set())

    story()


def test_it_is_told_whose_cordon_it_is() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.kill_operator()
        await left(stage)
        assert any("cordoned by the driver manager" in line for line in await shown(stage))
        assert "by the driver manager: it lifts it" in (await explained(stage))["CORDONED"]
        found = await explanation_of(stage, "gpu-1")
        assert as_json(found, Leader("nobody", found.now))["cordonOwner"] == "driver-manager"

    story()


def test_the_note_of_a_cordon_that_somebody_lifted_goes() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await left(stage, cordoned=False)
        await stage.rest(5)
        assert not noted(stage)
        await stage.cordon("gpu-1")
        await stage.rest(60)
        assert stage.cordons() == ["gpu-1"], "the next cordon is somebody else's"

    story()


def test_an_upgrade_makes_the_cordon_its_own_and_lifts_it_at_its_end() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.upgrade_to(NEW)
        await left(stage)
        await stage.until(lambda: stage.state("gpu-1") == "validation-required")
        assert stage.cordons() == ["gpu-1"]
        assert not noted(stage)
        await stage.until(lambda: stage.state("gpu-1") == "upgrade-done")
        await stage.rest(30)
        assert "gpu-1" not in stage.cordons()

    story()


async def cordoned_anew(stage: Stage, by: str = "") -> None:
    """Leave a killed driver manager's note under a cordon that a person made after lifting the first, while no operator runs."""
    await stage.kill_operator()
    await left(stage)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {
        "metadata": {"annotations": {names.DRIVER_MANAGER_PAUSE: None}, "labels": {PLUGIN: "true", CLIENT: "vm"}}})
    await stage.cordon("gpu-1", False)
    await stage.rest(600)
    if by:
        cordon_as(stage, "gpu-1", by)
    await stage.cordon("gpu-1")
    await stage.restart_operator()
    await stage.rest(60)


@pytest.mark.parametrize("label", ["pre-installed", "true"])
@pytest.mark.parametrize("by", ["", "kubectl-cordon"])
def test_a_cordon_that_came_after_the_driver_managers_was_lifted_stays(label: str, by: str) -> None:
    """With a driver pod on the node, and without; with managedFields that say whose it is, and without."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.label("gpu-1", names.DEPLOY_DRIVER, label)
        await stage.rest(60)
        await cordoned_anew(stage, by)
        assert stage.cordons() == ["gpu-1"]
        assert noted(stage) is not bool(by), "the note goes where it is known not to be true"
        told = (await explained(stage))["CORDONED"]
        assert ("by somebody else, not by the upgrade" if by else "or by somebody else since: it stays until") in told

    story()


@pytest.mark.parametrize("by", ["", "kubectl-cordon"])
def test_an_upgrade_does_not_make_such_a_cordon_its_own(by: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await cordoned_anew(stage, by)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == "upgrade-done" and stage.state("gpu-2") == "upgrade-done")
        await stage.rest(60)
        assert stage.cordons() == ["gpu-1"]

    story()


def test_a_cordon_that_managed_fields_tell_to_be_the_driver_managers_is_lifted() -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")
        await stage.rest(60)
        cordon_as(stage, "gpu-1", names.FIELD_MANAGER)
        noted_alone = {"metadata": {"annotations": {names.DRIVER_MANAGER_CORDON: "true"}}}
        await stage.user.patch_merge(resources.NODES, "gpu-1", noted_alone)
        await stage.rest(60)
        assert (stage.cordons(), notes(stage)) == ([], set())

    story()


@pytest.mark.parametrize("mode", ["ClusterPolicy", "precompiled", "NVIDIADriver"])
def test_labels_that_are_paused_beside_a_driver_that_is_ready_are_given_back_whoever_paused_them(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.kill_operator()
        await stage.label("gpu-1", PLUGIN, PAUSED)
        await stage.label("gpu-1", CLIENT, f"vm_{PAUSED}")
        await stage.until(lambda: not stage.pods(names.DEVICE_PLUGIN_APP, "gpu-1"))
        await stage.restart_operator()
        await stage.until(lambda: bool(stage.pods(names.DEVICE_PLUGIN_APP, "gpu-1")), within=60)
        assert stands(stage) == GIVEN_BACK

    story()


@pytest.mark.parametrize("mode", [test_removed.COMPILED, test_removed.PRECOMPILED, test_removed.NVIDIADRIVER])
@pytest.mark.parametrize("late", [False, True], ids=["validation-required", "upgrade-failed"])
def test_so_they_are_on_a_node_whose_new_driver_waits_to_be_validated(mode: str, late: bool) -> None:
    """As where somebody applies a Node as it was before: without its validator pod it would fail, and hold the others."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await test_removed.installed(stage, mode)
        (old,) = stage.drivers()
        await ask(stage, mode)
        await stage.until(lambda: State.VALIDATION_REQUIRED in stage.states().values())
        node = next(name for name, state in stage.states().items() if state == State.VALIDATION_REQUIRED)
        if late:
            await stage.kill_operator()
        for label in (PLUGIN, names.DEPLOY_VALIDATOR):
            await stage.label(node, label, PAUSED)
        if late:
            await stage.rest(1200)
            await stage.label(node, names.UPGRADE_STATE, State.FAILED)
            await stage.restart_operator()
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=1200)
        assert (stage.cordons(), stage.labels(node)[PLUGIN]) == ([], "true")

    story()


@on_stage(gpu_nodes=1)
async def test_who_sets_such_a_label_in_that_very_moment_has_the_last_word(stage: Stage) -> None:
    await stage.installed()
    await stage.kill_operator()
    await stage.label("gpu-1", PLUGIN, PAUSED)

    def first(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if request.method == "PATCH" and request.path.endswith("/nodes/gpu-1") and stage.labels("gpu-1")[PLUGIN] == PAUSED:
            stage.sandbox.store.modify("nodes", None, "gpu-1", lambda node: node["metadata"]["labels"].update({PLUGIN: "false"}))
        return proceed()

    stage.transport.interfere = first
    await stage.restart_operator()
    await stage.rest(120)
    assert stage.labels("gpu-1")[PLUGIN] == "false"
