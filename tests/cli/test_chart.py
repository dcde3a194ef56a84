"""What NVIDIA's chart starts in the operator's image: the names, their flags, and what its hooks do to a cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward.cli.chart import PROGRAMS
from gpuward.cli.main import CHART_NAMES
from gpuward.cli.managecrds import apply, clean_up, crds_in, delete
from gpuward.crd.generate import all_crds
from gpuward.errors import Conflict, GpuwardError, InputError
from gpuward.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from tests.cli.test_commands import PATIENCE, pointing_to
from tests.cli.verbs import Cluster, on_cluster, said, switched

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
POLICIES = "clusterpolicies.nvidia.com"
KEY = "customresourcedefinitions.apiextensions.k8s.io"
WIDGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
    "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
}
GPU_CLUSTERS = {
    **WIDGETS, "metadata": {"name": "gpuclusters.nvidia.com"},
    "spec": {**WIDGETS["spec"], "group": "nvidia.com", "names": {"plural": "gpuclusters", "kind": "GPUCluster"}, "versions": [
        {**WIDGETS["spec"]["versions"][0], "name": "v1alpha1"}]},
}
GPU_CLUSTER = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}}


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """Lay the executable of the image under all its names."""
    (tmp_path / "gpuward").write_text(f"#!{sys.executable} -I\nfrom gpuward.cli.main import main\nmain()\n")
    (tmp_path / "gpuward").chmod(0o755)
    for name in CHART_NAMES:
        (tmp_path / name).symlink_to("gpuward")
    return tmp_path


def called(command: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "OPERATOR_NAMESPACE")} | environment
    return subprocess.run([command, *arguments], env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_each_name_answers_with_a_version_and_help_of_its_own(bin_folder: Path, name: str) -> None:
    assert called(bin_folder / name, "--version").stdout.startswith(f"{name}, version ")
    assert called(bin_folder / name, "--help").stdout.startswith(f"Usage: {name} ")
    assert called(bin_folder / name, "--nonsense").returncode == 2


def test_gpu_operator_takes_the_flags_of_the_chart_and_runs_the_operator(bin_folder: Path) -> None:
    flags = ("--leader-elect", "--zap-time-encoding=epoch", "--zap-log-level=info", "--zap-stacktrace-level=panic")
    done = called(bin_folder / "gpu-operator", *flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpu-operator: OPERATOR_NAMESPACE: '' cannot be used: ")


def test_a_hook_that_reaches_no_api_server_says_so_in_a_line(bin_folder: Path, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        config = pointing_to(tmp_path, f"http://127.0.0.1:{closed.getsockname()[1]}")
        done = called(bin_folder / "manage-crds", "apply", f"--filepath={CRDS}/*.yaml", KUBECONFIG=str(config))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("manage-crds: the API server cannot be reached: ")


def test_files_are_found_by_name_by_folder_and_by_pattern(tmp_path: Path) -> None:
    names = {crd["metadata"]["name"] for crd in all_crds()}
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.yml").write_text(f"# none\n---\n{yaml.safe_dump(WIDGETS)}---\nkind: ConfigMap\n")
    (tmp_path / "below" / "a.json").write_text("not looked at: ]")
    assert {crd["metadata"]["name"] for crd in crds_in([str(CRDS)])} == names
    assert {crd["metadata"]["name"] for crd in crds_in([f"{CRDS}/*.yaml"])} == names
    assert crds_in([str(tmp_path)]) == crds_in([str(tmp_path / "below" / "a.yml")]) == [WIDGETS]


@pytest.mark.parametrize(("text", "told"), [
    ("a: [", "it is not YAML"), ("kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1beta1", "must be of"),
    ("kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1\nmetadata: {name: a}", "needs a name and a spec"),
])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError, match=rf"a\.yaml.*{told}"):
        crds_in([str(tmp_path)])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        crds_in([str(tmp_path / "nothing.yaml")])


@on_cluster(switched(True))
async def test_an_update_keeps_objects_and_what_others_noted(cluster: Cluster) -> None:
    old = cluster.sandbox.store.get(KEY, None, POLICIES)
    schema = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    before = {**old["spec"]["versions"][0], "schema": {"openAPIV3Schema": {**schema, "description": "old"}}}
    cluster.sandbox.apply({**old, "metadata": {"name": POLICIES, "labels": {"theirs": "1"}},
                           "spec": {**old["spec"], "versions": [before]}})
    policy = cluster.policy()
    crds = [*crds_in([str(CRDS)]), WIDGETS]
    lines = await said(apply(cluster.client, crds))
    assert lines == ["CRD rolloutpolicies.gpuward.io unchanged", f"CRD {POLICIES} updated",
                     "CRD nvidiadrivers.nvidia.com unchanged", "CRD widgets.example.com created"]
    now = cluster.sandbox.store.get(KEY, None, POLICIES)
    assert now["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] != "old"
    assert now["metadata"]["labels"]["theirs"] == "1"
    assert now["metadata"]["uid"] == old["metadata"]["uid"]
    assert cluster.policy() == policy


@on_cluster()
async def test_a_crd_that_somebody_changes_meanwhile_is_read_again(cluster: Cluster) -> None:
    class Meddled:
        """Let somebody else write between our look and our write, as often as told."""

        left = 2

        async def replace(self, resource: Any, obj: dict[str, Any]) -> Any:
            if self.left:
                self.left -= 1
                cluster.sandbox.store.modify(KEY, None, POLICIES,
                                             lambda crd: crd["metadata"].setdefault("labels", {}).update(n=str(self.left)))
            return await original(resource, obj)

    original, meddled = cluster.client.replace, Meddled()
    cluster.client.replace = meddled.replace  # type: ignore[method-assign, assignment]
    crds = crds_in([str(CRDS / "nvidia.com_clusterpolicies.yaml")])
    assert await said(apply(cluster.client, crds)) == [f"CRD {POLICIES} unchanged"]
    assert cluster.sandbox.store.get(KEY, None, POLICIES)["metadata"]["labels"] == {"n": "0"}
    meddled.left = 99
    with pytest.raises(Conflict, match=f"somebody else changes CRD {POLICIES} all the time"):
        await said(apply(cluster.client, crds))


@on_cluster()
async def test_a_crd_on_its_way_out_is_not_written_to(cluster: Cluster) -> None:
    cluster.sandbox.apply({**WIDGETS, "metadata": {"name": "widgets.example.com", "finalizers": ["example.com/stays"]}})
    await cluster.client.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com")
    with pytest.raises(GpuwardError, match=r"CRD widgets\.example\.com is being deleted"):
        await said(apply(cluster.client, [WIDGETS]))


@on_cluster(switched(True))
async def test_delete_takes_crds_and_their_objects(cluster: Cluster) -> None:
    assert await said(delete(cluster.client, [*crds_in([str(CRDS / "nvidia.com_clusterpolicies.yaml")]), WIDGETS])) == [
        f"CRD {POLICIES} deleted", "CRD widgets.example.com is not there"]
    assert POLICIES not in {crd["metadata"]["name"] for crd in cluster.sandbox.store.list(KEY)}


@on_cluster()
async def test_a_gpucluster_of_no_installed_kind_is_gone_already(cluster: Cluster) -> None:
    assert await said(clean_up(cluster.client, "gpu-cluster")) == ["There is no GPUCluster gpu-cluster"]


@on_cluster(GPU_CLUSTERS, GPU_CLUSTER)
async def test_a_gpucluster_is_deleted(cluster: Cluster) -> None:
    assert await said(clean_up(cluster.client, "gpu-cluster")) == ["Deleting GPUCluster gpu-cluster",
                                                                   "There is no GPUCluster gpu-cluster"]
    assert cluster.sandbox.store.list("gpuclusters.nvidia.com") == []


@on_cluster(GPU_CLUSTERS, {**GPU_CLUSTER, "metadata": {"name": "gpu-cluster", "finalizers": ["nvidia.com/theirs"]}})
async def test_a_gpucluster_that_stays_is_an_error_after_five_minutes(cluster: Cluster) -> None:
    with pytest.raises(GpuwardError, match="GPUCluster gpu-cluster is still there after 300 s"):
        await said(clean_up(cluster.client, "gpu-cluster"))
