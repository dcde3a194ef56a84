"""Drivers that are to go: switched off, or of an NVIDIADriver that is deleted. Judged from the machines: none goes from under a
pod that uses its GPUs, and each goes within the limits that the node is under.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuward import names
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.objects import is_terminating
from kubesandbox.store import Event
from tests.journeys.looking import condition_of, explanation_of, headline_of, obey, reason_of, status_of
from tests.journeys.stage import NEW, OLD, POLICY, Object, Stage, on_stage
from tests.journeys.test_moves import Watcher, be_precompiled, uids, with_one_owner, with_workloads
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver, owners, set_driver
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_switched_off import off_with
from tests.journeys.test_two_leaders import first_leads, operator

COMPILED, PRECOMPILED, NVIDIADRIVER = "compiled", "precompiled", "NVIDIADriver"
MODES = pytest.mark.parametrize("mode", [COMPILED, PRECOMPILED, NVIDIADRIVER])
OF_POLICY = pytest.mark.parametrize("mode", [COMPILED, PRECOMPILED])
DEFAULT = "default"


async def installed(stage: Stage, mode: str, *, auto: bool = True, out: int = 1) -> None:
    """Wait until drivers of a mode run on all nodes, of which so many may be out of service at once."""
    if mode == NVIDIADRIVER:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver(DEFAULT, {"autoUpgrade": auto, "maxUnavailable": out}, default=True))
        await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
        return
    await (be_precompiled(stage) if mode == PRECOMPILED else stage.installed())
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", auto)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", out)
    await stage.rest(30)


async def remove(stage: Stage, mode: str, propagation: str = "") -> None:
    """Ask for the end of all drivers."""
    if mode == NVIDIADRIVER:
        await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT, propagation=propagation)
    else:
        await stage.patch_policy("driver/enabled", False)


def driver_sets(stage: Stage) -> list[str]:
    sets = [ds["metadata"] for ds in stage.sandbox.store.list("daemonsets.apps")]
    return [meta["name"] for meta in sets if (meta.get("labels") or {}).get(names.COMPONENT_LABEL) == names.DRIVER_COMPONENT
            or meta["name"].startswith(names.DRIVER_APP)]


async def removed(stage: Stage, watcher: Watcher) -> None:
    """Wait until no driver is left, and nothing of its removal."""
    await stage.until(lambda: watcher.torn or not driver_pods(stage), within=3600)
    await stage.until(lambda: not stage.cordons() and set(stage.states().values()) == {""} and not driver_sets(stage))
    await stage.rest(300)
    assert (watcher.torn, driver_pods(stage), driver_sets(stage), stage.cordons()) == ([], [], [], [])
    assert set(stage.states().values()) == {""}


def users(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.workload_pods()}


@MODES
def test_drivers_go_node_by_node(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        watcher = await with_workloads(stage)
        await remove(stage, mode)
        await removed(stage, watcher)
        assert (stage.most_in_progress, stage.most_unavailable) == (1, 1)
        for node in stage.states():
            assert State.POD_DELETION_REQUIRED in stage.entered(node)
        if mode != NVIDIADRIVER:
            assert condition_of(stage)[:2] == ("Unknown", "NoNodes")
            assert await headline_of(stage) == f"ClusterPolicy cluster-policy: {off_with(3)}"
            assert condition_of(stage)[2] == off_with(3)
            assert stage.policy_status()["state"] == "ready"

    scenario()


@MODES
def test_a_budget_keeps_a_driver_as_long_as_it_keeps_its_users(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        watcher = await with_workloads(stage)
        stage.set_budget("train-gpu-1", 0)
        before = users(stage)
        await remove(stage, mode)
        await stage.until(lambda: not driver_pods(stage, "gpu-2"))
        await stage.rest(600)
        assert (len(driver_pods(stage, "gpu-1")), stage.cordons(), watcher.torn) == (1, [], [])
        assert stage.hold("gpu-1") == "BudgetBlocks"
        assert "train-gpu-1" in reason_of(await explanation_of(stage, "gpu-1"))
        assert condition_of(stage)[:2] == ("False", "Blocked")
        assert len(before & users(stage)) == 1
        told = "drivers are being removed: 1 of 2 nodes have none any more"
        assert told in condition_of(stage)[2]
        assert "1 BudgetBlocks (gpu-1)" in condition_of(stage)[2]
        assert told in await headline_of(stage)
        offers = [await headline_of(stage), *(await status_of(stage))["warnings"]]
        assert any("; 1 node offers GPUs by a driver that is still loaded and that nobody serves" in line
                   or line.startswith("gpu-2 offers GPUs that no driver pod serves") for line in offers), offers
        assert "0 of 2 nodes up to date" not in await headline_of(stage)
        counts = (await status_of(stage))["counts"]
        assert (counts["removing"], counts["removed"]) == (1, 1)
        stage.set_budget("train-gpu-1", 1)
        await removed(stage, watcher)

    scenario()


@MODES
@pytest.mark.parametrize("setting", ["autoUpgrade", "sandboxWorkloads"])
def test_nobody_is_evicted_for_it_where_upgrades_are_not_automatic(mode: str, setting: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, auto=setting != "autoUpgrade")
        if setting == "sandboxWorkloads":
            await stage.patch_policy("sandboxWorkloads", {"enabled": True})
            await stage.rest(30)
        await stage.deploy("train", node="gpu-1")
        watcher, before = Watcher(stage), users(stage)
        await remove(stage, mode)
        await stage.until(lambda: len(driver_pods(stage)) == 1)
        await stage.rest(1200)
        assert (len(driver_pods(stage, "gpu-1")), stage.cordons(), watcher.torn, users(stage)) == (1, [], [], before)
        pod = stage.workload_pods()[0]["metadata"]["name"]
        assert stage.hold("gpu-1") == "DriverKept"
        told = reason_of(await explanation_of(stage, "gpu-1"))
        assert told == (f"keeps its driver, which is to go, while pod {WORKLOAD_NAMESPACE}/{pod} is there (1 in all): "
                        "automatic upgrades are off, so nobody is evicted for that")
        assert condition_of(stage)[:2] == ("False", "Blocked")
        assert "1 DriverKept (gpu-1)" in condition_of(stage)[2]
        await stage.user.delete(resources.DEPLOYMENTS, "train", WORKLOAD_NAMESPACE)
        await removed(stage, watcher)

    scenario()


@OF_POLICY
def test_nodes_that_have_not_begun_notice_nothing_when_drivers_are_switched_on_again(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        watcher, loaded = await with_workloads(stage), stage.drivers()
        before = uids(stage)
        await remove(stage, mode)
        await stage.until(lambda: len(driver_pods(stage)) == 2)
        await stage.patch_policy("driver/enabled", True)
        await stage.until(lambda: stage.all_are(State.DONE) and not stage.cordons() and len(driver_pods(stage)) == 3)
        await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"))
        await stage.rest(300)
        assert len(before & uids(stage)) >= 1
        assert len(before - uids(stage)) <= 2, "the one that was gone, and the one that was about to go"
        assert (watcher.torn, stage.drivers(), stage.most_in_progress) == ([], loaded, 1)

    scenario()


@MODES
def test_an_operator_that_is_killed_again_and_again_tears_nothing(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await first_leads(stage)
        await installed(stage, mode)
        watcher = await with_workloads(stage)
        await remove(stage, mode)
        for _ in range(60):
            await stage.rest(1.7)
            await stage.restart_operator(operator(stage, "first", stage.transport))
        await removed(stage, watcher)
        assert (stage.most_in_progress, stage.most_unavailable) == (1, 1)

    scenario()


@MODES
def test_a_removal_at_once_is_what_somebody_asked_for(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        await with_workloads(stage)
        before = users(stage)
        await apply(stage, removeAtOnce=True)
        await stage.rest(60)
        await remove(stage, mode)
        await stage.until(lambda: not driver_pods(stage), within=60)
        await stage.rest(120)
        assert (users(stage), driver_sets(stage), stage.cordons()) == (before, [], [])

    scenario()


@MODES
def test_a_removal_that_is_under_way_can_be_had_at_once(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, auto=False)
        await with_workloads(stage)
        await remove(stage, mode)
        await stage.until(lambda: stage.hold("gpu-1") == "DriverKept")
        await apply(stage, removeAtOnce=True)
        await stage.until(lambda: not driver_pods(stage), within=60)
        await stage.until(lambda: not driver_sets(stage) and set(stage.states().values()) == {""})

    scenario()


@MODES
def test_a_pod_that_nothing_may_evict_keeps_its_driver_and_is_named(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        stage.run_pod("alone", "gpu-1")
        await stage.rest(30)
        watcher = Watcher(stage)
        await remove(stage, mode)
        await stage.until(lambda: not driver_pods(stage, "gpu-2"))
        await stage.rest(600)
        assert (stage.hold("gpu-1"), stage.cordons(), len(driver_pods(stage, "gpu-1"))) == ("ProtectedPods", [], 1)
        await stage.user.delete(resources.PODS, "alone", WORKLOAD_NAMESPACE)
        await removed(stage, watcher)

    scenario()


@MODES
def test_a_node_that_is_not_ready_keeps_its_driver_and_holds_no_other(mode: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, out=2)
        watcher = await with_workloads(stage)
        stage.sandbox.set_node_ready("gpu-2", False)
        await stage.rest(1)
        await remove(stage, mode)
        await stage.until(lambda: [pod["spec"]["nodeName"] for pod in driver_pods(stage)] == ["gpu-2"], within=3600)
        assert stage.hold("gpu-2") == "NodeNotReady"
        stage.sandbox.set_node_ready("gpu-2", True)
        await removed(stage, watcher)

    scenario()


@MODES
def test_driver_pods_that_somebody_deletes_meanwhile_stay_away(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, auto=False)
        await with_workloads(stage)
        await remove(stage, mode)
        await stage.until(lambda: stage.hold("gpu-1") == "DriverKept")
        pod = driver_pods(stage, "gpu-1")[0]["metadata"]["name"]
        await stage.user.delete(resources.PODS, pod, names.DEFAULT_NAMESPACE)
        await stage.until(lambda: not driver_pods(stage, "gpu-1") and stage.state("gpu-1") == "")
        await stage.rest(300)
        assert [len(driver_pods(stage, node)) for node in ("gpu-1", "gpu-2", "gpu-3")] == [0, 1, 1]
        assert stage.cordons() == []

    scenario()


@OF_POLICY
def test_a_daemonset_that_may_not_be_deleted_takes_no_driver_along(mode: str) -> None:
    refusing = [True]

    def keep(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if refusing[0] and request.method == "DELETE" and f"/daemonsets/{names.DRIVER_APP}" in request.path:
            return refusal(Forbidden("admission webhook denied the request"))
        return proceed()

    @on_stage(gpu_nodes=2, interfere=keep)
    async def scenario(stage: Stage) -> None:
        refusing[0] = False
        await installed(stage, mode)
        refusing[0] = True
        watcher = await with_workloads(stage)
        before = uids(stage)
        await remove(stage, mode)
        await stage.rest(600)
        assert (uids(stage), stage.cordons(), watcher.torn) == (before, [], [])
        refusing[0] = False
        await removed(stage, watcher)

    scenario()


def selector_of(daemonset: Object) -> list[str]:
    return list((daemonset["spec"]["template"]["spec"].get("nodeSelector") or {}).values())


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_nodes_of_a_deleted_nvidiadriver_go_to_another_one_as_they_are_emptied(propagation: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await label_pools(stage, a="gpu-1 gpu-2 gpu-3")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a"), nvidia_driver(DEFAULT, default=True, version=NEW))
        await stage.until(lambda: stage.all_are(State.DONE) and stage.drivers() == [OLD])
        watcher = await with_workloads(stage)
        flipped: list[str] = []

        def note(event: Event) -> None:
            def owner(node: Object | None) -> str:
                return str(((node or {}).get("metadata", {}).get("labels") or {}).get(names.DRIVER_OWNER, ""))
            if owner(event.old) != owner(event.obj):
                flipped.append(str((event.old or event.obj)["metadata"]["labels"].get(names.UPGRADE_STATE)))

        stage.sandbox.store.subscribe(note, "nodes")
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a", propagation=propagation)
        await stage.until(lambda: watcher.torn or stage.finished(), within=3600)
        assert (watcher.torn, stage.most_in_progress, set(owners(stage).values())) == ([], 1, {DEFAULT})
        assert flipped == [State.POD_RESTART_REQUIRED] * 3
        await stage.until(lambda: not [ds for ds in stage.sandbox.store.list("daemonsets.apps") if "a" in selector_of(ds)])

    scenario()


@on_stage(gpu_nodes=3)
async def test_a_deleted_nvidiadriver_s_own_limits_hold_to_the_end(stage: Stage) -> None:
    await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 0)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "100%")
    watcher = await with_one_owner(stage, {"maxParallelUpgrades": 2, "maxUnavailable": 2})
    await remove(stage, NVIDIADRIVER)
    await stage.restart_operator()
    await removed(stage, watcher)
    assert (stage.most_in_progress, stage.most_unavailable) == (2, 2)


@on_stage(gpu_nodes=2)
async def test_a_deleted_nvidiadriver_is_named_as_long_as_its_drivers_run(stage: Stage) -> None:
    watcher = await with_one_owner(stage, {"autoUpgrade": False})
    await remove(stage, NVIDIADRIVER)
    await stage.until(lambda: stage.hold("gpu-1") == "DriverKept")
    told = await explanation_of(stage, "gpu-1")
    assert told.policy == ("NVIDIADriver default, which is deleted: this node loses the driver once nothing uses it, as no other "
                           "NVIDIADriver is for it")
    assert watcher.torn == []


@on_stage(gpu_nodes=2)
async def test_without_a_clusterpolicy_a_deleted_nvidiadriver_takes_its_drivers_along(stage: Stage) -> None:
    await with_one_owner(stage)
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(60)
    assert len(driver_pods(stage)) == 2
    await remove(stage, NVIDIADRIVER)
    await stage.until(lambda: not driver_pods(stage))


@on_stage(gpu_nodes=2)
async def test_a_clusterpolicy_that_goes_after_its_nvidiadrivers_takes_the_drivers_along(stage: Stage) -> None:
    await with_one_owner(stage, {"autoUpgrade": False})
    await remove(stage, NVIDIADRIVER)
    await stage.until(lambda: stage.hold("gpu-1") == "DriverKept")
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.until(lambda: not driver_pods(stage) and not driver_sets(stage))
    await stage.until(lambda: not stage.cordons() and set(stage.states().values()) == {""})


@on_stage(gpu_nodes=2)
async def test_an_edit_of_an_upgrade_policy_restarts_no_driver(stage: Stage) -> None:
    await with_one_owner(stage)
    before = uids(stage)
    await set_driver(stage, DEFAULT, {"upgradePolicy": {"maxParallelUpgrades": 2}})
    await stage.rest(300)
    assert (uids(stage), stage.cordons()) == (before, [])
    assert stage.all_are(State.DONE)


@OF_POLICY
def test_what_would_help_is_told_where_upgrades_are_not_automatic(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, auto=False)
        watcher = await with_workloads(stage)
        await remove(stage, mode)
        await stage.until(lambda: stage.hold("gpu-1") == "DriverKept")
        told = await explanation_of(stage, "gpu-1")
        command = next(fix.commands[0] for fix in told.remedies if "autoUpgrade" in fix.commands[0])
        await obey(stage, command)
        await removed(stage, watcher)

    scenario()


@pytest.mark.parametrize(("mode", "hosts"), [(COMPILED, False), (COMPILED, True), (NVIDIADRIVER, False)])
def test_upgrades_that_are_off_for_virtual_machines_are_not_said_to_be_on_by_autoupgrade(mode: str, hosts: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.deploy("train", node="gpu-1")
        if hosts:
            await stage.label("gpu-2", names.WORKLOAD_CONFIG, "vm-passthrough")
        await stage.patch_policy("sandboxWorkloads", {"enabled": True})
        await stage.rest(60)
        await remove(stage, mode)
        await stage.until(lambda: stage.hold("gpu-1") == "DriverKept")
        machines = "set sandboxWorkloads.enabled: false, if no node is to be for virtual machines"
        end = "end the pods that use its GPUs, or wait for their end: 1 in all"
        remedies = (await explanation_of(stage, "gpu-1")).remedies
        assert [fix.do for fix in remedies] == ([end] if hosts or mode == NVIDIADRIVER else [machines, end])
        if not remedies[1:]:
            return
        await obey(stage, remedies[0].commands[0])
        await stage.until(lambda: not driver_pods(stage))

    scenario()


@MODES
def test_a_driver_goes_from_a_node_that_people_keep_validators_from(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.label("gpu-1", f"{names.DEPLOY_PREFIX}operator-validator", "false")
        await stage.rest(60)
        watcher = await with_workloads(stage)
        await remove(stage, mode)
        await removed(stage, watcher)

    scenario()


@on_stage(gpu_nodes=4)
async def test_a_node_is_cordoned_until_a_driver_pod_has_stopped_whose_daemonset_is_orphaned_meanwhile(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")

    def stopping() -> list[Object]:
        return [pod for pod in driver_pods(stage) if is_terminating(pod)]

    await stage.until(stopping)
    (pod,) = stopping()
    await stage.rest(0.3)
    (owner,) = [owner["name"] for owner in pod["metadata"]["ownerReferences"]]
    await stage.user.delete(resources.DAEMON_SETS, owner, names.DEFAULT_NAMESPACE, propagation="Orphan")
    await stage.rest(120)
    assert not driver_pods(stage, pod["spec"]["nodeName"])
    assert (watcher.torn, stage.cordons()) == ([], [])


@on_stage(gpu_nodes=3)
async def test_nodes_that_wait_without_the_driver_that_a_removal_took_are_named(stage: Stage) -> None:
    await installed(stage, NVIDIADRIVER, out=3)
    await apply(stage, waves=[{"name": "canary", "nodes": 1, "approval": "Required"}])
    await stage.rest(5)
    await set_driver(stage, DEFAULT, {"version": NEW})
    await stage.until(lambda: stage.hold("gpu-2") == stage.hold("gpu-3") == "ApprovalRequired")
    assert (await status_of(stage))["warnings"] == []
    await remove(stage, NVIDIADRIVER)
    await stage.until(lambda: not driver_pods(stage), within=600)
    await make(stage, nvidia_driver(DEFAULT, {"maxUnavailable": 3}, default=True, version=NEW))
    await stage.until(lambda: len(driver_pods(stage)) == 1 and stage.state("gpu-1") == State.DONE, within=900)
    await stage.rest(60)
    assert (stage.hold("gpu-2"), stage.hold("gpu-3")) == ("ApprovalRequired", "ApprovalRequired")
    (told,) = (await status_of(stage))["warnings"]
    assert told == "gpu-2, gpu-3 offer GPUs that no driver pod serves: gpuward explain gpu-2"
    assert any("its upgrade brings the next one" in note for note in (await explanation_of(stage, "gpu-2")).notes)


@on_stage(gpu_nodes=2)
async def test_a_driver_pod_that_stops_is_not_said_to_run_on(stage: Stage) -> None:
    await installed(stage, NVIDIADRIVER)
    await remove(stage, NVIDIADRIVER)
    await stage.until(lambda: not driver_pods(stage), within=600)
    await stage.rest(60)
    for node in stage.states():
        told = [message for message in stage.events(node) if "no NVIDIADriver selects this node" in message]
        assert told == ["NotSelected: no NVIDIADriver selects this node, so it gets no driver pod"]
