"""Drivers that have to come from another DaemonSet, while GPU pods run: another NVIDIADriver owns a node, or discovery's labels
say another operating system or kernel, or nothing. Judged from the machines: no driver is stopped under a pod that uses its GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuward import names
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_terminating
from kubesandbox.store import Event
from tests.journeys.kernels import runs_kernel
from tests.journeys.stage import NEW, OLD, POLICY, Object, Stage, on_stage, policy
from tests.journeys.test_nvidiadriver import (
    IS_DRIVER,
    condition,
    driver_pods,
    label_pools,
    make,
    nvidia_driver,
    owners,
    set_driver,
)

OTHER_KERNEL = "5.15.0-105-generic"


class Watcher:
    """Note each driver pod that is asked to stop while a pod of users has the GPUs of its machine open."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.torn: list[str] = []
        stage.sandbox.store.subscribe(self._saw, "pods")

    def _saw(self, event: Event) -> None:
        pod, meta = event.obj, event.obj["metadata"]
        node = pod["spec"].get("nodeName")
        begun = event.type == "DELETED" or (is_terminating(pod) and not (event.old and is_terminating(event.old)))
        if not node or not begun or not IS_DRIVER.items() <= (meta.get("labels") or {}).items():
            return
        users = [who for who in self._stage.sandbox.machine(node).users.values() if who.startswith(f"{WORKLOAD_NAMESPACE}/")]
        if users and self._stage.driver(node):
            self.torn.append(f"{meta['name']} on {node} under {', '.join(users)}, state {self._stage.state(node)}")


async def with_one_owner(stage: Stage, upgrade: dict[str, Any] | None = None) -> Watcher:
    """Let the default NVIDIADriver drive all nodes, and run a GPU pod on each."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", upgrade, default=True))
    await stage.until(lambda: stage.policy_status().get("state") == condition(stage, "default")[0] == "ready"
                      and stage.drivers() == [OLD])
    return await with_workloads(stage)


async def with_precompiled(stage: Stage) -> Watcher:
    """Let the ClusterPolicy's drivers be precompiled, and run a GPU pod on each node."""
    await be_precompiled(stage)
    return await with_workloads(stage)


async def be_precompiled(stage: Stage) -> None:
    await stage.patch_policy("driver/version", "580")
    await stage.patch_policy("driver/usePrecompiled", True)
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.all_are(State.DONE)
                      and all(mode(pod) == "true" for pod in driver_pods(stage)))


async def with_workloads(stage: Stage) -> Watcher:
    for node in stage.states():
        await stage.deploy(f"train-{node}", node=node)
    stage.watch_limits()
    return Watcher(stage)


def mode(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get(names.PRECOMPILED, ""))


def images(stage: Stage, node: str) -> list[str]:
    """Return the images of a node's driver containers."""
    return [pod["spec"]["containers"][0]["image"] for pod in driver_pods(stage, node)]


def uids(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in driver_pods(stage)}


async def at_rest(stage: Stage, watcher: Watcher) -> None:
    """Wait until every node is done and back in service, and see that no driver was torn away."""
    await stage.until(lambda: watcher.torn or (stage.all_are(State.DONE) and not stage.cordons()), within=3600)
    assert watcher.torn == []


