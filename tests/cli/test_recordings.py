"""Which folder is the flight recorder's where nobody names one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward.cli.recordings import own_folder
from gpuward.kube.config.access import Access
from gpuward.kube.config.loading import find_access
from gpuward.recorder.ring import PATTERN
from tests.cli.test_commands import KUBECONFIG
from tests.recorder.test_process import PORTS, install, process, until

CERTIFICATES = Path(__file__).parents[1] / "kube" / "data"


def access(folder: Path, **cluster: Any) -> Access:
    """Return what a kubeconfig for a cluster makes of it."""
    file = folder / "config"
    file.write_text(yaml.safe_dump({**KUBECONFIG, "clusters": [{"name": "a", "cluster": cluster}]}))
    return find_access(str(file), environ={})


def test_each_cluster_has_a_folder_of_its_own(tmp_path: Path) -> None:
    def folder(port: int, authority: str, end: str = "") -> Path:
        cluster = {"server": f"https://127.0.0.1:{port}{end}", "certificate-authority": str(CERTIFICATES / f"{authority}.pem")}
        return own_folder({"XDG_STATE_HOME": str(tmp_path)}, access(tmp_path, **cluster))

    here = folder(6443, "ca")
    assert len({here, folder(6444, "ca"), folder(6443, "server")}) == 3
    assert here == folder(6443, "ca", "/")
    assert here.parent == tmp_path / "gpuward" / "recorder"
    assert here.name.startswith("127.0.0.1_6443-")


@pytest.mark.parametrize("server", ["https://[::1]:6443", "https://user:secret@cluster.example/k8s/../../x"])
def test_a_server_makes_one_folder_whatever_its_url(tmp_path: Path, server: str) -> None:
    found = own_folder({"HOME": str(tmp_path)}, access(tmp_path, server=server))
    assert found.parent == tmp_path / ".local" / "state" / "gpuward" / "recorder"
    assert "secret" not in found.name


def test_without_a_home_the_folder_is_in_none_that_others_could_have_made(tmp_path: Path) -> None:
    found = own_folder({"TMPDIR": str(tmp_path)}, access(tmp_path, server="https://127.0.0.1:6443"))
    assert found.parent == tmp_path
    assert found.name.startswith(f"gpuward-recorder-{os.geteuid()}-127.0.0.1_6443-")


def test_the_operator_records_in_the_folder_of_its_cluster(tmp_path: Path) -> None:
    kubeconfig, state, log = tmp_path / "kubeconfig", tmp_path / "state", tmp_path / "log"
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        asyncio.run(install(kubeconfig))
        with process(log, "run", *PORTS, OPERATOR_NAMESPACE="gpu-operator", KUBECONFIG=str(kubeconfig),
                     XDG_STATE_HOME=str(state)):
            until(lambda: list(state.rglob(PATTERN)), log)
    folder = own_folder({"XDG_STATE_HOME": str(state)}, find_access(str(kubeconfig)))
    assert {file.parent for file in state.rglob(PATTERN)} == {folder}
    assert str(folder) in log.read_text()
