"""What `gpuward plan` shows on terminals of several widths."""

from __future__ import annotations

import pytest
from rich.console import Console

from gpuward.cli.plan import plan_table
from gpuward.report.foresight import PlannedNode
from gpuward.report.when import When

POD = "ml/inference-7ff464d7c5-p82dc"
NODES = [
    PlannedNode("gpu-1", When.NOW, 1, "595.91.07 -> 595.91.08"),
    PlannedNode("gpu-2", When.NEXT, 2, "595.91.07 -> 595.91.08", pods=1, message="waits for its turn: 1 of 1 under way (gpu-1)"),
    PlannedNode("gpu-3", When.HELD, 0, "595.91.07 -> 595.91.08", pods=2, message=f"a disruption budget never lets pod {POD} go"),
]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_word_is_broken_and_no_line_is_too_long(width: int) -> None:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        for part in plan_table(NODES, width):
            console.print(part)
    shown = capture.get()
    assert max(map(len, map(str.rstrip, shown.splitlines()))) <= width
    assert POD in shown
    assert [line.split()[0:2] for line in shown.splitlines() if "gpu-" in line and "->" in line] == [
        ["1", "gpu-1"], ["2", "gpu-2"], ["gpu-3", "595.91.07"]]
    if width <= 80:
        assert "     waits for its turn: 1 of 1 under way (gpu-1)" in shown
