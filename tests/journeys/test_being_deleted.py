"""What is being deleted, and kept by somebody's finalizer, counts as gone: nodes go to the drivers that they should have."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from tests.journeys.looking import condition_of, explanation_of, headline_of, reason_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage, policy
from tests.journeys.test_hosts_left import OURS
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver
from tests.journeys.test_validation_off import MODES, ask_for_another, installed
from tests.journeys.test_withheld import set_driver, torn, with_notebooks

FINALIZER = "backup.example.com/archive"


def keep(stage: Stage, resource: str, name: str, namespace: str | None = None) -> None:
    """Let somebody else's controller keep an object in its deletion for ever."""
    stage.sandbox.store.modify(resource, namespace, name, lambda body: body["metadata"].update(finalizers=[FINALIZER]))


async def with_one_going(stage: Stage, upgrade: dict[str, object] | None = None) -> None:
    """Leave all nodes to an NVIDIADriver that is being deleted."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, a="gpu-1 gpu-2")
    await make(stage, nvidia_driver("a"))
    await stage.installed()
    await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": {"upgradePolicy": upgrade or {}}})
    keep(stage, "nvidiadrivers.nvidia.com", "a")
    await stage.user.delete(resources.NVIDIA_DRIVERS, "a", propagation="Background")
    await stage.rest(120)


@pytest.mark.parametrize("order", ["deleted first", "made first"])
@pytest.mark.parametrize("notebooks", [True, False])
def test_nodes_go_from_an_nvidiadriver_that_is_being_deleted_to_another_one(order: str, notebooks: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await label_pools(stage, a="gpu-1 gpu-2")
        await make(stage, nvidia_driver("a"))
        await stage.installed()
        if notebooks:
            await with_notebooks(stage)
        keep(stage, "nvidiadrivers.nvidia.com", "a")
        other = nvidia_driver("z", {"maxUnavailable": 1}, default=True, version=NEW)
        if order == "made first":
            await make(stage, other)
            await stage.rest(30)
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a", propagation="Background")
        if order == "deleted first":
            await stage.rest(20)
            await make(stage, other)
        await stage.rest(2400)
        assert torn(stage) == []
        assert stage.drivers() == [NEW]
        assert condition_of(stage)[:2] == ("True", "UpToDate")
        assert await headline_of(stage) == f"ClusterPolicy {POLICY}: 2 of 2 nodes up to date"

    story()


@on_stage(gpu_nodes=2)
async def test_a_node_that_no_other_nvidiadriver_selects_is_not_called_up_to_date(stage: Stage) -> None:
    await with_one_going(stage)
    await stage.rest(600)
    assert torn(stage) == []
    assert condition_of(stage)[:2] == ("False", "DriversNotReady")
    assert {stage.hold(node) for node in stage.states()} == {"NotSelected"}


@pytest.mark.parametrize("default", [True, False])
def test_nodes_that_are_left_to_nobody_name_the_nvidiadriver_that_kubectl_still_lists(default: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await label_pools(stage, a="gpu-1 gpu-2")
        await make(stage, nvidia_driver("a", default=default), nvidia_driver("other"))
        await stage.installed()
        keep(stage, "nvidiadrivers.nvidia.com", "a")
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a", propagation="Background")
        await stage.rest(600)
        assert {stage.hold(node) for node in stage.states()} | {"NotSelected"} == {"NotSelected"}
        components = {pod["metadata"]["labels"].get(names.COMPONENT_LABEL) for pod in stage.pods()}
        assert names.DRIVER_COMPONENT not in components
        told = f"NVIDIADriver a is being deleted, and is kept by its finalizers {FINALIZER}"
        assert (await headline_of(stage)).startswith(f"{told}; apart from that ClusterPolicy {POLICY}: 0 of 2 nodes up to date")
        helps = [remedy.do for remedy in (await explanation_of(stage, "gpu-1")).remedies]
        assert f"{told}: write it anew once it is gone" in helps
        stage.sandbox.store.modify("nvidiadrivers.nvidia.com", None, "a", lambda body: body["metadata"].pop("finalizers"))
        await stage.rest(30)
        assert (await headline_of(stage)).startswith(f"ClusterPolicy {POLICY}: 0 of 2 nodes up to date")
        await make(stage, nvidia_driver("a", default=default))
        await stage.rest(900)
        assert stage.drivers() == [OLD]

    story()


@pytest.mark.parametrize(("upgrade", "reason"), [
    ({"autoUpgrade": False}, "MovePaused"), ({"maxUnavailable": 0}, "NoNodeMayStart")])
def test_nodes_that_may_not_go_name_what_is_being_deleted_and_what_keeps_it(upgrade: dict[str, object], reason: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await with_one_going(stage, upgrade)
        await make(stage, nvidia_driver("z", {"maxUnavailable": 1}, default=True, version=NEW))
        await stage.rest(600)
        assert stage.drivers() == [OLD]
        assert condition_of(stage)[0] == "False"
        assert {stage.hold(node) for node in stage.states()} == {reason}
        told = f"NVIDIADriver a is being deleted, and is kept by its finalizers {FINALIZER}"
        becomes = ("2 nodes keep the driver, as upgrades are off" if reason == "MovePaused"
                   else "2 nodes go to NVIDIADriver z, each once it is emptied")
        rest = f"ClusterPolicy {POLICY}: 0 of 2 nodes up to date"
        assert (await headline_of(stage)).startswith(f"{told}: {becomes}; apart from that {rest}")
        assert f"{told}: {becomes}" in condition_of(stage)[2]
        then = "keeps the driver, as upgrades are off" if reason == "MovePaused" else "goes to NVIDIADriver z once it is emptied"
        assert (await explanation_of(stage, "gpu-1")).policy == f"{told}: this node {then}"

    story()


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("another", [True, False])
def test_what_becomes_of_nodes_is_said_where_their_nvidiadriver_is_deleted_in_mid_upgrade(kept: bool, another: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await label_pools(stage, a="gpu-1 gpu-2 gpu-3")
        await make(stage, nvidia_driver("a", {"maxUnavailable": 1}), *[nvidia_driver("z", default=True, version=NEW)] * another)
        await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
        await with_notebooks(stage)
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": {"version": NEW}})
        await stage.until(lambda: "pod-deletion-required" in stage.states().values())
        said = len(stage.log)
        if kept:
            keep(stage, "nvidiadrivers.nvidia.com", "a")
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a", propagation="Background")
        await stage.rest(2 if kept else 35)
        waiting = next(node for node, state in stage.states().items() if state == "upgrade-required")
        told = f"is being deleted, and is kept by its finalizers {FINALIZER}" if kept else "was deleted"
        fate = "to NVIDIADriver z" if another else "lose the driver"
        headline = await headline_of(stage)
        assert (f"NVIDIADriver a {told}: " in headline, f"{fate}, each once it is emptied" in headline) == (True, True), headline
        assert ("drivers are being removed" in headline) is not another
        policy = (await explanation_of(stage, waiting)).policy
        assert policy.endswith("this node goes to NVIDIADriver z once it is emptied" if another else
                               "this node loses the driver once it is emptied, as no other NVIDIADriver is for it"), policy
        await stage.until(lambda: f"NVIDIADriver a {told}: " in condition_of(stage)[2], within=30)
        early = [text for node in stage.states() for text in stage.events(node)]
        await stage.rest(30)
        lines = [line["msg"] for line in stage.log[said:]]
        assert not [text for text in early if "MovePaused" in text or "NotSelected" in text]
        assert [line for line in lines if "new driver" in line or "starts its upgrade" in line or "start their" in line] == [
            line for line in lines if another and NEW in line]
        assert any("to lose the driver, and none comes after it" in line for line in lines) is not another
        assert torn(stage) == []

    story()


@pytest.mark.parametrize(("start", "to"), [("plain", "precompiled"), ("precompiled", "plain"), ("plain", "nvidiadriver"),
                                           ("precompiled", "nvidiadriver"), ("nvidiadriver", "plain"),
                                           ("nvidiadriver", "precompiled"), ("precompiled", "off")])
def test_the_next_clusterpolicy_replaces_the_drivers_of_one_that_is_being_deleted(start: str, to: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await set_driver(stage, FROM[start])
        if "nvidiadriver" in (start, to):
            await make(stage, nvidia_driver("default", {"maxUnavailable": 1}, default=True, version=OLD if start != to else NEW))
        await stage.installed()
        await with_notebooks(stage)
        keep(stage, "clusterpolicies.nvidia.com", POLICY)
        await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
        await stage.rest(60)
        if to == "nvidiadriver":
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", {"spec": {"version": NEW}})
        body = policy("other")
        body["spec"]["driver"] |= TO[to]
        await stage.user.create(resources.CLUSTER_POLICIES, body)
        await stage.rest(3600)
        if to == "off":
            there = [ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps")]
            assert there != []
            assert not [name for name in there if "driver" in name]
            return
        assert torn(stage) == []
        assert stage.drivers() == ["590" if to == "precompiled" else NEW]
        assert stage.policy_status("other")["state"] == "ready"

    story()


FROM: dict[str, dict[str, object]] = {
    "plain": {}, "precompiled": {"usePrecompiled": True, "version": "580"}, "nvidiadriver": {"useNvidiaDriverCRD": True}}
TO: dict[str, dict[str, object]] = {
    "plain": {"version": NEW}, "precompiled": {"usePrecompiled": True, "version": "590"},
    "nvidiadriver": {"useNvidiaDriverCRD": True, "version": NEW}, "off": {"enabled": False}}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cascade", ["Background", "Orphan"])
def test_of_a_daemonset_that_is_being_deleted_it_is_said_so_and_what_keeps_it(mode: str, cascade: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        (name,) = [ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps") if
                   ds["spec"]["template"]["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.DRIVER_COMPONENT]
        keep(stage, "daemonsets.apps", name, names.DEFAULT_NAMESPACE)
        await stage.user.delete(resources.DAEMON_SETS, name, names.DEFAULT_NAMESPACE, propagation=cascade)
        new = await ask_for_another(stage, mode)
        await stage.rest(1200)
        kept = f"DaemonSet {name} is being deleted, and is kept by its finalizers {FINALIZER}: it is made anew once it is gone"
        status, reason, message = condition_of(stage)
        assert (status, kept in message) == ("False", True), message
        assert (reason == "TemplateEdited", "edits" in message) == (False, False)
        assert kept in (await explanation_of(stage, "gpu-1")).notes
        stage.sandbox.store.modify("daemonsets.apps", names.DEFAULT_NAMESPACE, name,
                                   lambda ds: ds["metadata"].update(finalizers=[]))
        await stage.until(lambda: stage.drivers() == [new] and condition_of(stage)[0] == "True", within=3600)

    story()


@on_stage(gpu_nodes=1)
async def test_a_rolloutpolicy_that_is_being_deleted_is_in_force_no_more(stage: Stage) -> None:
    def made(name: str, retries: int) -> None:
        stage.sandbox.apply({"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name},
                             "spec": {"retries": retries}})

    def told() -> dict[str, tuple[str, str]]:
        found = ((one["metadata"]["name"], one["status"]) for one in stage.sandbox.store.list("rolloutpolicies.gpuward.io"))
        return {name: (status["state"], status["conditions"][0]["message"]) for name, status in found}

    await stage.installed()
    made("one", 5)
    await stage.rest(5)
    keep(stage, "rolloutpolicies.gpuward.io", "one")
    await stage.user.delete(resources.ROLLOUT_POLICIES, "one")
    await stage.rest(30)
    assert told()["one"][0] == "active", "it stays in force for a minute"
    await stage.rest(60)
    going = f"one is being deleted, and is kept by its finalizers {FINALIZER}"
    assert told() == {"one": ("ignored", f"{going}: the defaults are in force")}
    made("two", 2)
    await stage.rest(30)
    assert told() == {"one": ("ignored", f"{going}: RolloutPolicy two is in force"),
                      "two": ("active", "driver upgrades follow it")}


@on_stage(gpu_nodes=2)
async def test_nodes_are_not_said_to_go_to_an_nvidiadriver_that_brings_no_driver_to_them(stage: Stage) -> None:
    """One for hosts selects nodes with containers: they lose their driver, and get none of it."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, a="gpu-1 gpu-2")
    await make(stage, nvidia_driver("a"), nvidia_driver("h", default=True, **OURS))
    await stage.until(lambda: stage.drivers() == [OLD])
    await with_notebooks(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "a", propagation="Background")
    await stage.rest(2)
    soon = "its drivers begin to go half a minute later at the earliest, unless it is made again"
    assert f"NVIDIADriver a was deleted: {soon}" in await headline_of(stage)
    assert reason_of(await explanation_of(stage, "gpu-1")) == f"keeps its driver for now, as NVIDIADriver a was deleted: {soon}"
    await stage.rest(30)
    why = "once it is emptied, as NVIDIADriver h, which is for"
    headline = await headline_of(stage)
    assert "NVIDIADriver a was deleted: " in headline
    assert f"the driver, each {why} them, is of type vgpu-host-manager" in headline
    assert (await explanation_of(stage, "gpu-1")).policy == (
        f"NVIDIADriver a, which is deleted: this node loses the driver {why} it, is of type vgpu-host-manager")
