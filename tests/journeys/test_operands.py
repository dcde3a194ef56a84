"""The operands' objects stay as the policy wants them, whoever changes or deletes them."""

from __future__ import annotations

from typing import Any

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from kubesandbox.store import Event
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage

NAMESPACE = names.DEFAULT_NAMESPACE
KINDS = ("daemonsets.apps", "configmaps", "serviceaccounts", "services", "roles.rbac.authorization.k8s.io",
         "rolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io",
         "clusterrolebindings.rbac.authorization.k8s.io", "runtimeclasses.node.k8s.io")


def ours(stage: Stage) -> dict[str, dict[str, Any]]:
    """Return the objects that the policy owns, by kind and name."""
    return {f"{kind}/{obj['metadata']['name']}": obj for kind in KINDS for obj in stage.sandbox.store.list(kind)
            if any(owner["name"] == POLICY for owner in obj["metadata"].get("ownerReferences") or ())}


@on_stage(gpu_nodes=1)
async def test_an_operand_that_is_switched_off_takes_its_objects_along_and_no_others(stage: Stage) -> None:
    await stage.installed()
    before = ours(stage)
    await stage.patch_policy("dcgmExporter/enabled", False)
    await stage.until(lambda: "daemonsets.apps/nvidia-dcgm-exporter" not in ours(stage))
    await stage.installed()
    await stage.rest(30)
    after = ours(stage)
    gone = before.keys() - after.keys()
    assert gone
    assert all("dcgm-exporter" in name for name in gone), gone
    assert not [name for name in after if "dcgm-exporter" in name]
    changed = [name for name in after if after[name].get("spec") != before[name].get("spec")]
    assert changed == []
    assert not stage.pods("nvidia-dcgm-exporter")
    await stage.patch_policy("dcgmExporter/enabled", True)
    await stage.until(lambda: ours(stage).keys() == before.keys())
    await stage.installed()


@on_stage(gpu_nodes=1)
async def test_what_people_change_in_a_daemonset_is_put_back(stage: Stage) -> None:
    await stage.installed()
    name = "nvidia-device-plugin-daemonset"
    before = stage.get("daemonsets.apps", name)["spec"]
    patch: list[dict[str, Any]] = [
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example.com/mine:1"},
        {"op": "add", "path": "/spec/template/spec/tolerations/-", "value": {"operator": "Exists"}}]
    await stage.user.patch_json(resources.DAEMON_SETS, name, patch, NAMESPACE)
    assert stage.get("daemonsets.apps", name)["spec"] != before
    await stage.until(lambda: stage.get("daemonsets.apps", name)["spec"] == before, within=30)
    await stage.installed()


@on_stage(gpu_nodes=1)
async def test_labels_and_annotations_that_people_change_on_a_daemonset_are_put_back_and_others_stay(stage: Stage) -> None:
    await stage.patch_policy("daemonsets", {"labels": {"team": "ml"}, "annotations": {"note": "ours"}})
    await stage.installed()
    name, writes = "nvidia-container-toolkit-daemonset", []
    stage.sandbox.store.subscribe(lambda event: writes.append(event) if event.resource_key == "daemonsets.apps" else None)
    theirs = {"labels": {"app": "nonsense", "team": None, "cost": "7"}, "annotations": {"note": "theirs", "more": "theirs"}}
    await stage.user.patch_merge(resources.DAEMON_SETS, name, {"metadata": theirs}, NAMESPACE)
    await stage.rest(30)
    meta = stage.get("daemonsets.apps", name)["metadata"]
    assert meta["labels"] | {"app": name, "team": "ml"} == meta["labels"]
    assert meta["annotations"]["note"] == "ours"
    assert len(writes) == 2
    await stage.user.patch_merge(resources.DAEMON_SETS, name, {"metadata": {"labels": {"cost": "8"}}}, NAMESPACE)
    await stage.rest(30)
    assert stage.get("daemonsets.apps", name)["metadata"]["labels"]["cost"] == "8"
    assert len(writes) == 3


@on_stage(gpu_nodes=1)
async def test_what_people_change_in_a_daemonset_while_nobody_watches_is_put_back_too(stage: Stage) -> None:
    await stage.installed()
    name = "gpu-feature-discovery"
    before = stage.get("daemonsets.apps", name)["spec"]
    await stage.kill_operator()
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example.com/mine:1"}]
    await stage.user.patch_json(resources.DAEMON_SETS, name, patch, NAMESPACE)
    await stage.restart_operator()
    await stage.until(lambda: stage.get("daemonsets.apps", name)["spec"] == before, within=30)