@on_stage(gpu_nodes=4)
async def test_a_new_nvidia_driver_takes_nodes_from_the_default_one_by_one(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    await label_pools(stage, b="gpu-1 gpu-2 gpu-3")
    await make(stage, nvidia_driver("b", version=NEW))
    await stage.until(lambda: [stage.driver(f"gpu-{number}") for number in (1, 2, 3, 4)] == [NEW, NEW, NEW, OLD], within=3600)
    await at_rest(stage, watcher)
    assert list(owners(stage).values()) == ["b", "b", "b", "default"]
    assert (stage.most_in_progress, stage.most_unavailable) == (1, 1)
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        assert State.POD_DELETION_REQUIRED in stage.entered(node)
    await stage.until(lambda: condition(stage, "b")[0] == condition(stage, "default")[0] == "ready")
    await stage.until(lambda: stage.policy_status()["state"] == "ready")


@on_stage(gpu_nodes=3)
async def test_a_label_that_makes_a_node_another_one_s_takes_no_driver_from_under_a_pod(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1 gpu-2 gpu-3")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("b", version=NEW))
    await stage.installed()
    watcher = await with_workloads(stage)
    await stage.label("gpu-2", "pool", "b")
    await stage.until(lambda: stage.driver("gpu-2") == NEW)
    await at_rest(stage, watcher)
    assert owners(stage) == {"gpu-1": "a", "gpu-2": "b", "gpu-3": "a"}
    assert stage.most_in_progress == 1


@on_stage(gpu_nodes=3)
async def test_a_selector_that_is_edited_takes_no_driver_from_under_a_pod(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1 gpu-2 gpu-3")
    for node in stage.states():
        await stage.label(node, "zone", "z")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("b", version=NEW))
    await stage.installed()
    watcher, before = await with_workloads(stage), uids(stage)
    await set_driver(stage, "a", {"nodeSelector": {"pool": None, "zone": "z"}})
    await stage.rest(120)
    assert uids(stage) == before, "it selects the same nodes in other words"
    await set_driver(stage, "a", {"nodeSelector": {"pool": "nothing"}})
    await set_driver(stage, "b", {"nodeSelector": {"pool": None, "zone": "z"}})
    await stage.until(lambda: set(owners(stage).values()) == {"b"} and stage.drivers() == [NEW], within=3600)
    await at_rest(stage, watcher)
    assert (stage.most_in_progress, stage.most_unavailable) == (1, 1)


@on_stage(gpu_nodes=2)
async def test_a_node_that_nobody_selects_any_more_loses_its_driver_once_it_is_empty(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"))
    await stage.installed()
    watcher = await with_workloads(stage)
    await stage.label("gpu-2", "pool", None)
    await stage.until(lambda: not driver_pods(stage, "gpu-2") and not stage.cordons() and stage.state("gpu-2") == "")
    assert watcher.torn == []
    assert stage.driver("gpu-1") == OLD


@on_stage(gpu_nodes=2)
async def test_a_wish_that_is_taken_back_in_time_moves_nothing(stage: Stage) -> None:
    watcher = await with_one_owner(stage, {"maxUnavailable": 0})
    before = uids(stage)
    await label_pools(stage, b="gpu-1 gpu-2")
    await make(stage, nvidia_driver("b", version=NEW))
    await stage.until(lambda: set(stage.states().values()) == {State.UPGRADE_REQUIRED})
    await label_pools(stage, c="gpu-1 gpu-2")
    await at_rest(stage, watcher)
    assert uids(stage) == before


@on_stage(gpu_nodes=2)
async def test_while_upgrades_are_off_a_driver_stays_until_its_pod_is_deleted_by_hand(stage: Stage) -> None:
    watcher = await with_one_owner(stage, {"autoUpgrade": False})
    before = uids(stage)
    await label_pools(stage, b="gpu-1")
    await make(stage, nvidia_driver("b", version=NEW))
    await stage.until(lambda: stage.hold("gpu-1") == "MovePaused")
    await stage.rest(300)
    assert uids(stage) == before
    assert watcher.torn == []
    await stage.user.delete(resources.PODS, driver_pods(stage, "gpu-1")[0]["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.until(lambda: owners(stage)["gpu-1"] == "b")
    await stage.until(lambda: images(stage, "gpu-1") != [] and NEW in images(stage, "gpu-1")[0])
    assert stage.hold("gpu-2") == ""


@on_stage(gpu_nodes=3)
async def test_a_move_that_fails_stops_the_others_and_is_tried_again_by_the_rules(stage: Stage) -> None:
    await stage.user.create(resources.ROLLOUT_POLICIES, {
        "apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
        "spec": {"failureBudget": {"nodes": 0, "percent": 0}, "retries": 0}})
    watcher = await with_one_owner(stage)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    await label_pools(stage, b="gpu-1 gpu-2 gpu-3")
    await make(stage, nvidia_driver("b", version=NEW))
    await stage.until(lambda: list(stage.states().values()).count(State.FAILED) == 1, within=7200)
    await stage.rest(7200)
    assert sorted(owners(stage).values()) == ["b", "default", "default"], "the failure counts where the node came from, too"
    assert watcher.torn == []
    assert stage.most_in_progress == 1


@on_stage(gpu_nodes=5)
async def test_a_move_to_a_driver_that_crashes_costs_one_node_however_often_it_is_tried_again(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    stage.watch_limits()
    await label_pools(stage, b="gpu-1 gpu-2 gpu-3 gpu-4 gpu-5")
    await make(stage, nvidia_driver("b", version=NEW))
    await stage.rest(4 * 3600)
    (lost,) = [node for node in stage.states() if stage.driver(node) != OLD]
    held = {stage.hold(node) for node in stage.states() if node != lost}
    assert held <= {"NewDriverFails", "UnavailableLimit", "NoNodeMayStart"}
    assert (stage.most_in_progress, stage.most_unavailable, watcher.torn) == (1, 1, [])
    assert stage.operator.plan.counts.total == 5


@on_stage(gpu_nodes=3)
async def test_no_node_is_moved_to_an_nvidia_driver_whose_objects_cannot_be_made(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    await label_pools(stage, b="gpu-1 gpu-2 gpu-3")
    await make(stage, nvidia_driver("b", version=NEW, certConfig={"name": "not-there"}))
    await stage.rest(1800)
    assert (stage.drivers(), stage.cordons(), watcher.torn) == ([OLD], [], [])
    assert condition(stage, "b")[1] == "ReconcileFailed"
    assert headline(stage)[:2] == ("False", "DriverNotApplied")


@on_stage(gpu_nodes=3)
async def test_an_nvidia_driver_deleted_without_its_daemon_sets_takes_no_driver_away(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default", propagation="Orphan")
    await stage.rest(300)
    assert (stage.drivers(), watcher.torn) == ([OLD], [])
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.upgraded()
    assert watcher.torn == []


@pytest.mark.parametrize("by_nvidia_drivers", [False, True])
def test_what_a_cluster_policy_left_behind_is_replaced_node_by_node(by_nvidia_drivers: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await with_precompiled(stage)
        await stage.user.delete(resources.CLUSTER_POLICIES, POLICY, propagation="Orphan")
        await stage.rest(60)
        again = policy()
        again["spec"]["driver"] |= {"version": NEW, "useNvidiaDriverCRD": by_nvidia_drivers}
        await stage.user.create(resources.CLUSTER_POLICIES, again)
        if by_nvidia_drivers:
            await make(stage, nvidia_driver("default", default=True, version=NEW))
        await stage.until(lambda: watcher.torn or stage.drivers() == [NEW], within=3600)
        await at_rest(stage, watcher)
        assert stage.most_in_progress == 1
        await stage.until(lambda: headline(stage)[:2] == ("True", "UpToDate"))

    scenario()


@on_stage(gpu_nodes=3)
async def test_a_node_that_may_not_be_labelled_stops_no_upgrade_of_others(stage: Stage) -> None:
    await with_one_owner(stage)
    refuse_patches_of(stage, "gpu-3")
    await label_pools(stage, b="gpu-3")
    await set_driver(stage, "default", {"version": NEW})
    await stage.until(lambda: [stage.driver(node) for node in ("gpu-1", "gpu-2")] == [NEW, NEW], within=3600)


def headline(stage: Stage) -> tuple[str, str, str]:
    """Return status, reason and message of the condition that people wait for."""
    found = [one for one in stage.policy_status()["conditions"] if one["type"] == "DriverUpgrade"]
    return found[0]["status"], found[0]["reason"], found[0]["message"]


def refuse_patches_of(stage: Stage, node: str) -> None:
    """Let a webhook refuse every patch of a node by the operator."""
    def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if request.method == "PATCH" and request.path == f"/api/v1/nodes/{node}":
            return refusal(Forbidden("admission webhook denied the request"))
        return proceed()
    stage.transport.interfere = interfere


async def without_discovery(stage: Stage, *keys: str, seconds: float = 120.0) -> None:
    """Take labels of discovery away from all nodes for a while; without keys all of them."""
    lost = {node: {key: value for key, value in stage.labels(node).items()
                   if (key in keys if keys else key.startswith(names.NFD_PREFIX))} for node in stage.states()}
    for node, labels in lost.items():
        await stage.user.patch_merge(resources.NODES, node, {"metadata": {"labels": dict.fromkeys(labels)}})
    await stage.rest(seconds)
    for node, labels in lost.items():
        await stage.user.patch_merge(resources.NODES, node, {"metadata": {"labels": labels}})
    await stage.rest(seconds)


@on_stage(gpu_nodes=3)
async def test_nvidia_drivers_keep_their_pods_while_discovery_is_silent(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    before = uids(stage)
    await without_discovery(stage)
    await without_discovery(stage, names.NFD_OS_ID)
    assert uids(stage) == before
    await at_rest(stage, watcher)


@on_stage(gpu_nodes=3)
async def test_precompiled_drivers_keep_their_pods_while_discovery_is_silent(stage: Stage) -> None:
    watcher = await with_precompiled(stage)
    before = uids(stage)
    await without_discovery(stage)
    await without_discovery(stage, names.NFD_KERNEL)
    await without_discovery(stage, names.NFD_OS_ID)
    assert uids(stage) == before
    await at_rest(stage, watcher)


@on_stage(gpu_nodes=2)
async def test_an_operating_system_that_is_edited_is_followed_when_the_node_is_empty(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    system = stage.labels("gpu-1")[names.NFD_OS_VERSION]
    edited = "24.04" if system == "22.04" else "22.04"
    await stage.label("gpu-1", names.NFD_OS_VERSION, edited)
    await stage.until(lambda: images(stage, "gpu-1") != [] and images(stage, "gpu-1")[0].endswith(edited))
    await at_rest(stage, watcher)
    assert State.POD_DELETION_REQUIRED in stage.entered("gpu-1")


@on_stage(gpu_nodes=2)
async def test_a_kernel_that_is_edited_is_followed_when_the_node_is_empty(stage: Stage) -> None:
    watcher = await with_precompiled(stage)
    await runs_kernel(stage, "gpu-1", OTHER_KERNEL)
    await stage.until(lambda: images(stage, "gpu-1") != [] and OTHER_KERNEL in images(stage, "gpu-1")[0])
    await at_rest(stage, watcher)
    assert State.POD_DELETION_REQUIRED in stage.entered("gpu-1")
    assert stage.most_in_progress == 1


@on_stage(gpu_nodes=2)
async def test_a_kernel_that_is_edited_is_followed_by_a_precompiled_nvidia_driver_too(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True, version="580", usePrecompiled=True))
    await stage.installed()
    watcher = await with_workloads(stage)
    await runs_kernel(stage, "gpu-1", OTHER_KERNEL)
    await stage.until(lambda: images(stage, "gpu-1") != [] and OTHER_KERNEL in images(stage, "gpu-1")[0])
    await at_rest(stage, watcher)
    assert State.POD_DELETION_REQUIRED in stage.entered("gpu-1")


@on_stage(gpu_nodes=4)
async def test_with_two_kernels_the_switch_to_precompiled_and_back_tears_no_driver_away(stage: Stage) -> None:
    await runs_kernel(stage, "gpu-1", OTHER_KERNEL)
    await stage.installed()
    watcher = await with_workloads(stage)
    await stage.patch_policy("driver/version", "580")
    await stage.patch_policy("driver/usePrecompiled", True)
    await stage.until(lambda: watcher.torn or {mode(pod) for pod in driver_pods(stage) if "nodeName" in pod["spec"]} == {"true"},
                      within=3600)
    await at_rest(stage, watcher)
    assert stage.most_in_progress == 1
    await stage.patch_policy("driver/usePrecompiled", False)
    await stage.until(lambda: watcher.torn or {mode(pod) for pod in driver_pods(stage) if "nodeName" in pod["spec"]} == {"false"},
                      within=3600)
    await at_rest(stage, watcher)


@on_stage(gpu_nodes=3, upgrade={"autoUpgrade": False})
async def test_with_two_kernels_and_upgrades_off_drivers_run_on_through_every_switch(stage: Stage) -> None:
    await stage.until(lambda: stage.policy_status().get("state") == "ready")
    watcher, before = await with_workloads(stage), uids(stage)
    await stage.patch_policy("driver/usePrecompiled", True)
    await stage.rest(120)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(120)
    await stage.patch_policy("driver/useNvidiaDriverCRD", False)
    await stage.rest(120)
    assert before <= uids(stage)
    assert watcher.torn == []


@on_stage(gpu_nodes=3)
async def test_orphans_of_a_precompiled_daemon_set_are_taken_back_by_their_own_kind(stage: Stage) -> None:
    watcher, before = await with_precompiled(stage), uids(stage)
    for ds in [ds for ds in stage.sandbox.store.list("daemonsets.apps") if IS_DRIVER.items() <= ds["metadata"]["labels"].items()]:
        await stage.user.delete(resources.DAEMON_SETS, ds["metadata"]["name"], names.DEFAULT_NAMESPACE, propagation="Orphan")
    await stage.rest(120)
    assert uids(stage) == before
    assert all(pod["metadata"].get("ownerReferences") for pod in driver_pods(stage))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(60)
    await stage.patch_policy("driver/useNvidiaDriverCRD", False)
    await stage.rest(120)
    assert uids(stage) == before
    await at_rest(stage, watcher)


async def as_nvidias(stage: Stage) -> None:
    """Leave the cluster as NVIDIA's operator would: DaemonSets select nodes by discovery's labels, and pods by `app` alone."""
    await stage.kill_operator()
    for ds in [ds for ds in stage.sandbox.store.list("daemonsets.apps") if IS_DRIVER.items() <= ds["metadata"]["labels"].items()]:
        meta, spec = ds["metadata"], ds["spec"]
        await stage.user.delete(resources.DAEMON_SETS, meta["name"], meta["namespace"])
        await stage.until(lambda: not driver_pods_of(stage, meta["uid"]))  # noqa: B023  it is awaited here
        chosen = spec["template"]["spec"]["nodeSelector"]
        system, kernel = chosen.pop(names.DRIVER_OS, ""), chosen.pop(names.DRIVER_KERNEL, "")
        chosen |= {names.NFD_KERNEL: kernel} if kernel else {}
        chosen |= {names.NFD_OS_VERSION: system.removeprefix("ubuntu")} if system else {}
        for labels in (meta["labels"], spec["template"]["metadata"]["labels"]):
            labels.pop(names.DRIVER_KERNEL, None)
            labels.pop(names.DRIVER_OS, None)
        stage.sandbox.apply({**ds, "metadata": {key: meta[key] for key in ("name", "namespace", "labels", "ownerReferences")},
                             "spec": {**spec, "selector": {"matchLabels": {"app": meta["labels"]["app"]}}}})
    for node in stage.states():
        await stage.user.patch_merge(resources.NODES, node, {"metadata": {
            "labels": {names.DRIVER_OS: None, names.DRIVER_KERNEL: None}}})
    await stage.sandbox.until(lambda: all(stage.sandbox.machine(node).driver for node in stage.states())
                              and len(driver_pods(stage)) == len(stage.states()), 600)


def driver_pods_of(stage: Stage, uid: str) -> list[Object]:
    return [pod for pod in driver_pods(stage) if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", ()))]


async def is_taken_over(stage: Stage) -> Watcher:
    """Take NVIDIA's drivers over, with a GPU pod on each node; see that nothing is restarted, and then that moves are gentle."""
    await as_nvidias(stage)
    before = uids(stage)
    await stage.restart_operator()
    watcher = await with_workloads(stage)
    await stage.rest(120)
    chosen = [ds["spec"]["template"]["spec"]["nodeSelector"] for ds in stage.sandbox.store.list("daemonsets.apps")
              if IS_DRIVER.items() <= ds["metadata"]["labels"].items()]
    assert all(names.DRIVER_OS in one and not any(key.startswith(names.NFD_PREFIX) for key in one) for one in chosen)
    assert uids(stage) == before
    await without_discovery(stage)
    assert uids(stage) == before
    assert stage.all_are(State.DONE)
    await at_rest(stage, watcher)
    return watcher


@on_stage(gpu_nodes=3)
async def test_nvidia_drivers_of_nvidias_operator_are_taken_over_without_a_restart(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    watcher = await is_taken_over(stage)
    await set_driver(stage, "default", {"version": NEW})
    await stage.upgraded()
    await at_rest(stage, watcher)


@on_stage(gpu_nodes=3)
async def test_precompiled_drivers_of_nvidias_operator_are_taken_over_without_a_restart(stage: Stage) -> None:
    await be_precompiled(stage)
    watcher = await is_taken_over(stage)
    await stage.patch_policy("driver/version", "590")
    await stage.until(lambda: all("590" in images(stage, node)[0] for node in stage.states() if images(stage, node)), within=3600)
    await at_rest(stage, watcher)


def one_deletion_at_first(stage: Stage) -> None:
    """Refuse the deletion of all DaemonSets but one for a minute."""
    first: list[str] = []
    end = stage.clock.now() + 60.0

    def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if request.method == "DELETE" and "/daemonsets/" in request.path and stage.clock.now() < end:
            first.append(request.path)
            if request.path != first[0]:
                return refusal(Forbidden("not now"))
        return proceed()

    stage.transport.interfere = interfere


@on_stage(gpu_nodes=3)
async def test_daemon_sets_that_select_each_other_s_pods_go_without_a_driver(stage: Stage) -> None:
    await be_precompiled(stage)
    watcher, before = await is_taken_over(stage), uids(stage)
    one_deletion_at_first(stage)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.until(lambda: watcher.torn or not [ds for ds in stage.sandbox.store.list("daemonsets.apps")
                                                   if IS_DRIVER.items() <= ds["metadata"]["labels"].items()])
    await stage.rest(120)
    assert watcher.torn == []
    assert uids(stage) == before
    stage.watch_limits()
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.until(lambda: watcher.torn or stage.drivers() == [NEW], within=3600)
    await at_rest(stage, watcher)
    assert stage.most_in_progress == 1
    assert len(driver_pods(stage)) == 3


@on_stage(gpu_nodes=3)
async def test_daemon_sets_that_select_each_other_s_pods_make_room_for_compiled_drivers(stage: Stage) -> None:
    await be_precompiled(stage)
    watcher = await is_taken_over(stage)
    one_deletion_at_first(stage)
    await stage.patch_policy("driver/usePrecompiled", False)
    await stage.until(lambda: watcher.torn or {mode(pod) for pod in driver_pods(stage)} == {"false"}, within=3600)
    await at_rest(stage, watcher)
    assert stage.most_in_progress == 1
    assert len(driver_pods(stage)) == 3


@on_stage(gpu_nodes=2)
async def test_no_driver_goes_for_an_nvidia_driver_that_cannot_be_followed(stage: Stage) -> None:
    watcher = await with_one_owner(stage)
    before = uids(stage)
    await label_pools(stage, b="gpu-1 gpu-2")
    await make(stage, nvidia_driver("b", {"maxUnavailable": "few"}, version=NEW))
    await stage.rest(300)
    assert uids(stage) == before
    assert stage.all_are(State.DONE)
    await set_driver(stage, "b", {"upgradePolicy": {"maxUnavailable": "25%"}})
    await stage.until(lambda: stage.drivers() == [NEW], within=3600)
    await at_rest(stage, watcher)


def of_nvidia_drivers(stage: Stage) -> list[str]:
    """Return the driver DaemonSets that NVIDIADrivers own."""
    return [ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps")
            if any(owner["kind"] == "NVIDIADriver" for owner in ds["metadata"].get("ownerReferences") or ())]


@pytest.mark.parametrize("precompiled", [False, True])
def test_drivers_that_the_cluster_policy_takes_back_are_replaced_node_by_node(precompiled: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await with_one_owner(stage)
        wanted = "580" if precompiled else NEW
        await stage.patch_policy("driver/version", wanted)
        await stage.patch_policy("driver/usePrecompiled", precompiled)
        await stage.patch_policy("driver/useNvidiaDriverCRD", False)
        await stage.until(lambda: watcher.torn or stage.drivers() == [wanted], within=3600)
        await at_rest(stage, watcher)
        assert (stage.most_in_progress, of_nvidia_drivers(stage)) == (1, [])
        await stage.until(lambda: headline(stage)[:2] == ("True", "UpToDate"))
        await stage.until(lambda: stage.policy_status()["state"] == "ready")
        assert condition(stage, "default")[0] == "disabled"
        await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
        await stage.rest(300)
        assert (stage.drivers(), watcher.torn) == ([wanted], [])

    scenario()


@on_stage(gpu_nodes=3)
async def test_a_cluster_policy_that_takes_drivers_back_for_a_moment_restarts_none(stage: Stage) -> None:
    watcher = await with_one_owner(stage, {"maxUnavailable": 0})
    before = uids(stage)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 0)
    await stage.patch_policy("driver/useNvidiaDriverCRD", False)
    await stage.rest(60)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(300)
    assert uids(stage) == before
    assert watcher.torn == []
    assert all(pod["metadata"].get("ownerReferences") for pod in driver_pods(stage)), "their NVIDIADriver has them back"


@on_stage(gpu_nodes=3, upgrade={"autoUpgrade": False})
async def test_drivers_that_are_taken_back_while_upgrades_are_off_run_on(stage: Stage) -> None:
    watcher, before = await with_one_owner(stage), uids(stage)
    await stage.patch_policy("driver/version", NEW)
    await stage.patch_policy("driver/useNvidiaDriverCRD", False)
    await stage.rest(600)
    assert before <= uids(stage)
    assert (stage.drivers(), watcher.torn, stage.hold("gpu-1")) == ([OLD], [], "DriverOrphaned")


@on_stage(gpu_nodes=3)
async def test_drivers_run_on_while_the_cluster_policy_that_takes_them_back_cannot_make_its_own(stage: Stage) -> None:
    watcher, before = await with_one_owner(stage), uids(stage)
    await stage.patch_policy("driver/certConfig", {"name": "not-there"})
    await stage.patch_policy("driver/useNvidiaDriverCRD", False)
    await stage.rest(1800)
    assert before <= uids(stage)
    assert (stage.drivers(), stage.cordons(), watcher.torn) == ([OLD], [], [])
    assert "not-there" in stage.condition()["message"]
    assert of_nvidia_drivers(stage) != []
    state, _, message = condition(stage, "default")
    assert state == "disabled"
    assert "its drivers run on 3 nodes until the ClusterPolicy's are made, and are removed if it is deleted before" in message


async def orphan_drivers(stage: Stage) -> None:
    """Delete the driver DaemonSets without their pods, as `kubectl delete --cascade=orphan` does."""
    for ds in [ds for ds in stage.sandbox.store.list("daemonsets.apps") if IS_DRIVER.items() <= ds["metadata"]["labels"].items()]:
        await stage.user.delete(resources.DAEMON_SETS, ds["metadata"]["name"], names.DEFAULT_NAMESPACE, propagation="Orphan")


@on_stage(gpu_nodes=2)
async def test_an_orphan_on_a_node_that_is_to_move_to_another_kernel_is_adopted_and_not_deleted(stage: Stage) -> None:
    watcher = await with_precompiled(stage)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await runs_kernel(stage, "gpu-1", OTHER_KERNEL)
    await stage.until(lambda: stage.hold("gpu-1") == "MovePaused")
    await orphan_drivers(stage)
    await stage.rest(120)
    assert watcher.torn == []
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.until(lambda: stage.labels("gpu-1").get(names.DRIVER_KERNEL) == OTHER_KERNEL, within=1800)
    await at_rest(stage, watcher)


@on_stage(gpu_nodes=2)
async def test_an_orphan_on_a_node_that_is_to_move_to_another_owner_is_adopted_and_not_deleted(stage: Stage) -> None:
    watcher = await with_one_owner(stage, {"autoUpgrade": False})
    await label_pools(stage, b="gpu-1")
    await make(stage, nvidia_driver("b", {"autoUpgrade": False}, version=NEW))
    await stage.until(lambda: stage.hold("gpu-1") == "MovePaused")
    await orphan_drivers(stage)
    await stage.rest(120)
    assert watcher.torn == []
    for name in ("default", "b"):
        await set_driver(stage, name, {"upgradePolicy": {"autoUpgrade": True}})
    await stage.until(lambda: stage.driver("gpu-1") == NEW, within=1800)
    await at_rest(stage, watcher)
    assert owners(stage) == {"gpu-1": "b", "gpu-2": "default"}


@on_stage(gpu_nodes=2)
async def test_a_driver_pod_that_does_not_start_is_replaced_by_the_nvidia_drivers_one_like_any_other(stage: Stage) -> None:
    """Somebody deleted it by hand, its image cannot be pulled any more, and then drivers are left to an NVIDIADriver."""
    await stage.installed()
    watcher = await with_workloads(stage)
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*driver:{OLD}*"))
    pod = driver_pods(stage, "gpu-1")[0]["metadata"]["name"]
    await stage.user.delete(resources.PODS, pod, names.DEFAULT_NAMESPACE)
    await stage.until(lambda: stage.hold("gpu-1") == "DriverFailing")
    watcher.torn.clear()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.until(lambda: stage.drivers() == [NEW], within=3600)
    await at_rest(stage, watcher)
