"""Which pods are kept, as the policy wants them."""

from __future__ import annotations

import asyncio

from gpuward.model.policy import DrainSettings, JobSettings, UpgradePolicy
from gpuward.model.rollout import DeviceHolders, RolloutSettings
from gpuward.policy.pods import covers
from gpuward.sandbox.fleet import workloads
from tests.journeys.stage import Stage, on_stage


def kept(stage: Stage) -> set[str]:
    return {pod.labels.get("app", "") for pod in stage.operator.cluster.pods.values() if pod.namespace == "ml"}


@on_stage(gpu_nodes=1)
async def test_a_policy_that_makes_more_pods_matter_has_them_listed_before_it_is_followed(stage: Stage) -> None:
    await stage.installed()
    for obj in workloads(inference=1, training=1, web=2):
        stage.sandbox.apply(obj)
    await stage.until(lambda: kept(stage) == {"inference", "training"})

    def covered(policy: UpgradePolicy) -> bool:
        return covers(stage.operator.cluster.observe().followed, [policy])

    assert covered(UpgradePolicy())
    assert not covered(UpgradePolicy(drain=DrainSettings(enable=True)))
    assert not covered(UpgradePolicy(rollout=RolloutSettings(device_holders=DeviceHolders.IGNORE)))
    await stage.patch_policy("driver/upgradePolicy/drain/enable", True)
    await stage.until(lambda: kept(stage) == {"inference", "training", "web"}, within=10)
    assert covered(UpgradePolicy(drain=DrainSettings(enable=True)))
    await stage.patch_policy("driver/upgradePolicy/drain/enable", False)
    await stage.patch_policy("driver/upgradePolicy/waitForCompletion/podSelector", "app=web")
    await asyncio.sleep(5)
    assert covered(UpgradePolicy(wait_for_completion=JobSettings("app=web")))
    assert not covered(UpgradePolicy())


@on_stage(gpu_nodes=2)
async def test_following_other_pods_wakes_the_rollout_even_if_there_are_none(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.patch_policy("driver/upgradePolicy/waitForCompletion/podSelector", "app=none")
    await stage.upgraded(within=200)
