"""Which pods must go, and which of them may."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.model.explain import obstacle
from gpuward.model.policy import DrainSettings, PodDeletionSettings, UpgradePolicy
from gpuward.model.views import PodView
from gpuward.upgrade.evictable_pods import EvictablePods, pods_to_drain, pods_to_evict
from tests import build
from tests.build import NAMESPACE, gpu_pod, pod

GOES, STAYS = "goes", "stays"


def verdict(leaving: EvictablePods) -> str:
    """Say what becomes of the one pod asked about: it goes, it stays in peace, or the word that says why it blocks."""
    if leaving.pods:
        return GOES
    return obstacle(leaving.blocked[0].why) if leaving.blocked else STAYS


STRICT, LENIENT = PodDeletionSettings(), PodDeletionSettings(force=True, delete_empty_dir=True)


@pytest.mark.parametrize(
    ("who", "rules", "word"),
    [
        (gpu_pod(), STRICT, GOES),
        (gpu_pod(owner="Job", phase="Pending"), STRICT, GOES),
        (gpu_pod(phase="Succeeded"), STRICT, STAYS),
        (gpu_pod(phase="Failed"), STRICT, STAYS),
        (pod(), STRICT, STAYS),
        (pod(owner=None, empty_dir=True), STRICT, STAYS),
        (gpu_pod(owner=None), STRICT, "podDeletion.force"),
        (gpu_pod(owner=None), LENIENT, GOES),
        (gpu_pod(owner=None, deleting=True), STRICT, GOES),
        (gpu_pod(empty_dir=True), STRICT, "podDeletion.deleteEmptyDir"),
        (gpu_pod(empty_dir=True, deleting=True), STRICT, GOES),
        (gpu_pod(empty_dir=True), LENIENT, GOES),
        (gpu_pod(owner="DaemonSet"), LENIENT, "DaemonSet train-owner"),
        (gpu_pod(owner="DaemonSet", deleting=True), LENIENT, "DaemonSet train-owner"),
        (gpu_pod(owner="Node", mirror=True), LENIENT, "static pod"),
        (gpu_pod(namespace=NAMESPACE, labels={"app": "nvidia-cuda-validator"}), STRICT, STAYS),
        (gpu_pod(namespace=NAMESPACE, labels={"app": "nvidia-device-plugin-validator"}), STRICT, STAYS),
        (gpu_pod(namespace="default", labels={"app": "nvidia-cuda-validator"}), STRICT, GOES),
        (gpu_pod(labels={names.DRAIN_SKIP: "true"}), STRICT, GOES),
    ],
)
def test_pod_deletion_takes_gpu_pods_that_may_go(who: PodView, rules: PodDeletionSettings, word: str) -> None:
    assert word in verdict(pods_to_evict([who], UpgradePolicy(pod_deletion=rules), NAMESPACE))


DRAIN, HARD = DrainSettings(enable=True), DrainSettings(enable=True, force=True, delete_empty_dir=True)
ONLY_WEB = DrainSettings(enable=True, pod_selector="app=web")


@pytest.mark.parametrize(
    ("who", "rules", "word"),
    [
        (pod(), DRAIN, GOES),
        (gpu_pod(), DRAIN, GOES),
        (pod(labels={"app": "web"}), ONLY_WEB, GOES),
        (pod(labels={"app": "db"}), ONLY_WEB, STAYS),
        (pod(labels={"app": "web", names.DRAIN_SKIP: "true"}), ONLY_WEB, STAYS),
        (pod(labels={names.DRAIN_SKIP: "true"}), DRAIN, STAYS),
        (pod(labels={names.DRAIN_SKIP: "false"}), DRAIN, GOES),
        (pod(owner="DaemonSet"), DRAIN, STAYS),
        (pod(owner="Node", mirror=True), DRAIN, STAYS),
        (pod(owner=None), DRAIN, "drain.force"),
        (pod(owner=None), HARD, GOES),
        (pod(empty_dir=True), DRAIN, "drain.deleteEmptyDir"),
        (pod(empty_dir=True), HARD, GOES),
        (pod(owner=None, empty_dir=True, phase="Succeeded"), DRAIN, GOES),
        (build.driver_pod(orphan=True), DRAIN, STAYS),
        (build.validator(), DRAIN, STAYS),
        # A drain passes over these, yet the driver cannot be replaced under them.
        (gpu_pod(owner="DaemonSet"), HARD, "DaemonSet train-owner"),
        (gpu_pod(owner="Node", mirror=True), HARD, "static pod"),
        (gpu_pod(labels={names.DRAIN_SKIP: "true"}), DRAIN, GOES),
        (gpu_pod(labels={"app": "db"}), ONLY_WEB, GOES),
        (gpu_pod(labels={"app": "db"}, owner=None), ONLY_WEB, "podDeletion.force"),
        (gpu_pod(owner=None), DRAIN, "drain.force"),
    ],
)
def test_a_drain_takes_what_kubectl_would_and_every_gpu_pod(who: PodView, rules: DrainSettings, word: str) -> None:
    assert word in verdict(pods_to_drain([who], build.policy(drain=rules), NAMESPACE))


def test_what_either_rule_permits_may_go_in_a_drain() -> None:
    deletion_permits = build.policy(force=True, drain=DRAIN)
    drain_permits = build.policy(drain=HARD)
    neither = build.policy(drain=DRAIN)
    bare = gpu_pod(owner=None)
    assert verdict(pods_to_drain([bare], deletion_permits, NAMESPACE)) == GOES
    assert verdict(pods_to_drain([bare], drain_permits, NAMESPACE)) == GOES
    assert len(pods_to_drain([bare], neither, NAMESPACE).blocked) == 1


def test_pods_are_split_one_by_one() -> None:
    leaving = pods_to_evict([gpu_pod(name="a"), gpu_pod(name="b", owner=None), pod(name="c")], UpgradePolicy(), NAMESPACE)
    assert [going.name for going in leaving.pods] == ["a"]
    assert [held.pod.name for held in leaving.blocked] == ["b"]
    assert not leaving.empty
    assert EvictablePods().empty
