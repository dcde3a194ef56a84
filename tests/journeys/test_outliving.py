"""NVIDIADrivers whose drivers outlive them, or the ClusterPolicy, whatever could be followed meanwhile. Judged from the machines:
no driver leaves one whose GPUs a pod uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gpuward import names
from gpuward.errors import Forbidden
from gpuward.kube import resources
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.looking import condition_of, explanation_of, headline_of, reason_of
from tests.journeys.stage import NEW, OLD, POLICY, Object, Stage, on_stage
from tests.journeys.test_moves import as_nvidias, uids, with_one_owner, with_workloads
from tests.journeys.test_node_workload import torn
from tests.journeys.test_nvidiadriver import IS_DRIVER, condition, driver_pods, label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_rolloutpolicy import apply

DEFAULT = "default"
INVALID: Mapping[str, Any] = {"version": ""}
ROLES = "roles.rbac.authorization.k8s.io"


def driver_sets(stage: Stage) -> list[Object]:
    return [ds for ds in stage.sandbox.store.list("daemonsets.apps") if IS_DRIVER.items() <= ds["metadata"]["labels"].items()]


def owner_kinds(stage: Stage) -> list[list[str]]:
    """Return the kinds of the owners of each driver DaemonSet."""
    return [[owner["kind"] for owner in ds["metadata"].get("ownerReferences") or ()] for ds in driver_sets(stage)]


async def delete_policy(stage: Stage) -> Object:
    """Delete the ClusterPolicy; return its spec."""
    spec: Object = stage.sandbox.store.get("clusterpolicies.nvidia.com", None, POLICY)["spec"]
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    return spec


async def make_policy(stage: Stage, spec: Object, **upgrade: object) -> None:
    spec["driver"]["upgradePolicy"] |= upgrade
    await stage.user.create(resources.CLUSTER_POLICIES, {
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": POLICY}, "spec": spec})


async def replace_policy(stage: Stage, **upgrade: object) -> None:
    """Make the ClusterPolicy anew, as `kubectl replace --force` does."""
    spec = await delete_policy(stage)
    await stage.rest(2)
    await make_policy(stage, spec, **upgrade)
    await stage.rest(120)


async def is_removed_gently(stage: Stage, name: str = DEFAULT) -> None:
    """Delete an NVIDIADriver, and see that none of its drivers goes from under a pod."""
    assert torn(stage) == []
    before = uids(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, name)
    await stage.rest(2)
    assert before <= uids(stage)
    await stage.rest(600)
    assert torn(stage) == []


async def cannot_be_followed(stage: Stage, how: str) -> None:
    match how:
        case "invalid":
            await set_driver(stage, DEFAULT, INVALID)
        case "unmade":
            await set_driver(stage, DEFAULT, {"licensingConfig": {"secretName": "not-there"}})
        case "conflict":
            await make(stage, nvidia_driver("second", default=True))
    await stage.rest(60)


@pytest.mark.parametrize("how", ["invalid", "unmade", "conflict", "invalid policy", "fine"])
def test_drivers_outlive_an_nvidiadriver_under_a_clusterpolicy_that_was_made_anew(how: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await with_one_owner(stage)
        await cannot_be_followed(stage, how)
        await replace_policy(stage, **({"maxUnavailable": "abc"} if how == "invalid policy" else {}))
        await is_removed_gently(stage)

    scenario()


@pytest.mark.parametrize("meanwhile", [{}, INVALID])
def test_drivers_outlive_an_nvidiadriver_after_removals_were_to_be_at_once(meanwhile: Mapping[str, Any]) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await with_one_owner(stage)
        await apply(stage, removeAtOnce=True)
        await stage.rest(60)
        assert owner_kinds(stage) == [["NVIDIADriver"]] * len(driver_sets(stage))
        await set_driver(stage, DEFAULT, meanwhile)
        await stage.rest(60)
        await stage.user.delete(resources.ROLLOUT_POLICIES, DEFAULT)
        await stage.rest(60)
        await is_removed_gently(stage)

    scenario()


@on_stage(gpu_nodes=2)
async def test_a_removal_at_once_is_followed_for_an_nvidiadriver_that_cannot_be(stage: Stage) -> None:
    await with_one_owner(stage)
    await set_driver(stage, DEFAULT, INVALID)
    await apply(stage, removeAtOnce=True)
    await stage.rest(60)
    await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT)
    await stage.until(lambda: not driver_pods(stage), within=60)


@pytest.mark.parametrize("spec", [{}, {"version": "580", "usePrecompiled": True}])
def test_one_of_several_nvidiadrivers_that_cannot_be_followed_goes_gently(spec: Mapping[str, Any]) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", **spec), nvidia_driver(DEFAULT, default=True))
        await stage.installed()
        await with_workloads(stage)
        await stage.rest(60)
        await set_driver(stage, "a", INVALID)
        await stage.rest(30)
        await replace_policy(stage)
        await is_removed_gently(stage, "a")

    scenario()


@pytest.mark.parametrize("spec", [{}, INVALID])
def test_drivers_taken_over_from_nvidias_operator_outlive_an_nvidiadriver(spec: Mapping[str, Any]) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver(DEFAULT, default=True))
        await stage.installed()
        await as_nvidias(stage)
        await set_driver(stage, DEFAULT, spec)
        assert owner_kinds(stage) == [["NVIDIADriver", "ClusterPolicy"]] * len(driver_sets(stage))
        for ds in driver_sets(stage):
            meta = ds["metadata"]
            await stage.user.patch_merge(resources.DAEMON_SETS, meta["name"], {"metadata": {
                "ownerReferences": meta["ownerReferences"][:1]}}, meta["namespace"])
        before = uids(stage)
        await stage.restart_operator()
        await with_workloads(stage)
        await stage.rest(120)
        assert (uids(stage), owner_kinds(stage)) == (before, [["NVIDIADriver", "ClusterPolicy"]] * len(driver_sets(stage)))
        controllers = [ds["metadata"]["ownerReferences"][0].get("controller") for ds in driver_sets(stage)]
        assert all(controllers), "NVIDIA's operator goes by that"
        await is_removed_gently(stage)

    scenario()


@on_stage(gpu_nodes=2)
async def test_a_clusterpolicy_that_is_away_for_minutes_owns_drivers_when_it_is_back(stage: Stage) -> None:
    await with_one_owner(stage)
    spec = await delete_policy(stage)
    await set_driver(stage, DEFAULT, INVALID)
    await stage.rest(600)
    assert len(driver_pods(stage)) == 2
    await make_policy(stage, spec, maxUnavailable="abc")
    await stage.rest(60)
    await is_removed_gently(stage)


@on_stage(gpu_nodes=2)
async def test_a_clusterpolicy_that_was_made_anew_without_the_operator_owns_drivers_when_that_is_back(stage: Stage) -> None:
    await with_one_owner(stage)
    await set_driver(stage, DEFAULT, INVALID)
    await stage.rest(60)
    spec = await delete_policy(stage)
    await stage.kill_operator()
    await stage.rest(60)
    await make_policy(stage, spec)
    await stage.rest(60)
    await stage.restart_operator()
    await stage.rest(30)
    await is_removed_gently(stage)


@on_stage(gpu_nodes=2)
async def test_an_nvidiadriver_that_is_made_anew_leaves_drivers_that_outlive_the_clusterpolicy(stage: Stage) -> None:
    await with_one_owner(stage)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "abc")
    before = uids(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT)
    await make(stage, nvidia_driver(DEFAULT, default=True))
    await stage.rest(60)
    await replace_policy(stage)
    assert torn(stage) == []
    assert before <= uids(stage)


@pytest.mark.parametrize("how", ["fine", "invalid", "off", "operator killed", "kept by a finalizer"])
def test_drivers_that_were_left_behind_outlive_the_clusterpolicy(how: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await with_one_owner(stage)
        spec = stage.sandbox.store.get("clusterpolicies.nvidia.com", None, POLICY)["spec"]
        if how == "invalid":
            await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "abc")
        if how == "off":
            await stage.patch_policy("driver/enabled", False)
        if how == "operator killed":
            await stage.kill_operator()
        if how == "kept by a finalizer":
            kept = {"metadata": {"finalizers": ["example.com/keep"]}}
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, DEFAULT, kept)
        await stage.rest(60)
        before = uids(stage)
        await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT, propagation="Orphan")
        await stage.rest(60)
        if how == "operator killed":
            await stage.restart_operator()
        await stage.rest(240)
        assert owner_kinds(stage) == [[]] * len(driver_sets(stage))
        await delete_policy(stage)
        await stage.rest(300)
        await make_policy(stage, spec)
        await stage.rest(300)
        assert (torn(stage), uids(stage)) == ([], before)

    scenario()


@on_stage(gpu_nodes=3)
async def test_a_role_that_is_made_again_leaves_no_driver_behind_that_is_to_go(stage: Stage) -> None:
    await with_one_owner(stage)
    stage.set_budget("train-gpu-2", 0)
    role = stage.get(ROLES, driver_pods(stage)[0]["spec"]["serviceAccountName"])
    await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT)
    await stage.until(lambda: stage.hold("gpu-2") == "BudgetBlocks", within=3600)
    meta = {key: role["metadata"][key] for key in ("name", "namespace", "labels")}
    stage.sandbox.apply({**role, "metadata": meta})
    await stage.restart_operator()
    await stage.rest(60)
    stage.set_budget("train-gpu-2", 1)
    await stage.until(lambda: not driver_pods(stage) and not driver_sets(stage), within=3600)
    assert torn(stage) == []


@on_stage(gpu_nodes=2)
async def test_owners_are_written_once(stage: Stage) -> None:
    await with_one_owner(stage)
    await set_driver(stage, DEFAULT, INVALID)
    await stage.rest(60)
    versions = [ds["metadata"]["generation"] for ds in driver_sets(stage)]
    await replace_policy(stage)
    before = [ds["metadata"]["resourceVersion"] for ds in driver_sets(stage)]
    await stage.restart_operator()
    await stage.rest(1200)
    assert [ds["metadata"]["resourceVersion"] for ds in driver_sets(stage)] == before
    assert [ds["metadata"]["generation"] for ds in driver_sets(stage)] == versions
    assert condition(stage, DEFAULT)[1] == "ReconcileFailed"
    assert (stage.drivers(), names.VALID_UPGRADE_POLICY in driver_sets(stage)[0]["metadata"]["annotations"]) == ([OLD], True)


@pytest.mark.parametrize("propagation", ["", "Orphan"])
def test_drivers_stay_while_it_cannot_be_seen_whether_they_are_to_go(propagation: str) -> None:
    refusing = [False]

    def keep(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if refusing[0] and request.method == "GET" and request.path.split("?")[0].endswith("/roles"):
            return refusal(Forbidden("roles is forbidden"))
        return proceed()

    @on_stage(gpu_nodes=2, interfere=keep)
    async def scenario(stage: Stage) -> None:
        await with_one_owner(stage)
        before = uids(stage)
        refusing[0] = True
        await stage.restart_operator()
        await stage.rest(60)
        await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT, propagation=propagation)
        await stage.until(lambda: stage.hold("gpu-1") == "DeletionUnseen")
        await stage.rest(600)
        assert (uids(stage), stage.cordons(), stage.hold("gpu-2")) == (before, [], "DeletionUnseen")
        assert condition_of(stage)[0] == "False"
        assert "DeletionUnseen" in condition_of(stage)[2]
        if not propagation:
            assert "2 held" in await headline_of(stage)
            told = await explanation_of(stage, "gpu-1")
            soon = "its drivers begin to go half a minute later at the earliest, unless it is made again"
            assert told.policy == f"NVIDIADriver default, which is deleted: {soon}", "who looks may list roles"
            assert reason_of(told) == f"keeps its driver for now, as NVIDIADriver default was deleted: {soon}"
            assert "NVIDIADriver default was deleted: whether its drivers go is not seen yet" in condition_of(stage)[2]
        refusing[0] = False
        await stage.until(lambda: stage.hold("gpu-1") != "DeletionUnseen")
        await stage.rest(900)
        assert (len(driver_pods(stage)), torn(stage)) == (2 if propagation else 0, [])

    scenario()


@pytest.mark.parametrize("first", ["ClusterPolicy", "NVIDIADriver"])
@pytest.mark.parametrize("auto", [True, False])
def test_both_are_made_anew_without_the_operator_and_take_every_driver_over(first: str, auto: bool) -> None:
    """As `kubectl replace --force --cascade=orphan` makes them. The NVIDIADriver's DaemonSets stay the ones that they were."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await with_one_owner(stage)
        before = uids(stage), {pod["metadata"]["uid"] for pod in stage.workload_pods()}
        sets = [ds["metadata"]["uid"] for ds in driver_sets(stage)]
        await stage.kill_operator()
        for kind in (first, *({"ClusterPolicy", "NVIDIADriver"} - {first})):
            if kind == "ClusterPolicy":
                spec = stage.sandbox.store.get("clusterpolicies.nvidia.com", None, POLICY)["spec"]
                await stage.user.delete(resources.CLUSTER_POLICIES, POLICY, propagation="Orphan")
                await stage.rest(5)
                await make_policy(stage, spec)
            else:
                await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT, propagation="Orphan")
                await stage.rest(5)
                await make(stage, nvidia_driver(DEFAULT, {"autoUpgrade": auto}, default=True))
            await stage.rest(5)
        await stage.restart_operator()
        await stage.until(lambda: condition_of(stage)[:2] == ("True", "UpToDate"))
        await stage.rest(1200)
        assert (uids(stage), {pod["metadata"]["uid"] for pod in stage.workload_pods()}) == before
        assert (torn(stage), stage.cordons(), condition_of(stage)[:2]) == ([], [], ("True", "UpToDate"))
        assert [ds["metadata"]["uid"] for ds in driver_sets(stage)] == sets
        assert owner_kinds(stage) == [["NVIDIADriver", "ClusterPolicy"]] * len(sets)
        await is_removed_gently(stage)

    scenario()


