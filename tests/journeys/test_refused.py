"""What is refused in words is not followed in deeds: an edit that cannot be followed changes nothing, in each mode of drivers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.crd import decode, validate
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.errors import ApiError, PolicyError
from gpuward.kube import resources
from tests.journeys.stage import NEW, OLD, POLICY, Object, Stage, on_stage
from tests.journeys.test_nvidiadriver import condition, label_pools, make, nvidia_driver

SPACE = names.DEFAULT_NAMESPACE

REFUSED: dict[str, list[Object]] = {
    "_daemonsets": [
        {"daemonsets": {"labels": {"a b": "c"}}},
        {"daemonsets": {"annotations": {"a b": "c"}}},
        {"daemonsets": {"tolerations": [{"value": "b"}]}},
        {"daemonsets": {"rollingUpdate": {"maxUnavailable": "0"}}},
    ],
    "_upgrade": [
        {"driver": {"upgradePolicy": {"maxUnavailable": "abc"}}},
        {"driver": {"upgradePolicy": {"drain": {"podSelector": "!!"}}}},
        {"driver": {"upgradePolicy": {"waitForCompletion": {"podSelector": "a = b c"}}}},
    ],
    "_images": [{"toolkit": {"version": ""}}, {"validator": {"version": ""}}, {"driver": {"manager": {"version": ""}}},
                {"driver": {"version": f"{NEW} "}}, {"driver": {"repository": "nvcr.io/nvidia/"}}],
    "_precompiled": [
        {"driver": {"usePrecompiled": True}, "gdrcopy": {"enabled": True}},
        {"driver": {"usePrecompiled": True, "version": "sha256:1f"}},
    ],
    "_dcgm_exporter": [
        {"dcgmExporter": {"service": {"type": "Cluster"}}},
        {"dcgmExporter": {"service": {"internalTrafficPolicy": "Node"}}},
    ],
    "_cdi": [
        {"cdi": {"enabled": False, "nriPluginEnabled": True}},
        {"cdi": {"enabled": True, "nriPluginEnabled": True}, "toolkit": {"enabled": False}},
        {"cdi": {"enabled": False, "nriPluginEnabled": True},
         "sandboxWorkloads": {"enabled": True, "defaultWorkload": "vm-passthrough"}},
    ],
    "_environment": [{"validator": {"plugin": {"env": [{"name": ""}]}}}],
}
"""Edits of a ClusterPolicy by the rule that refuses them."""
DEEDS: Object = {
    "driver": {"version": NEW, "upgradePolicy": {"autoUpgrade": False}}, "gfd": {"enabled": False},
    "migManager": {"enabled": False}, "daemonsets": {"labels": {"team": "x"}},
}
"""What comes with each of them and could be followed by itself."""
DRIVERS_REFUSED: dict[str, list[Object]] = {
    "_driver_nodes": [{"nodeSelector": {"a": "b c"}}, {"nodeSelector": {names.DRIVER_OWNER: "x"}}],
    "_driver_pods": [{"labels": {"a": "-"}}, {"annotations": {"a b": "c"}}, {"tolerations": [{"value": "b"}]}],
    "_driver_images": [{"image": ""}, {"version": f"{NEW} "}, {"manager": {"version": ""}},
                       {"gdrcopy": {"enabled": True, "version": ""}},
                       {"usePrecompiled": True, "version": "sha256:1f"}],
    "_driver_modules": [{"gds": {"enabled": True, "repository": "r", "image": "nvidia-fs", "version": "v2.29.4"},
                         "kernelModuleType": "proprietary"}],
    "_driver_upgrade": [{"upgradePolicy": {"maxUnavailable": "1"}}],
    "_environment": [{"env": [{"name": ""}]}],
}
"""Specs of an NVIDIADriver by the rule that refuses them."""


def merged(spec: Mapping[str, Any], change: Mapping[str, Any]) -> Object:
    """Return a spec with a merge patch applied."""
    found = dict(spec)
    for key, value in change.items():
        found[key] = merged(found.get(key) or {}, value) if isinstance(value, Mapping) else value
    return found


def problems(body: Object) -> list[PolicyError]:
    kind: type[ClusterPolicy | NVIDIADriver] = ClusterPolicy if body["kind"] == "ClusterPolicy" else NVIDIADriver
    if wrong := decode.violations_of(body, kind):
        return wrong
    if kind is ClusterPolicy:
        return validate.cluster_policy(decode.cluster_policy(body))
    return validate.nvidia_driver(decode.nvidia_driver(body))


def world(stage: Stage) -> Object:
    """Return what a person could have lost: labels, cordons, everything that gpuward made, pods and loaded drivers."""
    nodes = {node["metadata"]["name"]: (node["metadata"]["labels"], node["spec"].get("unschedulable"),
                                        node["metadata"]["annotations"].get(names.UPGRADE_ENABLED))
             for node in stage.sandbox.store.list("nodes")}
    made: dict[tuple[str, str], tuple[object, ...]] = {}
    for key in ("daemonsets.apps", "configmaps", "serviceaccounts", "roles.rbac.authorization.k8s.io", "services"):
        made |= {(key, obj["metadata"]["name"]): (obj["metadata"]["uid"], obj["metadata"].get("generation"), obj.get("data"))
                 for obj in stage.sandbox.store.list(key, SPACE)}
    pods = {pod["metadata"]["uid"] for pod in stage.pods()} | {pod["metadata"]["uid"] for pod in stage.workload_pods()}
    drivers = {name: stage.driver(name) for name in stage.states()}
    return {"nodes": nodes, "made": made, "pods": pods, "drivers": drivers}


def test_every_rule_has_a_case() -> None:
    rules = {rule.__name__ for rule in validate._CLUSTER_POLICY_RULES}
    assert rules == REFUSED.keys()
    assert {rule.__name__ for rule in validate._NVIDIA_DRIVER_RULES} == DRIVERS_REFUSED.keys()


async def cordoned_and_used(stage: Stage) -> None:
    """Let people have a cordon and a workload."""
    await stage.deploy("inference", node="gpu-1")
    await stage.cordon("gpu-2")
    await stage.rest(30)


async def edit_in_vain(stage: Stage) -> int:
    """Try every refused edit of the ClusterPolicy; return how many the API server let through."""
    before, valid = world(stage), stage.sandbox.store.get("clusterpolicies.nvidia.com", None, POLICY)
    tried = 0
    for change in (change for changes in REFUSED.values() for change in changes):
        body = {**valid, "spec": merged(merged(valid["spec"], DEEDS), change)}
        if not problems(body):
            continue  # it is no refusal in this mode
        await replace_spec(stage, body["spec"])
        tried += 1
        await stage.rest(90)
        assert world(stage) == before, change
        assert stage.condition()["reason"] == "ReconcileFailed"
        if tried % 5 == 1:
            await stage.restart_operator()
            await stage.rest(60)
            assert world(stage) == before, change
        await replace_spec(stage, valid["spec"])
        await stage.until(lambda: stage.policy_status()["state"] == "ready", 120)
        assert world(stage) == before, change
    return tried


async def replace_spec(stage: Stage, spec: Object) -> None:
    await stage.user.patch_json(resources.CLUSTER_POLICIES, POLICY, [{"op": "replace", "path": "/spec", "value": spec}])


@on_stage(gpu_nodes=2)
async def test_a_cluster_policy_that_is_refused_changes_nothing(stage: Stage) -> None:
    await stage.installed()
    await cordoned_and_used(stage)
    assert await edit_in_vain(stage) >= sum(map(len, REFUSED.values())) - 1


@on_stage(gpu_nodes=2)
async def test_a_cluster_policy_that_is_refused_changes_nothing_about_precompiled_drivers(stage: Stage) -> None:
    await stage.patch_policy("driver/version", "580")
    await stage.patch_policy("driver/usePrecompiled", True)
    await stage.installed()
    await cordoned_and_used(stage)
    assert await edit_in_vain(stage) >= sum(map(len, REFUSED.values())) - 1


@on_stage(gpu_nodes=2)
async def test_a_cluster_policy_that_is_refused_changes_nothing_about_nvidiadrivers(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("default", default=True))
    await stage.installed()
    await cordoned_and_used(stage)
    assert await edit_in_vain(stage) >= 15


@on_stage(gpu_nodes=3)
async def test_an_nvidiadriver_that_is_refused_changes_nothing(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1 gpu-2", b="gpu-3")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("default", default=True))
    await stage.installed()
    await cordoned_and_used(stage)
    before, valid = world(stage), stage.sandbox.store.get("nvidiadrivers.nvidia.com", None, "a")
    tried = [0, 0]
    for change in (change for changes in DRIVERS_REFUSED.values() for change in changes):
        deeds = {"version": NEW, **({} if "nodeSelector" in change else {"nodeSelector": {"pool": "b"}})}
        tried[0] += await edit_a(stage, merged(merged(valid["spec"], deeds), change), before)
        await set_spec(stage, valid["spec"])
        other = nvidia_driver("c", nodeSelector={"kubernetes.io/hostname": "gpu-3"})
        other["spec"] = merged(other["spec"], change)
        tried[1] += await make_c(stage, other, before)
    assert min(tried) >= 8, "most are refused by gpuward, not by the API server"


async def edit_a(stage: Stage, spec: Object, before: Object) -> bool:
    """Edit NVIDIADriver a in vain; tell whether the API server let the edit through."""
    try:
        await set_spec(stage, spec)
    except ApiError:
        return False
    await stage.rest(90)
    assert world(stage) == before, spec
    assert condition(stage, "a")[0] == "notReady"
    return True


async def make_c(stage: Stage, body: Object, before: Object) -> bool:
    """Make another NVIDIADriver in vain; tell whether the API server let it in."""
    assert problems(body)
    try:
        await make(stage, body)
    except ApiError:
        return False
    await stage.rest(90)
    assert world(stage) == before, body["spec"]
    assert condition(stage, "c")[0] == "notReady"
    await stage.user.delete(resources.NVIDIA_DRIVERS, "c")
    await stage.rest(30)
    assert world(stage) == before
    return True


async def set_spec(stage: Stage, spec: Object) -> None:
    await stage.user.patch_json(resources.NVIDIA_DRIVERS, "a", [{"op": "replace", "path": "/spec", "value": spec}])



@pytest.mark.parametrize("spoilt", ["", "{", "[" * 20_000, '{"version": 2, "labels": {"left_to_drivers": 7}}'])
def test_a_memory_that_somebody_spoilt_labels_nobody(spoilt: str) -> None:
    @on_stage(gpu_nodes=1)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "abc")
        await stage.rest(30)
        note = {"metadata": {"annotations": {names.VALID_UPGRADE_POLICY: spoilt}}}
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, note)
        before = world(stage)
        await stage.restart_operator()
        await stage.rest(120)
        assert world(stage) == before
        assert msgspec.json.encode(stage.policy_status())
        assert stage.drivers() == [OLD]

    play()
