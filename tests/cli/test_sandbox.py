"""The kubeconfig that `gpuward sandbox` writes."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cli.test_commands import gpuward
from tests.recorder.test_process import process, until


def test_it_is_whole_as_soon_as_it_is_there_and_replaces_the_one_before(tmp_path: Path) -> None:
    file, log = tmp_path / "kubeconfig", tmp_path / "log"
    file.symlink_to(tmp_path / "nothing")
    with process(log, "sandbox", "--nodes", "1", "--kubeconfig", str(file)):
        until(file.exists, log)
        assert yaml.safe_load(file.read_text())["kind"] == "Config"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kubeconfig", "log"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "kubeconfig"
    done = gpuward("sandbox", "--nodes", "1", "--kubeconfig", str(file))
    assert done.returncode == 2
    assert f"Invalid value for '--kubeconfig': '{file}': name a file that can be written: " in done.stderr
    assert list(tmp_path.iterdir()) == []