@pytest.mark.parametrize("operator", [True, False])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_an_nvidiadriver_that_is_made_anew_takes_its_drivers_over(operator: bool, version: str) -> None:
    """As `kubectl replace --force` makes it: only another version replaces drivers, node by node."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await with_one_owner(stage, {"maxUnavailable": 1})
        before, sets = uids(stage), [ds["metadata"]["uid"] for ds in driver_sets(stage)]
        if not operator:
            await stage.kill_operator()
        await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT)
        await make(stage, nvidia_driver(DEFAULT, {"maxUnavailable": 1}, default=True, version=version))
        await stage.rest(5)
        if not operator:
            await stage.restart_operator()
        await stage.until(lambda: stage.finished(version) and condition(stage, DEFAULT)[0] == "ready", within=3600)
        await stage.rest(600)
        assert (torn(stage), stage.cordons(), stage.drivers()) == ([], [], [version])
        assert [ds["metadata"]["uid"] for ds in driver_sets(stage)] == sets
        assert (uids(stage) == before) == (version == OLD)
        assert stage.most_unavailable <= 1

    scenario()


@on_stage(gpu_nodes=2)
async def test_an_nvidiadriver_that_is_made_anew_and_cannot_be_followed_restarts_no_driver_once_it_can(stage: Stage) -> None:
    await with_one_owner(stage)
    before = uids(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT)
    await make(stage, nvidia_driver(DEFAULT, default=True, **INVALID))
    await stage.rest(600)
    assert (uids(stage), torn(stage), stage.cordons()) == (before, [], [])
    await set_driver(stage, DEFAULT, {"version": OLD})
    await stage.until(lambda: condition(stage, DEFAULT)[0] == "ready")
    await stage.rest(600)
    assert (uids(stage), torn(stage), stage.cordons()) == (before, [], [])
    await is_removed_gently(stage)