@on_stage(gpu_nodes=1)
async def test_what_people_change_in_a_config_map_is_put_back(stage: Stage) -> None:
    await stage.installed()
    name = next(obj["metadata"]["name"] for key, obj in ours(stage).items() if key.startswith("configmaps/"))
    before = stage.get("configmaps", name)["data"]
    key = next(iter(before))
    patch = {"data": {key: "exit 1", "added": "x"}}
    await stage.user.patch_merge(resources.CONFIG_MAPS, name, patch, NAMESPACE)
    await stage.until(lambda: stage.get("configmaps", name)["data"] == before, within=30)


@on_stage(gpu_nodes=1)
async def test_what_is_deleted_comes_back(stage: Stage) -> None:
    await stage.installed()
    before = ours(stage)
    for key in ("daemonsets.apps/nvidia-device-plugin-daemonset", "runtimeclasses.node.k8s.io/nvidia"):
        kind, _, name = key.partition("/")
        stage.sandbox.store.delete(kind, before[key]["metadata"].get("namespace"), name)
    await stage.until(lambda: ours(stage).keys() == before.keys(), within=60)
    await stage.installed()
    assert stage.drivers() == [OLD]


@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%"})
async def test_a_driver_daemonset_that_is_deleted_comes_back_and_nodes_end_in_service(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.store.delete("daemonsets.apps", NAMESPACE, "nvidia-driver-daemonset")
    await stage.until(lambda: stage.sandbox.store.find("daemonsets.apps", NAMESPACE, "nvidia-driver-daemonset"), within=60)
    await stage.rest(60)
    await stage.installed()
    assert stage.cordons() == []


@on_stage(gpu_nodes=2)
async def test_a_restart_of_the_operator_rewrites_nothing_that_is_as_wanted(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    writes: list[str] = []
    stage.sandbox.store.subscribe(lambda event: writes.append(_what(event)))
    await stage.restart_operator()
    await stage.rest(120)
    assert writes == []
    assert stage.client.stats.total("create", "pods/eviction") == 0


def _what(event: Event) -> str:
    return f"{event.type} {event.resource_key} {event.obj['metadata']['name']}"


@on_stage(gpu_nodes=1)
async def test_what_the_policy_refers_to_is_named_while_it_is_missing_and_found_when_it_comes(stage: Stage) -> None:
    await stage.installed()
    before = stage.get("daemonsets.apps", "nvidia-driver-daemonset")["spec"]
    await stage.patch_policy("driver/repoConfig/configMapName", "mirror")
    await stage.until(lambda: stage.condition().get("reason") == "ReconcileFailed")
    assert "spec.driver.repoConfig.configMapName: 'mirror'" in stage.condition()["message"]
    assert stage.get("daemonsets.apps", "nvidia-driver-daemonset")["spec"] == before, "what runs stays as it is"
    asked = stage.client.stats.total("get", "configmaps")
    for number in range(300):
        await stage.label("cpu-1", "nvidia.com/noise", str(number))
        await stage.rest(1)
    assert stage.client.stats.total("get", "configmaps") - asked <= 300 / 15 + 1
    await stage.user.create(resources.CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"custom.list": ""},
                                                    "metadata": {"name": "mirror", "namespace": NAMESPACE}})
    await stage.until(lambda: stage.get("daemonsets.apps", "nvidia-driver-daemonset")["spec"] != before, within=30)
    await stage.installed()


@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 1})
async def test_a_switch_to_precompiled_drivers_takes_node_by_node_and_no_driver_from_under_a_workload(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1")
    stage.watch_limits()
    await stage.patch_policy("driver/version", "580")
    await stage.patch_policy("driver/usePrecompiled", True)
    await stage.until(lambda: all(pod["metadata"]["labels"][names.PRECOMPILED] == "true" for pod in drivers(stage))
                      and stage.all_are(State.DONE))
    assert stage.most_in_progress == 1
    assert State.POD_DELETION_REQUIRED in stage.entered("gpu-1")
    assert stage.cordons() == []


def drivers(stage: Stage) -> list[dict[str, Any]]:
    """Return the driver pods, whatever mode they are of."""
    component = (names.COMPONENT_LABEL, names.DRIVER_COMPONENT)
    return [pod for pod in stage.pods() if component in pod["metadata"]["labels"].items()]


@on_stage(gpu_nodes=2)
async def test_a_driver_daemon_set_whose_node_selector_somebody_widened_is_put_right(stage: Stage) -> None:
    """Its pod on a machine without GPUs never gets ready, and held every later version back."""
    await stage.installed()
    await stage.user.patch_merge(resources.DAEMON_SETS, names.DRIVER_APP, {"spec": {"template": {"spec": {"nodeSelector": {
        names.DEPLOY_DRIVER: None}}}}}, names.DEFAULT_NAMESPACE)
    await stage.rest(30)
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    assert {pod["spec"]["nodeName"] for pod in stage.pods(names.DRIVER_APP)} == {"gpu-1", "gpu-2"}
