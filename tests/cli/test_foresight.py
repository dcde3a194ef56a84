"""How `gpuward plan`, `capture` and `rehearse` end as processes, and what they write."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from gpuward.cli.connect import connected
from gpuward.cli.savedplan import Target
from gpuward.errors import InputError
from gpuward.kube import resources
from tests.cli.test_diff import ran
from tests.recorder.test_process import install, process, until


def test_they_end_as_is_asked_for_and_say_what_is_wrong(tmp_path: Path) -> None:
    kubeconfig, kept, drawn = tmp_path / "kubeconfig", tmp_path / "capture.tgz", tmp_path / "timeline.svg"
    approved = tmp_path / "plan.json"
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        options = ["--kubeconfig", str(kubeconfig)]
        early = ran("plan", *options)
        asyncio.run(install(kubeconfig))
        plain, detailed = ran("plan", *options, "-o", "json"), ran("plan", *options, "--detailed-exitcode")
        wrong = ran("plan", *options, "--to", "a b")
        saved = [ran("plan", *options, "--save", str(approved), *more) for more in ((), ("--to", "595.91.08"),
                 ("--to", "595.91.08", "--force"))]
        written, again = ran("capture", *options, "-o", str(kept)), ran("capture", *options, "-o", str(kept))
        asyncio.run(delete_policy(kubeconfig))
        empty = ran("plan", *options, "--save", str(tmp_path / "empty.json"))
    played = ran("rehearse", "--from", str(kept), "--runs", "1", "--time", "0s", "--svg", str(drawn), "-o", "json")
    absent = ran("rehearse", "--from", str(tmp_path / "absent"))
    assert early.returncode == 1
    assert "clusterpolicies.nvidia.com is not installed" in early.stderr
    assert (plain.returncode, json.loads(plain.stdout)["changes"]) == (0, True)
    assert detailed.returncode == 2, detailed.stderr
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "write a driver version" in wrong.stderr
    assert [each.returncode for each in saved] == [0, 2, 0], saved
    assert "Invalid value for '--save'" in saved[1].stderr
    assert "it is there already: name another file, or say --force" in saved[1].stderr
    assert "595.91.08" in approved.read_text()
    assert empty.returncode == 2
    assert "`gpuward check` says what to do" in empty.stdout
    assert "nothing is managed, and there is no plan to write" in empty.stderr
    assert not (tmp_path / "empty.json").exists()
    assert written.returncode == 0, written.stderr
    assert "2 nodes" in written.stdout
    assert again.returncode == 2
    assert "it is there already" in again.stderr
    assert played.returncode == 0, played.stderr
    assert [node["name"] for node in json.loads(played.stdout)["nodes"]] == ["gpu-1"]
    assert drawn.read_text().startswith("<svg")
    assert absent.returncode == 2
    assert "name a file that can be read" in absent.stderr


async def delete_policy(kubeconfig: Path) -> None:
    """Delete the ClusterPolicy that was installed."""
    async with connected(str(kubeconfig), None) as (client, _):
        await client.delete(resources.CLUSTER_POLICIES, "cluster-policy")


def test_a_plan_may_go_to_a_pipe_and_into_no_file_that_is_there(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "plan.json"
    os.mkfifo(pipe)
    file.touch()
    Target(pipe).check()
    with pytest.raises(InputError, match="it is there already"):
        Target(file).check()
