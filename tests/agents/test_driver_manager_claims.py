"""The driver manager under pods with ResourceClaims: which of them hold the driver, and which go by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuward import errors, names
from gpuward.agents.drivermanager.facts import Settings
from tests.agents.test_driver_manager_evict import TRAIN
from tests.agents.test_driver_manager_waits import Cluster, Place

DRA = names.DEPLOY_PREFIX + "dra-driver"
CHECKS = names.DEPLOY_PREFIX + "dra-validator"
RUNS = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
BY_OPERATOR = Settings("gpu-1", digest="new")


class Claimed(Cluster):
    """Be a cluster with one claim, of a driver; or without it. The operator upgrades the node."""

    def __init__(self, driver: str) -> None:
        super().__init__()
        self.driver, self.looks = driver, 0
        self.node["metadata"].setdefault("annotations", {})[names.UPGRADE_ENABLED] = "true"
        self.node["metadata"]["labels"][DRA] = "true"

    def get(self, path: str) -> dict[str, Any]:
        if "resourceclaims" not in path:
            return super().get(path)
        if not self.driver:
            raise errors.NotFound("resourceclaims.resource.k8s.io \"one\" not found")
        return {"metadata": {"name": "one", "namespace": "default", "uid": "c"},
                "status": {"allocation": {"devices": {"results": [{"driver": self.driver}]}}}}

    def list(self, path: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        """Return the pods; those that check go some looks after their label is paused."""
        self.looks += "paused" in self.node["metadata"]["labels"].get(CHECKS, "")
        if self.looks > 3:
            self.evicted("checks")
        return [] if labels else self.pods


def claimant(name: str = "train", *, gpu: bool = False, daemonset: str = "") -> dict[str, Any]:
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemonset, "uid": "u0", "controller": True}]
    limits = {"limits": {"nvidia.com/gpu": "1"}} if gpu else {}
    return {**TRAIN, "status": RUNS,
            "metadata": {**TRAIN["metadata"], "name": name, **({"ownerReferences": owner} if daemonset else {})},
            "spec": {"nodeName": "gpu-1", "nodeSelector": {CHECKS: "true"} if daemonset else {},
                     "resourceClaims": [{"name": "a", "resourceClaimName": "one"}],
                     "containers": [{"name": "main", "resources": {**limits, "claims": [{"name": "a"}]}}]}}


@pytest.mark.parametrize(("driver", "gpu", "why"), [
    (names.DRA_DRIVER, False, "default/train hold claims of NVIDIA's DRA driver: they have to end first"),
    ("net.example", True, "the GPUs are in use by pod default/train: stop them, or let the operator empty the node"),
    ("net.example", False, ""), ("", False, "")], ids=["a GPU", "a network and a GPU", "a network", "nothing"])
def test_only_a_claim_of_gpus_is_called_one(tmp_path: Path, driver: str, gpu: bool, why: str) -> None:
    place = Place(tmp_path, Claimed(driver))
    place.server.pods = [claimant(gpu=gpu)]
    assert place.run(BY_OPERATOR) == why
    assert bool(place.machine.modules()) is bool(why)


@pytest.mark.parametrize(("driver", "keeps"), [(names.DRA_DRIVER, True), ("net.example", False)])
@pytest.mark.parametrize("policy", [{"restartPolicy": "Always"}, {}], ids=["a sidecar", "an init container"])
def test_a_container_that_runs_before_the_others_keeps_the_driver_if_it_alone_has_a_claim_of_gpus(
        tmp_path: Path, policy: dict[str, str], driver: str, keeps: bool) -> None:
    """Where NVIDIA's DRA driver was installed by a chart of its own the node has no label for it."""
    place = Place(tmp_path, Claimed(driver))
    del place.server.node["metadata"]["labels"][DRA]
    pod = claimant()
    first = {"name": "first", "resources": pod["spec"]["containers"][0]["resources"], **policy}
    started = {"initContainerStatuses": [{"name": "first", "state": {"running": {}}}]}
    place.server.pods = [{**pod, "spec": {**pod["spec"], "initContainers": [first], "containers": [{"name": "main"}]},
                          "status": {"phase": "Pending", **started}}]
    why = place.run(BY_OPERATOR)
    assert why == "the GPUs are in use by pod default/train: stop them, or let the operator empty the node" * keeps
    assert bool(place.machine.modules()) is keeps


def test_a_pod_whose_claim_is_not_found_is_not_evicted(tmp_path: Path) -> None:
    """As where the server knows claims in older versions only: NVIDIA's driver manager passes over them."""
    place = Place(tmp_path, Claimed(""))
    place.server.node["metadata"]["annotations"].clear()
    place.server.pods = [claimant()]
    assert place.run(Settings("gpu-1", digest="new")) == ""
    assert [pod["metadata"]["name"] for pod in place.server.pods] == ["train"], place.said.getvalue()
    assert not place.machine.modules()


@pytest.mark.parametrize(("driver", "gpu"), [(names.DRA_DRIVER, False), ("net.example", True)], ids=["a claim", "a resource"])
def test_a_daemonset_with_a_gpu_that_goes_with_a_label_is_waited_for(tmp_path: Path, driver: str, gpu: bool) -> None:
    """The plugin that takes the devices back from it goes after it."""
    place = Place(tmp_path, Claimed(driver))
    place.server.node["metadata"]["labels"][CHECKS] = "true"
    place.server.pods = [claimant("checks", gpu=gpu, daemonset="nvidia-dra-validator")]
    assert place.run(BY_OPERATOR) == "", place.said.getvalue()
    said = place.said.getvalue()
    assert said.index("default/checks have to end") < said.index("pausing operands: dra-driver=")
    assert not place.machine.modules()
    labels = place.server.node["metadata"]["labels"]
    assert (labels[DRA], labels[CHECKS]) == ("true", "true")
