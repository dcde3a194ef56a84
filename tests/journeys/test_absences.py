"""What has gone that gpuward needs, as events tell it."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import IN_PROGRESS
from tests.journeys.looking import explanation_of, status_of
from tests.journeys.stage import NEW, POLICY, Stage, on_stage
from tests.journeys.test_discovery import bring_back, lose, lose_gpu
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver
from tests.journeys.test_status_screen import shown


def told(stage: Stage, about: str, reason: str) -> list[tuple[str, str, int]]:
    """Return type, message and count of an object's events of a reason."""
    return [(event["type"], event["message"], event["count"]) for event in stage.sandbox.store.list("events", "default")
            if event["involvedObject"]["name"] == about and event["reason"] == reason]


@on_stage(gpu_nodes=3, upgrade={"maxParallelUpgrades": 1})
async def test_a_policy_that_is_deleted_in_mid_rollout_is_told_of_once(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: bool(IN_PROGRESS & set(stage.states().values())) and "upgrade-done" not in stage.states().values())
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(120)
    ((level, message, count),) = told(stage, POLICY, "GPUDriverUpgradePolicyDeleted")
    assert (level, count) == ("Warning", 1)
    assert "before the driver upgrade of 3 nodes (gpu-1, gpu-2, gpu-3) was done" in message


@on_stage(gpu_nodes=1)
async def test_a_policy_that_is_deleted_at_rest_has_no_event(stage: Stage) -> None:
    await stage.installed()
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(60)
    assert told(stage, POLICY, "GPUDriverUpgradePolicyDeleted") == []


@on_stage(gpu_nodes=1)
async def test_a_config_map_that_a_policy_names_and_that_is_missing_is_told_of(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/repoConfig", {"configMapName": "mirror"})
    await stage.until(lambda: bool(told(stage, POLICY, "ReconcileFailed")), within=120)
    await stage.rest(300)
    ((level, message, count),) = told(stage, POLICY, "ReconcileFailed")
    assert (level, count) == ("Warning", 1)
    assert "'mirror'" in message


@on_stage(gpu_nodes=1)
async def test_config_maps_that_only_pods_mount_are_told_of_until_they_are_there(stage: Stage) -> None:
    def missing(name: str, field: str) -> tuple[str, str, int]:
        return "Warning", f"ConfigMap gpu-operator/{name}, which {field} names, is not there: pods that mount it wait for it", 1

    await stage.installed()
    await stage.patch_policy("devicePlugin/config", {"name": "sharing", "default": "four"})
    await stage.patch_policy("dcgmExporter/config", {"name": "counters"})
    await stage.rest(300)
    assert sorted(told(stage, POLICY, "ConfigMapMissing")) == [
        missing("counters", "spec.dcgmExporter.config.name"), missing("sharing", "spec.devicePlugin.config.name")]
    lines = await shown(stage)
    (line,) = [line for line in lines if line.startswith("the operator says: ")]
    assert line.removeprefix("the operator says: ").startswith(
        "missing: ConfigMap gpu-operator/counters (spec.dcgmExporter.config.name), ConfigMap gpu-operator/sharing "
        "(spec.devicePlugin.config.name)")
    for name, data in (("sharing", {"four": "version: v1"}), ("counters", {"dcgm-metrics.csv": "x"})):
        stage.sandbox.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "gpu-operator"},
                             "data": data})
    await stage.until(lambda: stage.policy_status().get("state") == "ready", within=900)
    assert len(told(stage, POLICY, "ConfigMapMissing")) == 2


@on_stage(gpu_nodes=1)
async def test_a_config_map_that_an_nvidiadriver_names_is_told_of_there(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"))
    await stage.installed()
    await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": {"repoConfig": {"name": "mirror"}}})
    await stage.until(lambda: bool(told(stage, "a", "ReconcileFailed")), within=120)
    ((level, message, _),) = told(stage, "a", "ReconcileFailed")
    assert level == "Warning"
    assert "'mirror'" in message


@on_stage(gpu_nodes=4)
async def test_discovery_that_sees_nothing_any_more_is_told_of_once(stage: Stage) -> None:
    await stage.installed()
    labels = await lose_gpu(stage, "gpu-1")
    await stage.until(lambda: bool(told(stage, "gpu-1", "DiscoveryLost")), within=60)
    await bring_back(stage, "gpu-1", labels)
    await stage.rest(60)
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        await lose(stage, node)
    await stage.until(lambda: bool(told(stage, POLICY, "DiscoveryLost")), within=60)
    await stage.rest(300)
    ((level, message, count),) = told(stage, POLICY, "DiscoveryLost")
    assert (level, count) == ("Warning", 1)
    assert "they keep their operands" in message
    assert len(told(stage, "gpu-1", "DiscoveryLost")) == 1
    assert told(stage, "gpu-4", "DiscoveryLost") == []


@on_stage(gpu_nodes=4)
async def test_a_node_about_which_discovery_says_nothing_any_more_is_told_of(stage: Stage) -> None:
    await stage.installed()
    await lose(stage, "gpu-1")
    await stage.until(lambda: bool(told(stage, "gpu-1", "DiscoveryLost")), within=60)
    await stage.rest(1800)
    ((_, message, _),) = told(stage, "gpu-1", "DiscoveryLost")
    assert message.startswith("node feature discovery no longer says anything about this node: the GPU stack there stays")
    assert message in (await explanation_of(stage, "gpu-1")).notes
    (warning,) = (await status_of(stage))["warnings"]
    assert warning == message.replace("this node", "gpu-1")
    assert stage.labels("gpu-1")[names.GPU_PRESENT] == "true"


@on_stage(gpu_nodes=2)
async def test_labels_of_gpu_feature_discovery_that_vanish_are_told_of_on_their_node(stage: Stage) -> None:
    await stage.installed()
    await stage.until(lambda: bool(stage.labels("gpu-1").get(names.GPU_PRODUCT)), within=300)
    await stage.label("gpu-1", names.GPU_PRODUCT, None)
    await stage.until(lambda: bool(told(stage, "gpu-1", "DiscoveryLost")), within=60)
    assert "the labels of GPU feature discovery are gone" in told(stage, "gpu-1", "DiscoveryLost")[0][1]
    assert told(stage, "gpu-2", "DiscoveryLost") == []
