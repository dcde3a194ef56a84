"""What a terminal of 80 columns shows, and what is copied from it."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import termios

import msgspec
import pytest
from rich.console import Console

from gpuward.cli import check
from gpuward.cli.explain import show
from gpuward.cli.explanation import Explanation
from gpuward.cli.layout import lay_out
from gpuward.cli.leader import Leader
from gpuward.cli.leavingpods import LeavingPod
from gpuward.cli.podwords import PodWords
from gpuward.cli.shadow import Shadowed, Stuck, _print
from gpuward.cli.terminal import styled
from gpuward.cli.wrapping import wrapped_command
from gpuward.labels.discovery import how_to_label
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.report.checks import Finding, Level
from gpuward.upgrade.remedies import Remedy
from gpuward.upgrade.remedies.fixes import DecisionFacts
from tests.build import policy
from tests.recorder.test_process import COMMAND

PATCH = ("kubectl patch clusterpolicy cluster-policy --type merge -p "
         """'{"spec": {"driver": {"upgradePolicy": {"maxUnavailable": "50%"}}}}'""")
TAINT = "kubectl label node gpu-1 nvidia.com/gpu-driver-upgrade-state=upgrade-required --overwrite && kubectl uncordon gpu-1"


def shown(found: Explanation, width: int, *, terminal: bool = True) -> list[str]:
    out = io.StringIO()
    show(found, Leader("nobody", 0.0), Console(file=out, width=width, force_terminal=terminal, color_system=None))
    return out.getvalue().splitlines()


def explanation() -> Explanation:
    facts = DecisionFacts(Snapshot("gpu-operator"), policy())
    risk = "this ends pods of people, who lose what they have not saved, and no controller starts these pods again: ml/a, ml/b"
    pods = (LeavingPod("ml/a-rather-long-name-of-a-training-run-0", "Job a-rather-long-name-of-a-training-run", 0),
            LeavingPod("ml/b", "", 1000, "disruption budget ml/b lets none go now"))
    remedy = Remedy("do it", "it goes on", (PATCH, TAINT), facts, risk)
    return Explanation(NodeView("gpu-1"), 0.0, "ClusterPolicy cluster-policy", unmanaged="nothing", pods=pods,
                       notes=("a note that goes on and on " * 5,), remedies=(remedy,))


def arguments(command: str) -> str:
    """Return what a shell makes of a command, which it does not run."""
    told = "told() { for each; do printf '<%s>' \"$each\"; done; }\nalias kubectl=told echo=told two=told\n"
    return subprocess.run(["bash", "-c", f"shopt -s expand_aliases\n{told}\n{command}"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def test_80_columns_show_which_pods_may_be_evicted_and_break_lines_at_words() -> None:
    lines = shown(explanation(), 80)
    assert max(len(line) for line in lines if "'" not in line) <= 80
    text = " ".join(" ".join(lines).split())
    assert "ml/a-rather-long-name-of-a-training-run-0 (owner Job a-rather-long-name-of-a-training-run, priority 0) may be" in text
    assert "ml/b (owner none, priority 1000) disruption budget ml/b lets none go now" in text
    assert "who lose what they have not saved, and no controller starts these pods again: ml/a, ml/b" in text
    assert all(line.startswith("  ") for line in lines if "note that" in line)


def test_80_columns_show_all_that_a_kubelet_says_of_a_pod() -> None:
    message = 'Back-off pulling image "nvcr.io/nvidia/driver:595.91.x-ubuntu22.04": ErrImagePull: rpc error: code = NotFound'
    why = "runs, but is not ready, 2 restarts, its last exit code was 1"
    words = PodWords("nvidia-driver-daemonset-btn6l", "container nvidia-driver-ctr", why, message)
    lines = shown(msgspec.structs.replace(explanation(), said=(words,), remedies=()), 80)
    assert max(len(line) for line in lines) <= 80
    assert message in " ".join(" ".join(lines).split())
    assert f"    {message}" in shown(msgspec.structs.replace(explanation(), said=(words,)), 80, terminal=False)


def test_a_command_that_is_copied_from_80_columns_is_the_same_command() -> None:
    text = "\n".join(shown(explanation(), 80))
    copied = [arguments(part) for part in text.split("     $ ")[1:]]
    assert copied == [arguments(PATCH), arguments(TAINT)]
    assert " \\\n" in text


@pytest.mark.parametrize("width", [40, 61, 80, 120, 250])
@pytest.mark.parametrize("command", [PATCH, TAINT, """echo "a 'b' c" 'x "y" z' \\" end""", "odd 'quote", "two  blanks " * 20])
def test_a_command_in_lines_means_the_same(command: str, width: int) -> None:
    lines = wrapped_command(command, width, "$ ")
    copied = "\n".join(lines).removeprefix("$ ")
    if command == "odd 'quote":
        assert copied == command
    else:
        assert arguments(copied) == arguments(command)
        assert arguments(command)


