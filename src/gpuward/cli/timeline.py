"""Draw a rehearsed rollout as an SVG: a line for each node, in one file that a browser opens and that loads nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from gpuward.cli.ages import age
from gpuward.cli.terminal import printable
from gpuward.errors import InputError
from gpuward.model.record import format_time
from gpuward.rehearse.results import NodeRun, Phase, Run

_COLOURS: Final = {Phase.WAITING: "#d9d9d9", Phase.EMPTYING: "#f0a030", Phase.DRIVER: "#3b7dd8", Phase.VALIDATION: "#76b900",
                   Phase.FAILED: "#d03030"}
LEFT, ROW, TOP, WIDE, FOOT = 200, 16, 56, 900, 40
_TICKS: Final = (60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 7 * 86400)


def write_timeline(path: Path, run: Run, at: float) -> None:
    """Write the timeline to a file.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.write_text("\n".join(timeline(run, at)) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError("--svg", str(path), f"name a file that can be written: {error.strerror}") from error


def timeline(run: Run, at: float) -> Iterator[str]:
    """Yield the lines of the SVG."""
    nodes = [node for node in run.nodes if node.changes]
    height, scale = TOP + ROW * len(nodes) + FOOT, WIDE / max(run.lasted, 1.0)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 20} {height}" width="{LEFT + WIDE + 20}" '
           f'height="{height}" font-family="sans-serif" font-size="11">')
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield f'<text x="8" y="18" font-size="14">{len(nodes)} nodes in {age(run.lasted)}, from {format_time(at)} on</text>'
    for number, (phase, colour) in enumerate(_COLOURS.items()):
        yield f'<rect x="{LEFT + number * 110}" y="26" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{LEFT + 14 + number * 110}" y="35">{phase}</text>'
    yield from _ticks(run.lasted, scale, height)
    for row, node in enumerate(nodes):
        yield from _row(node, TOP + row * ROW, scale)
    yield "</svg>"


def _ticks(lasted: float, scale: float, height: int) -> Iterator[str]:
    step = next((one for one in _TICKS if lasted / one <= 10), _TICKS[-1] * math.ceil(lasted / 10 / _TICKS[-1]))
    for number in range(int(lasted // step) + 1):
        x = LEFT + number * step * scale
        yield f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - FOOT + 6}" stroke="#eeeeee"/>'
        yield f'<text x="{x:.1f}" y="{height - FOOT + 20}" text-anchor="middle" fill="#666666">{age(number * step)}</text>'


def _row(node: NodeRun, y: int, scale: float) -> Iterator[str]:
    colour = "black" if node.done is not None else _COLOURS[Phase.FAILED]
    yield f'<text x="{LEFT - 8}" y="{y + 11}" text-anchor="end" fill="{colour}">{_text(node.name)}</text>'
    for span in node.spans:
        if span.phase in _COLOURS:
            title = f"{node.name}: {span.phase} {age(span.end - span.begin)}, from {age(span.begin)} to {age(span.end)}"
            told = f"{title}; {node.message}" if node.done is None and node.message else title
            yield (f'<rect x="{LEFT + span.begin * scale:.1f}" y="{y}" width="{max(0.5, (span.end - span.begin) * scale):.1f}" '
                   f'height="{ROW - 4}" fill="{_COLOURS[span.phase]}"><title>{_text(told)}</title></rect>')


def _text(text: str) -> str:
    return escape(printable(text))
