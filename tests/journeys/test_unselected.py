"""Nodes that no NVIDIADriver makes a driver for: what is said of them, and what becomes of them when that changes."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest

from gpuward import names
from gpuward.cli.explain import show
from gpuward.cli.leader import Leader
from gpuward.kube import resources
from gpuward.model.abandoned import WHAT_TO_DO
from gpuward.model.states import State
from gpuward.sandbox.machine import HOST_DRIVER_ANNOTATION
from kubesandbox.sim.objects import is_ready
from tests.cli.test_check import checked, lines
from tests.journeys.looking import condition_of, drivers_of, explanation_of, headline_of, obey, reason_of, row_of, status_of
from tests.journeys.stage import NEW, OLD, POLICY, Object, Stage, on_stage
from tests.journeys.test_moves import with_one_owner, with_workloads
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, driver_pods, label_pools, make, nvidia_driver, set_driver

NODES = ("gpu-3", "gpu-4")
DEFAULT = '{"spec":{"default":true,"nodeSelector":null}}'


def total(stage: Stage) -> str:
    """Return the metric that counts the nodes of the rollout."""
    text = stage.operator.metrics.text().decode().splitlines()
    return next(line.split()[-1] for line in text if line.startswith("gpu_operator_nodes_upgrades_total "))


async def delete_driver_pods(stage: Stage, *nodes: str) -> None:
    for node in nodes:
        for pod in [*stage.pods(names.DRIVER_APP, node), *driver_pods(stage, node)][:1]:
            await stage.user.delete(resources.PODS, pod["metadata"]["name"], names.DEFAULT_NAMESPACE)


async def switched(stage: Stage, *drivers: Object) -> None:
    """Leave drivers to NVIDIADrivers, of which x is for gpu-1 and gpu-2 alone."""
    await stage.installed()
    await label_pools(stage, x="gpu-1 gpu-2")
    await make(stage, nvidia_driver("x", ALL_AT_ONCE), *drivers)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.until(lambda: all("x" in stage.labels(node).get(names.DRIVER_OWNER, "") for node in ("gpu-1", "gpu-2"))
                      and stage.state("gpu-1") == stage.state("gpu-2") == State.DONE and stage.hold("gpu-1") == "", within=3600)
    await stage.rest(60)


@on_stage(gpu_nodes=4)
async def test_nodes_that_no_nvidia_driver_selects_say_so_with_and_without_a_driver(stage: Stage) -> None:
    await switched(stage)
    for node in NODES:
        told = await explanation_of(stage, node)
        pod = driver_pods(stage, node)[0]["metadata"]["name"]
        assert reason_of(told) == f"no NVIDIADriver selects this node, so it gets no driver pod after {pod}, which runs on"
        assert told.policy == "ClusterPolicy cluster-policy: drivers are left to NVIDIADrivers, and none of them is for this node"
        assert not any("driver.owner" in note for note in told.notes)
    assert condition_of(stage)[:2] == ("False", "DriversNotReady")
    await delete_driver_pods(stage, *NODES)
    await stage.rest(120)
    told_all = await status_of(stage)
    assert (told_all["counts"]["total"], told_all["counts"]["upToDate"]) == (4, 2)
    assert condition_of(stage)[:2] == ("False", "DriversNotReady")
    assert "2 of 4 nodes up to date" in condition_of(stage)[2]
    assert "2 NotSelected (gpu-3, gpu-4)" in condition_of(stage)[2]
    told = await explanation_of(stage, "gpu-3")
    assert reason_of(told) == "no NVIDIADriver selects this node, so it gets no driver pod"
    assert [fix.commands for fix in told.remedies] == [("kubectl label node gpu-3 pool=x --overwrite",)]
    assert not any("driver.owner" in note for note in told.notes)
    await stage.restart_operator()
    await stage.rest(60)
    assert stage.hold("gpu-3") == "NotSelected"
    await stage.label("gpu-3", "pool", "x")
    await stage.label("gpu-4", "pool", "x")
    await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"))
    assert stage.all_are(State.DONE)
    assert stage.cordons() == []


def offered(stage: Stage, node: str) -> str:
    """Return how many GPUs a node has to give."""
    return str((stage.sandbox.store.find("nodes", None, node) or {})["status"]["allocatable"]["nvidia.com/gpu"])


@on_stage(gpu_nodes=2)
async def test_a_node_whose_nvidia_driver_is_deleted_and_that_offers_gpus_on_is_told_of_and_what_helps(stage: Stage) -> None:
    await stage.installed()
    await label_pools(stage, x="gpu-1")
    by_product = nvidia_driver("y", ALL_AT_ONCE)
    by_product["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": stage.labels("gpu-2")["nvidia.com/gpu.product"]}
    other = nvidia_driver("x", ALL_AT_ONCE)
    other["spec"]["nodeSelector"] = {"pool": "x", "nvidia.com/gpu.product": stage.labels("gpu-1")["nvidia.com/gpu.product"]}
    await make(stage, other, by_product)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(60)
    await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"), within=3600)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "y")
    await stage.until(lambda: stage.hold("gpu-2") == "NotSelected" and not driver_pods(stage, "gpu-2"), within=600)
    await stage.rest(60)
    assert stage.sandbox.machine("gpu-2").server == "", "a pod that is put there finds no driver"
    assert offered(stage, "gpu-2") != "0"
    assert (await status_of(stage))["warnings"] == ["gpu-2 offers GPUs that no driver pod serves: gpuward explain gpu-2"]
    found = await explanation_of(stage, "gpu-2")
    assert f"its driver is still loaded, nobody serves it, and the node offers its GPUs: {WHAT_TO_DO}" in found.notes
    assert found.remedies, "labels that discovery writes nobody can be told to set"
    await stage.label("gpu-2", names.DEPLOY_OPERANDS, "false")
    await stage.rest(120)
    assert offered(stage, "gpu-2") == "0"
    assert (await status_of(stage))["warnings"] == []


@pytest.mark.parametrize("bare", [("gpu-1",), ("gpu-1", "gpu-2")])
def test_no_node_is_emptied_for_a_driver_that_no_daemonset_makes(bare: tuple[str, ...]) -> None:
    """Nobody knows which operating system it runs, so that its NVIDIADriver has no DaemonSet for it."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        watch = await with_workloads(stage)
        for node in bare:
            for key in (names.NFD_OS_ID, names.NFD_OS_VERSION):
                await stage.label(node, key, None)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE, default=True))
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.rest(7200)
        assert (stage.cordons(), watch.torn, stage.drivers()) == ([], [], [OLD])
        assert len([pod for pod in stage.workload_pods() if is_ready(pod)]) == 2
        for node in bare:
            told = await explanation_of(stage, node)
            assert reason_of(told) == "waits for the DaemonSet to make a driver pod on this node"
            unsaid = "no driver pod is made here: node feature discovery has not said which operating system"
            assert any(note.startswith(unsaid) for note in told.notes)
        for node in bare:
            await stage.label(node, names.NFD_OS_ID, "ubuntu")
            await stage.label(node, names.NFD_OS_VERSION, "22.04")
        await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"), within=7200)
        assert watch.torn == []

    story()