def test_what_no_terminal_shows_keeps_its_lines() -> None:
    lines = shown(explanation(), 250, terminal=False)
    assert f"     $ {TAINT}" in lines
    assert any(line.startswith("  POD") for line in lines)
    assert any(line.strip().endswith("may be evicted") for line in lines)


POD = "gpu-operator/nvidia-device-plugin-mps-control-daemon-with-a-long-name"
SENTENCE = f"1 of 3 pods are unavailable; gpu-2: pod {POD} runs, but is not ready, and has not been for a while"


@pytest.mark.parametrize(("width", "titles"), [(44, 4), (60, 1), (80, 1), (120, 1)])
def test_names_are_whole_in_a_table_of_any_width(width: int, titles: int) -> None:
    daemonset = "nvidia-driver-daemonset-5.15.0"
    cells = ("driver", "2/3", daemonset, SENTENCE), ("dcgm", "3/3", "dcgm", "")
    rows = [[styled(cell) for cell in row] for row in cells]
    lines = [line.plain for line in lay_out(("OPERAND", "READY", "DAEMONSET", "WAITS FOR"), rows, width)]
    assert [line for line in lines if len(line) > width and POD not in line] == []
    text = " ".join("\n".join(lines).split())
    assert daemonset in text
    assert text.count("OPERAND") == (2 if titles == 4 else 1)
    words = text.replace("WAITS FOR", "").split()
    assert " ".join(words[words.index("1"):]).startswith(SENTENCE)
    if width == 120:
        assert lines[1].startswith(f"driver   2/3    {daemonset}  1 of 3 pods")
        assert lines[-1] == "dcgm     3/3    dcgm"


def copied_from(findings: list[Finding], width: int) -> list[str]:
    lines = [line.plain for finding in findings for line in check.lines(finding, width)]
    assert [line for line in lines if len(line) > width and line.strip(" \\").count(" ")] == [], "but for a word that is longer"
    text = "\n".join(lines)
    return [arguments("kubectl " + part.split("\n-> ")[0]) for part in text.split("kubectl ")[1:]]


@pytest.mark.parametrize("width", [60, 80, 250])
def test_what_check_says_to_do_is_copied_as_the_same_command(width: int) -> None:
    label = "kubectl label namespace gpu-operator pod-security.kubernetes.io/enforce=privileged --overwrite"
    told = "gpu-operator has no label pod-security.kubernetes.io/enforce: the API server's default counts"
    found = [Finding("namespace", Level.WARN, told, label)]
    assert copied_from(found, width) == [arguments(label)]
    by_hand = how_to_label("gpu-1")
    command = by_hand[by_hand.index("kubectl"):]
    assert copied_from([Finding("discovery", Level.FAIL, "no node has labels", by_hand)], width) == [arguments(command)]


def on_terminal(columns: int, *words: str) -> list[str]:
    """Return the lines that a command prints on a terminal."""
    read, written = pty.openpty()
    fcntl.ioctl(written, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    done = subprocess.Popen([*COMMAND, *words], stdin=written, stdout=written, stderr=written,
                            env={**os.environ, "NO_COLOR": "1", "TERM": "xterm"})
    os.close(written)
    out = b""
    try:
        while part := os.read(read, 65536):
            out += part
    except OSError:  # Linux says so at the end
        pass
    os.close(read)
    assert done.wait() == 0
    return out.decode().splitlines()


def test_reasons_end_their_lines_at_words() -> None:
    lines = on_terminal(80, "reasons")
    assert max(map(len, lines)) <= 80
    named = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert named == sorted(Reason)
    assert max(map(len, on_terminal(80, "reasons", "DriverInUse"))) <= 80


def test_shadow_indents_what_goes_on_in_another_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("gpuward.cli.shadow.console", lambda: Console(file=out, width=80, force_terminal=True, color_system=None))
    _print(tuple(Shadowed("all is well", "nobody runs", stuck=(
        Stuck("gpu-1", "", "BudgetBlocks", SENTENCE, (f"delete pod {POD} -> gpu-1 goes on",)),)).lines()))
    lines = out.getvalue().splitlines()
    assert [line for line in lines if len(line) > 80 and POD not in line] == []
    assert sum(POD in line for line in lines) == 2
    assert all(line.startswith("    ") for line in lines[-4:] if "gpu-1 (" not in line)
