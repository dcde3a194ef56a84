"""What a terminal of 80 columns shows of `gpuward explain`, and what is copied from it."""

from __future__ import annotations

import io
import subprocess

import pytest
from rich.console import Console

from gpuward.cli.explain import show
from gpuward.cli.explanation import Explanation, LeavingPod
from gpuward.cli.leader import Leader
from gpuward.cli.wrapping import wrapped_command
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.upgrade.remedies import Remedy
from gpuward.upgrade.remedies.fixes import DecisionFacts
from tests.build import policy

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