class WithHostDrivers(Stage):
    """gpu-3 and gpu-4 have a driver of their own."""

    def _nodes(self) -> list[Object]:
        nodes = super()._nodes()
        for node in nodes:
            if node["metadata"]["name"] in NODES:
                node["metadata"].setdefault("annotations", {})[HOST_DRIVER_ANNOTATION] = OLD
        return nodes


@on_stage(gpu_nodes=3)
async def test_a_node_that_registers_again_as_its_nvidiadriver_s_drivers_go_stays_in_the_totals(stage: Stage) -> None:
    """The driver that is left in its kernel is no driver of the host's."""
    await with_one_owner(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
    await stage.until(lambda: "upgrade-required" in stage.states().values())
    await stage.user.delete(resources.NODES, "gpu-1")
    await stage.rest(5)
    stage.sandbox.register_node("gpu-1")
    await stage.rest(900)
    assert {stage.hold(node) for node in ("gpu-1", "gpu-2", "gpu-3")} == {"NotSelected"}
    assert condition_of(stage)[2].startswith("0 of 3 nodes up to date")


@on_stage(gpu_nodes=4, kind=WithHostDrivers)
async def test_nodes_with_a_driver_of_their_own_that_no_nvidia_driver_selects_lack_nothing(stage: Stage) -> None:
    await label_pools(stage, x="gpu-1 gpu-2")
    await make(stage, nvidia_driver("x", ALL_AT_ONCE))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"))
    assert [stage.labels(node)[names.DEPLOY_DRIVER] for node in NODES] == ["true", "true"], "no driver manager ever ran there"
    assert condition_of(stage)[2].startswith("2 of 2 nodes up to date")
    told = await explanation_of(stage, "gpu-3")
    assert (told.status, reason_of(told)) == (None, "no NVIDIADriver selects it")
    await set_driver(stage, "x", {"version": NEW})
    await stage.until(lambda: stage.driver("gpu-1") == stage.driver("gpu-2") == NEW and condition_of(stage)[1] == "UpToDate")


@on_stage(gpu_nodes=4)
async def test_nodes_whose_nvidia_driver_is_in_a_conflict_name_it(stage: Stage) -> None:
    await label_pools(stage, x="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("x", ALL_AT_ONCE))
    await stage.until(lambda: stage.state("gpu-1") == stage.state("gpu-2") == State.DONE)
    await make(stage, nvidia_driver("y", ALL_AT_ONCE, nodeSelector={"kubernetes.io/os": "linux"}))
    await stage.rest(120)
    why = "multiple NVIDIADrivers match the same node gpu-1: [x y]"
    for node in NODES:
        told = await explanation_of(stage, node)
        assert reason_of(told) == f"this node gets no driver pod: NVIDIADriver y cannot be followed, {why}"
        assert not any("driver.owner" in note for note in told.notes)
    assert condition_of(stage)[0] == "False"
    assert "2 DriverRefused (gpu-3, gpu-4)" in condition_of(stage)[2]
    await stage.user.delete(resources.NVIDIA_DRIVERS, "x")
    await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"), within=3600)
    assert {stage.labels(node)[names.DRIVER_OWNER] for node in stage.states()} == {"y"}


@on_stage(gpu_nodes=2)
async def test_a_node_that_two_nvidia_drivers_select_and_none_has_names_both(stage: Stage) -> None:
    await make(stage, *(nvidia_driver(name, nodeSelector={"kubernetes.io/os": "linux"}) for name in "xy"))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(120)
    told = await explanation_of(stage, "gpu-2")
    assert reason_of(told) == "this node gets no driver pod: multiple NVIDIADrivers match the same node gpu-2: [x y]"
    assert condition_of(stage)[:2] == ("False", "DriversNotReady")


@on_stage(gpu_nodes=2)
async def test_a_node_for_which_a_refused_nvidia_driver_may_be_names_it(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("x", {"maxUnavailable": "few"}))
    await stage.rest(120)
    told = await explanation_of(stage, "gpu-1")
    assert reason_of(told) == ("no NVIDIADriver selects this node, so it gets no driver pod; "
                            "NVIDIADriver x cannot be followed, see its condition")


@pytest.mark.parametrize("installed", [False, True])
def test_no_nvidiadriver_at_all_is_no_pause(installed: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        if installed:
            await stage.installed()
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.until(lambda: condition_of(stage)[:2] == ("False", "DriversNotReady"))
        await stage.rest(120)
        assert condition_of(stage)[:2] == ("False", "DriversNotReady")
        assert "2 NotSelected (gpu-1, gpu-2)" in condition_of(stage)[2]
        assert "automatic upgrades are off" not in await headline_of(stage)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE | {"autoUpgrade": False}, default=True))
        await stage.until(lambda: condition_of(stage)[1] == "Paused", 3600)
        assert "automatic upgrades are off" in await headline_of(stage)

    story()


@pytest.mark.parametrize("crd", [False, True])
def test_a_mistyped_label_takes_no_node_out_of_the_totals(crd: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        if crd:
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("a", ALL_AT_ONCE, default=True))
            await stage.rest(30)
            await stage.until(lambda: condition_of(stage)[1] == "UpToDate", 3600)
        await stage.label("gpu-1", names.DEPLOY_DRIVER, "True")
        await stage.rest(300)
        assert condition_of(stage)[1] == "DriversNotReady"
        assert "1 of 2 nodes up to date, 1 held" in await headline_of(stage)
        told = await explanation_of(stage, "gpu-1")
        assert reason_of(told).startswith("the label nvidia.com/gpu.deploy.driver=True is none of true, false and pre-installed")
        ((command,),) = [remedy.commands for remedy in told.remedies]
        assert command == "kubectl label node gpu-1 nvidia.com/gpu.deploy.driver=true --overwrite"
        await stage.label("gpu-1", names.DEPLOY_DRIVER, "true")
        await stage.until(lambda: condition_of(stage)[1] == "UpToDate", 3600)

    story()


@on_stage(gpu_nodes=2)
async def test_without_any_nvidiadriver_it_is_said_what_to_create_or_set_back(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(300)
    assert stage.hold("gpu-1") == "NotSelected"
    told = await explanation_of(stage, "gpu-1")
    (create, (back,)) = (remedy.commands for remedy in told.remedies)
    assert create == (f"kubectl get clusterpolicy {POLICY} -o jsonpath='{{.spec.driver}}'",), "a manifest would name a version"
    assert told.remedies[0].do == ("create an NVIDIADriver that selects the node, with the version that the node runs, "
                                   f"{stage.driver('gpu-1')}, or the one that you want: another one replaces it. The "
                                   "ClusterPolicy still has the settings that it was made with")
    assert stage.drivers() == [OLD]
    out = io.StringIO()
    with redirect_stdout(out):
        show(told, Leader("", stage.clock.now()))
    assert "none yet" not in out.getvalue(), "it had a state before"
    await obey(stage, back)
    await stage.until(lambda: condition_of(stage)[1] == "UpToDate", 3600)


@on_stage(gpu_nodes=2)
async def test_a_remedy_after_which_the_node_is_upgraded_by_itself_does_not_speak_of_another_hold(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a", ALL_AT_ONCE))
    await stage.rest(300)
    assert stage.hold("gpu-1") == "NotSelected"
    edit, remedy = (await explanation_of(stage, "gpu-1")).remedies
    assert edit.commands == ("kubectl edit nvidiadriver a",)
    assert remedy.commands == ("kubectl label node gpu-1 pool=a --overwrite",)
    assert not any("held by something else" in one.then for one in (edit, remedy))
    await stage.label("gpu-1", "pool", "a")
    await stage.until(lambda: stage.state("gpu-1") == "upgrade-done" and not stage.hold("gpu-1"), 3600)


@on_stage(gpu_nodes=2)
async def test_two_nvidia_drivers_on_one_node_are_told_of_where_people_look(stage: Stage) -> None:
    await make(stage, nvidia_driver("one", nodeSelector={names.GPU_PRESENT: "true"}),
               nvidia_driver("two", nodeSelector={"kubernetes.io/hostname": "gpu-2"}))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(120)
    conflict = "multiple NVIDIADrivers match the same node gpu-2: [one two]"
    both = await explanation_of(stage, "gpu-2")
    assert both.policy.endswith("drivers are left to NVIDIADrivers, and more than one of them is for this node: one, two")
    for node in ("gpu-1", "gpu-2"):
        told = await explanation_of(stage, node)
        pairs = (("one", "two"), ("two", "one"))
        assert [(each.do, each.commands) for each in told.remedies[:4]] == [
            *((f"let spec.nodeSelector of NVIDIADriver {name} select no node that {other} selects",
               (f"kubectl edit nvidiadriver {name}",)) for name, other in pairs),
            *((f"make NVIDIADriver {name} the default, without a nodeSelector: {other} then has the node in question",
               (f"kubectl patch nvidiadriver {name} --type merge -p '{DEFAULT}'",)) for name, other in pairs)]
        less = ["delete NVIDIADriver one: two then has the node in question; of its other nodes, 1 has no NVIDIADriver"]
        assert [each.do for each in told.remedies[4:]] == [
            *(less if node == "gpu-2" else []), "delete NVIDIADriver two: one then has the node in question"]
        assert told.remedies[-1].commands == ("kubectl delete nvidiadriver two",)
    assert "2 that no driver is for" in condition_of(stage)[2]
    assert f"{conflict} (and 1 more problem)" in await headline_of(stage)
    found = [line for line in lines(await checked(stage.sandbox), "fail") if line.startswith("fail policy")]
    assert found == [f"fail policy NVIDIADriver {name} cannot be followed: {conflict} -> kubectl edit nvidiadriver {name}"
                     for name in ("one", "two")]
    events = [(event["involvedObject"]["name"], event["type"], event["reason"], event["message"])
              for event in stage.sandbox.store.list("events", "default") if event["involvedObject"]["kind"] == "NVIDIADriver"]
    assert sorted(events) == [(name, "Warning", "ConflictingNodeSelector", conflict) for name in ("one", "two")]
    await set_driver(stage, "one", {"nodeSelector": {"kubernetes.io/hostname": "gpu-1"}})
    await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"), within=3600)


async def selected_by_both(stage: Stage) -> None:
    """Have two NVIDIADrivers for every node before any node is one's own."""
    await stage.installed()
    await make(stage, nvidia_driver("a", ALL_AT_ONCE, nodeSelector={}),
               nvidia_driver("b", ALL_AT_ONCE, nodeSelector={}, version=NEW))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(120)


@pytest.mark.parametrize(("asked", "comes"), [
    ("make NVIDIADriver a the default", NEW), ("make NVIDIADriver b the default", OLD), ("delete NVIDIADriver b", OLD)])
def test_each_way_out_of_a_conflict_brings_the_driver_that_it_names(asked: str, comes: str) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await selected_by_both(stage)
        told = await explanation_of(stage, "gpu-2")
        (remedy,) = (each for each in told.remedies if each.do.startswith(asked))
        assert f"{'b' if comes == NEW else 'a'} then has the 3 nodes in question" in remedy.do
        if asked.startswith("delete"):
            assert remedy.commands == ("kubectl delete nvidiadriver b",)
            await stage.user.delete(resources.NVIDIA_DRIVERS, "b")
        else:
            await obey(stage, remedy.commands[0])
        await stage.until(lambda: condition_of(stage)[1] == "UpToDate", 3600)
        assert stage.drivers() == [comes]

    story()


@on_stage(gpu_nodes=3)
async def test_to_delete_one_of_two_says_what_becomes_of_its_other_nodes(stage: Stage) -> None:
    await stage.installed()
    await make(stage, nvidia_driver("all", nodeSelector={}),
               nvidia_driver("two", nodeSelector={"kubernetes.io/hostname": "gpu-2"}))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(120)
    remedies = (await explanation_of(stage, "gpu-2")).remedies
    (deleted,) = (each for each in remedies if each.do.startswith("delete NVIDIADriver all"))
    assert deleted.do.endswith("two then has the node in question; of its other nodes, 2 have no NVIDIADriver (their drivers "
                               "stay)")
    assert "evicted" not in deleted.risk


@on_stage(gpu_nodes=3)
async def test_status_and_drivers_say_the_same_of_two_in_a_conflict(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a", nodeSelector={}), nvidia_driver("b", nodeSelector={}, version=NEW))
    await stage.rest(120)
    conflict = "multiple NVIDIADrivers match the same node gpu-1: [a b]"
    told = {one["name"]: one for one in (await status_of(stage))["operands"]}
    for name, nodes, version in (("a", 3, OLD), ("b", 0, NEW)):
        one = told[f"driver of NVIDIADriver {name}"]
        assert (one["ready"], one["desired"], one["waitsFor"]) == (0, nodes, f"no driver {version} is made: {conflict}")
    shown = await drivers_of(stage)
    rows = [line.split() for line in shown if line.startswith("NVIDIADriver") and "cannot be followed:" not in line]
    assert [(row[1], row[2], row[3]) for row in rows] == [("a", "3", OLD), ("b", "0", NEW)]
    assert [line for line in shown if "cannot be followed:" in line] == [
        f"NVIDIADriver {name} cannot be followed: {conflict}" for name in "ab"]
    assert (await row_of(stage, "gpu-1")).driver == f"none -> {OLD}"


@pytest.mark.parametrize(("wrong", "right", "field"), [
    ({"secretEnv": "not-there"}, {"secretEnv": None}, "spec.secretEnv: 'not-there'"),
    ({"image": "a b c"}, {"image": "driver"}, "spec.image: 'a b c'")])
def test_a_conflict_hides_nothing_that_is_wrong_besides(wrong: Object, right: Object, field: str) -> None:
    """What is said to help after a try brings the node its driver."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await selected_by_both(stage)
        await set_driver(stage, "b", wrong)
        await stage.rest(120)
        conflict = "multiple NVIDIADrivers match the same node gpu-1: [a b]"
        status = stage.sandbox.store.get("nvidiadrivers.nvidia.com", None, "b")["status"]
        (error,) = (each["message"] for each in status["conditions"] if each["status"] == "True")
        (told,) = (each for each in lines(await checked(stage.sandbox), "fail") if "policy NVIDIADriver b " in each)
        for text in (error, told, *(each for each in await drivers_of(stage, 300) if each.startswith("NVIDIADriver b cannot"))):
            assert conflict in text
            assert field in text
        remedies = {each.do: each for each in (await explanation_of(stage, "gpu-1")).remedies}
        assert "delete NVIDIADriver a: b then has the 2 nodes in question" not in remedies
        remedy = remedies["delete NVIDIADriver a, and correct NVIDIADriver b: its condition names the field"]
        assert remedy.commands[-1] == "kubectl delete nvidiadriver a && kubectl edit nvidiadriver b"
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
        await stage.rest(300)
        assert stage.drivers() == [OLD]
        await set_driver(stage, "b", right)
        await stage.until(lambda: stage.drivers() == [NEW] and condition_of(stage)[1] == "UpToDate", 3600)

    story()


@on_stage(gpu_nodes=1)
async def test_who_may_select_a_node_once_it_is_corrected_is_told(stage: Stage) -> None:
    """Neither NVIDIADriver was ever valid, so that nobody knows which nodes it selects."""
    await stage.installed()
    await make(stage, nvidia_driver("a", usePrecompiled=True, gdrcopy={"enabled": True, "image": "gdrdrv", "version": "1"}),
               nvidia_driver("b", nodeSelector={"nvidia.com/cuda.driver.major": "1"}))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(60)
    found = [(each.do.partition(": ")[0], each.commands) for each in (await explanation_of(stage, "gpu-1")).remedies]
    assert found == [(f"correct NVIDIADriver {name}", (f"kubectl edit nvidiadriver {name}",)) for name in "ab"]
