"""What a shell completes after it has read the script of `gpuward completion`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.contract.cluster import Cluster

PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
BASH = """
source <(gpuward completion bash)
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_gpuward_completion gpuward
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Press the Tab key at the end of the words in a real bash that has read the script."""
    done = subprocess.run(["bash", "-c", BASH, "bash", *words], env={**environment, "PATH": PATH}, capture_output=True, text=True,
                          timeout=120, check=True)
    return sorted(done.stdout.split())


def test_bash_completes_commands_options_and_values() -> None:
    assert completed("gpuward", "re") == ["reasons", "replay", "resume", "retry"]
    assert completed("gpuward", "skip", "--un") == ["--undo"]
    assert completed("gpuward", "completion", "") == ["bash", "fish", "zsh"]


@pytest.mark.kubectl
def test_bash_completes_names_of_nodes(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    cluster = Cluster(tmp_path)
    cluster.start()
    try:
        assert completed("gpuward", "retry", "gpu-", environment=cluster.environment) == ["gpu-1", "gpu-2"]
        assert completed("gpuward", "skip", "gpu-1", "gpu-", environment=cluster.environment) == ["gpu-2"]
        elsewhere = {**cluster.environment, "KUBECONFIG": "/nonexistent"}
        config = str(tmp_path / "config")
        assert completed("gpuward", "explain", "--kubeconfig", config, "c", environment=elsewhere) == ["cpu-1"]
    finally:
        cluster.stop()


def test_without_a_cluster_no_node_is_completed() -> None:
    assert completed("gpuward", "explain", "g", environment={**os.environ, "KUBECONFIG": "/nonexistent"}) == []


@pytest.mark.parametrize(("shell", "says"), [("zsh", "#compdef gpuward"), ("fish", "complete --no-files --command gpuward"),
                                             ("bash", "complete -o nosort -F _gpuward_completion gpuward")])
def test_each_shell_has_its_script(shell: str, says: str) -> None:
    done = subprocess.run(["gpuward", "completion", shell], env={**os.environ, "PATH": PATH}, capture_output=True, text=True,
                          check=True)
    assert says in done.stdout
    assert done.stderr == ""
    if own := shutil.which(shell):
        subprocess.run([own, "-n", "/dev/stdin"], input=done.stdout, text=True, check=True)
