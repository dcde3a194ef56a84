"""The commands of NVIDIA's driver upgrade page, word for word, by a real kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.cluster import Cluster

pytestmark = pytest.mark.kubectl

POLICY = Path(__file__).parents[2] / "examples" / "clusterpolicy.yaml"
STATE = "nvidia.com/gpu-driver-upgrade-state"


@pytest.fixture(scope="module", autouse=True)
def policy(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", str(POLICY))


def test_patching_the_driver_version(cluster: Cluster) -> None:
    change = '[{"op": "replace", "path": "/spec/driver/version", "value":"510.85.02"}]'
    assert "patched" in cluster.kubectl("patch", "clusterpolicy/cluster-policy", "--type=json", f"-p={change}")
    assert cluster.kubectl("get", "clusterpolicy", "cluster-policy",
                           "-ojsonpath={.spec.driver.version} {.metadata.generation}") == "510.85.02 2"


def test_listing_the_upgrade_states(cluster: Cluster) -> None:
    cluster.kubectl("label", "node", "gpu-2", f"{STATE}=upgrade-required", "--overwrite")
    template = (r'-ojsonpath={range .items[*]}{.metadata.name}{"\t"}'
                r'{.metadata.labels.nvidia\.com/gpu-driver-upgrade-state}{"\n"}{end}')
    assert cluster.kubectl("get", "node", "-l", "nvidia.com/gpu.present", template) == "gpu-1\t\ngpu-2\tupgrade-required\n"


def test_labels_that_steer_the_upgrade(cluster: Cluster) -> None:
    assert "labeled" in cluster.kubectl("label", "node", "gpu-1", f"{STATE}=upgrade-required", "--overwrite")
    assert "labeled" in cluster.kubectl("label", "node", "gpu-1", "nvidia.com/gpu-driver-upgrade.skip=true")
    labels = cluster.do(lambda: cluster.store.get("nodes", None, "gpu-1"))["metadata"]["labels"]
    assert (labels[STATE], labels["nvidia.com/gpu-driver-upgrade.skip"]) == ("upgrade-required", "true")


def test_events_sorted_by_time(cluster: Cluster) -> None:
    for name, when in (("late", "2026-01-01T00:02:00Z"), ("early", "2026-01-01T00:01:00Z")):
        cluster.do(lambda name=name, when=when: cluster.store.create("events", {  # type: ignore[misc]  # bound now
            "metadata": {"name": name, "namespace": "default"}, "reason": "GPUDriverUpgrade", "type": "Normal",
            "message": name,
            "involvedObject": {"kind": "Node", "name": "gpu-1"}, "firstTimestamp": when, "lastTimestamp": when, "count": 1}))
    lines = cluster.kubectl("get", "events", "-n", "default", "--sort-by=.lastTimestamp").splitlines()
    assert lines[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert [line.split()[-1] for line in lines[1:] if "GPUDriverUpgrade" in line] == ["early", "late"]


def test_logs_of_a_registered_pod(cluster: Cluster) -> None:
    cluster.api.log_sources["gpu-operator", "web"] = lambda: "INFO controllers.Upgrade one\nINFO controllers.ClusterPolicy two\n"
    assert "controllers.Upgrade one" in cluster.kubectl("logs", "-n", "gpu-operator", "web")
    assert cluster.kubectl("logs", "-n", "gpu-operator", "web", "--tail=1") == "INFO controllers.ClusterPolicy two\n"


def test_watching_driver_pods(cluster: Cluster) -> None:
    watching = cluster.popen("get", "pods", "-n", "gpu-operator", "-lapp=nvidia-driver-daemonset", "-w", "--output-watch-events")
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:3] == ["EVENT", "NAME", "READY"]
        assert watching.stdout.readline().split()[:4] == ["ADDED", "driver-a", "1/1", "Running"]
        cluster.do(lambda: cluster.store.delete("pods", "gpu-operator", "driver-a"))
        assert watching.stdout.readline().split()[:4] == ["MODIFIED", "driver-a", "1/1", "Terminating"]
        cluster.do(lambda: cluster.store.remove("pods", "gpu-operator", "driver-a"))
        assert watching.stdout.readline().split()[:2] == ["DELETED", "driver-a"]
    finally:
        watching.kill()
        watching.communicate()


@pytest.mark.parametrize(("change", "message"), [
    ('{"spec":{"driver":{"upgradePolicy":{"maxParallelUpgrades":-1}}}}',
     "spec.driver.upgradePolicy.maxParallelUpgrades: Invalid value: -1: "
     "spec.driver.upgradePolicy.maxParallelUpgrades in body should be greater than or equal to 0"),
    ('{"spec":{"daemonsets":{"updateStrategy":"Sideways"}}}', 'Unsupported value: "Sideways"'),
])
def test_an_invalid_policy_is_refused(cluster: Cluster, change: str, message: str) -> None:
    told = cluster.kubectl("patch", "clusterpolicy/cluster-policy", "--type=merge", f"-p={change}", fails=True)
    assert 'The ClusterPolicy "cluster-policy" is invalid' in told
    assert message in told
