"""The driver manager where the validator has left a pod in its way: one that tries a GPU may hang on it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gpuward import names
from gpuward.agents.drivermanager.facts import Settings
from tests.agents.test_driver_manager_waits import Cluster, Place

UID = "11111111-2222-3333-4444-555555555555"
VALIDATOR = names.DEPLOY_PREFIX + "operator-validator"
PAUSED = "paused-for-driver-upgrade"


def validation(app: str, *, gpu: bool) -> dict[str, Any]:
    owner = [{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy", "uid": "u1", "controller": True}]
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}} if gpu else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {
                "name": "validation", "namespace": "gpu-operator", "uid": UID, "labels": {"app": app}, "ownerReferences": owner},
            "spec": {"nodeName": "gpu-1", "initContainers": [{"name": "check", **limits}], "containers": [{"name": "main"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [{"name": "check", "state": {"running": {}}}]}}


def operand() -> dict[str, Any]:
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nvidia-operator-validator", "uid": "u2", "controller": True}]
    return {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "gpu-1", "containers": [{"name": "main"}]}, "metadata": {
        "name": "validator", "namespace": "gpu-operator", "uid": "u3", "labels": {"app": "nvidia-operator-validator"},
        "ownerReferences": owner}}


class Controlled(Cluster):
    """Be a cluster where the validator goes with its label, after a while, and starts a pod anew as long as it is there."""

    def __init__(self, processes: Path) -> None:
        super().__init__()
        self.processes, self.looks = processes, 0

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        self.looks += PAUSED in self.node["metadata"]["labels"].values()
        if self.looks == 3:
            self.evicted("validator")
        return self.pods

    def evicted(self, name: str) -> None:
        assert name == "validator" or not any(pod["metadata"]["name"] == "validator" for pod in self.pods), "it comes again"
        if name == "validation":
            shutil.rmtree(self.processes / "77")
        super().evicted(name)


@pytest.mark.parametrize("operator", [True, False], ids=["upgraded by the operator", "else"])
@pytest.mark.parametrize(("app", "gpu"), [("nvidia-cuda-validator", False), ("nvidia-device-plugin-validator", True)])
def test_a_validation_that_hangs_on_a_gpu_does_not_keep_the_driver_for_ever(
        tmp_path: Path, app: str, gpu: bool, operator: bool) -> None:
    """A new driver is what such a node may need."""
    place = Place(tmp_path, Controlled(tmp_path / "proc"))
    place.server.pods = [validation(app, gpu=gpu), operand()]
    place.server.node["metadata"]["labels"][VALIDATOR] = "true"
    if operator:
        place.server.node["metadata"].setdefault("annotations", {})[names.UPGRADE_ENABLED] = "true"
    place.uses_gpu(77, "gpuward", UID)
    assert place.run(Settings("gpu-1", digest="new")) == "", place.said.getvalue()
    assert not place.machine.modules()
    assert place.server.pods == []
    assert place.server.node["metadata"]["labels"][VALIDATOR] == "true"


def test_a_validation_that_does_not_end_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path, Cluster("no "))
    place.server.pods = [validation("nvidia-cuda-validator", gpu=False)]
    why = place.run(Settings("gpu-1"))
    assert why == f"the validator's gpu-operator/validation (no {place.server.refusals}) did not end in time"
    assert set(place.machine.modules()) == {"nvidia"}


def test_a_validation_goes_on_beside_a_driver_that_stays(tmp_path: Path) -> None:
    place = Place(tmp_path, Cluster())
    (tmp_path / "root/run/nvidia/nvidia-driver.state").write_text("same\n")
    place.server.pods = pods = [validation("nvidia-cuda-validator", gpu=False)]
    assert place.run(Settings("gpu-1", digest="same")) == ""
    assert place.server.pods == pods
