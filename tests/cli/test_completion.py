"""What a shell completes after it has read the script of `gpuward completion`."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
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


def in_fish(line: str) -> list[str]:
    """Press the Tab key at the end of a line in a real fish that has read the script."""
    if (fish := shutil.which("fish")) is None:
        pytest.skip("fish is not on the PATH")
    script, environment = "gpuward completion fish | source; complete -C $argv[1]", {**os.environ, "KUBECONFIG": "/nonexistent"}
    done = subprocess.run([fish, "--no-config", "-c", script, line], env={**environment, "PATH": PATH}, capture_output=True,
                          text=True, timeout=120, check=True)
    assert done.stderr == ""
    return sorted(each.partition("\t")[0] for each in done.stdout.splitlines())


def in_zsh(line: str, folder: Path, until: str, *, sourced: bool) -> str:
    """Press the Tab key at the end of a line in a real zsh, at a terminal; return what that shows, once it has a word in it.

    Its ~/.zshrc has nothing but the line of `gpuward completion --help`, or the script is among its functions.
    """
    if (zsh := shutil.which("zsh")) is None:
        pytest.skip("zsh is not on the PATH")
    environment = {**os.environ, "PATH": PATH, "KUBECONFIG": "/nonexistent", "TERM": "dumb", "ZDOTDIR": str(folder)}
    script = subprocess.run(["gpuward", "completion", "zsh"], env=environment, capture_output=True, text=True, check=True).stdout
    (folder / "functions").mkdir()
    if not sourced:
        (folder / "functions" / "_gpuward").write_text(script)
    (folder / ".zshrc").write_text(
        "PS1='READY> '\n" + ("source <(gpuward completion zsh)\n" if sourced else
                             f"fpath=({folder}/functions $fpath)\nautoload -Uz compinit && compinit -u -D\n"))
    ours, theirs = pty.openpty()
    shell = subprocess.Popen([zsh, "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True)
    try:
        _shown(ours, "READY> ")
        os.write(ours, f"{line}\t".encode())
        return _shown(ours, until)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(theirs)


def _shown(terminal: int, until: str) -> str:
    """Read what a terminal shows until it has a text in it."""
    shown, deadline = "", time.monotonic() + 60
    while until not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{until!r} was not shown, but {shown!r}"
        shown += os.read(terminal, 4096).decode()
    return shown


def test_fish_completes_commands_options_and_values() -> None:
    assert in_fish("gpuward res") == ["resume"]
    assert in_fish("gpuward skip --un") == ["--undo"]
    assert in_fish("gpuward completion ") == ["bash", "fish", "zsh"]
    assert in_fish("gpuward explain g") == []


@pytest.mark.parametrize("sourced", [True, False])
def test_zsh_completes_commands_options_and_values(tmp_path: Path, sourced: bool) -> None:
    wanted = {"gpuward skip --un": "--undo", "gpuward re": "retry", "gpuward completion ": "fish"}
    for number, (line, until) in enumerate(wanted.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert "command not found" not in in_zsh(line, folder, until, sourced=sourced)


def test_bash_completes_commands_options_and_values() -> None:
    assert completed("gpuward", "re") == ["reasons", "rehearse", "render", "replay", "resume", "retry"]
    assert completed("gpuward", "skip", "--un") == ["--undo"]
    assert completed("gpuward", "completion", "") == ["bash", "fish", "zsh"]


def test_values_and_files_are_completed(tmp_path: Path) -> None:
    assert completed("gpuward", "status", "-o", "") == ["json", "name", "table", "wide"]
    assert completed("gpuward", "status", "-o", "w") == ["wide"]
    assert completed("gpuward", "demo", "--fault", "driver-") == ["driver-crash", "driver-hangs"]
    (tmp_path / "policy.yaml").touch()
    for option in ("render --policy", "render --nodes", "plan --policy", "status --kubeconfig", "demo --images"):
        assert in_fish(f"gpuward {option} {tmp_path}/pol") == [f"{tmp_path}/policy.yaml"]


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
