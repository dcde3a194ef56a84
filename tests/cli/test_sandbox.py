"""The kubeconfig that `gpuward sandbox` writes."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from pathlib import Path

import yaml

from gpuward.cli.sandbox import of_sandbox
from tests.cli.test_commands import gpuward
from tests.recorder.test_process import process, until


def test_it_is_whole_as_soon_as_it_is_there_and_replaces_the_one_before(tmp_path: Path) -> None:
    file, log = tmp_path / "kubeconfig", tmp_path / "log"
    file.symlink_to(tmp_path / "nothing")
    with process(log, "sandbox", "--nodes", "1", "--kubeconfig", str(file)):
        until(file.exists, log)
        assert yaml.safe_load(file.read_text())["kind"] == "Config"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kubeconfig", "log"]


def test_what_it_prints_is_of_use_in_every_folder(tmp_path: Path) -> None:
    file, log = tmp_path / "a folder" / "kubeconfig", tmp_path / "log"
    file.parent.mkdir()
    with process(log, "sandbox", "--nodes", "1", "--kubeconfig", os.path.relpath(file)):
        until(lambda: "export KUBECONFIG=" in log.read_text(), log)
        (said,) = [word for word in shlex.split(log.read_text()) if word.startswith("KUBECONFIG=")]
    assert Path(said.partition("=")[2]).is_absolute()
    assert Path(said.partition("=")[2]).resolve() == file.resolve()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "kubeconfig"
    done = gpuward("sandbox", "--nodes", "1", "--kubeconfig", str(file))
    assert done.returncode == 2
    assert f"Invalid value for '--kubeconfig': '{file}': name a file that can be written: " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_sandbox_that_people_work_with_keeps_its_speed_for_ten_minutes() -> None:
    async def told() -> float:
        return asyncio.get_running_loop().time()

    with of_sandbox(20) as runner:
        behind = time.time() - runner.run(told())
    assert behind > 20 * 9 * 60
    with of_sandbox(1) as runner:
        assert time.time() - runner.run(told()) < 5
