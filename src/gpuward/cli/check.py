"""`gpuward check`: whether a cluster is ready for gpuward, and whether gpuward runs well in it, with read rights only."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.text import Text

from gpuward.cli.aimed import aimed
from gpuward.cli.connect import WallClock, connected
from gpuward.cli.inspection import inspected
from gpuward.cli.terminal import console, printable, say_json, styled
from gpuward.cli.wrapping import wrapped, wrapped_advice
from gpuward.report.checks import Finding, Level, findings

ARROW = "-> "
COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def check_cluster(kubeconfig: str | None, context: str | None, namespace: str, output: str) -> None:
    """Print the findings; exit with 1 if something fails."""
    found = asyncio.run(_found(kubeconfig, context, namespace))
    if output == "json":
        say_json(as_json(found))
    else:
        shown = console()
        for finding in found:
            for told in lines(finding, shown.width) if shown.is_terminal else [line(finding)]:
                shown.print(told, soft_wrap=True)
        shown.print(styled(_summary(found)), soft_wrap=True)
    if any(finding.level is Level.FAIL for finding in found):
        sys.exit(1)


async def _found(kubeconfig: str | None, context: str | None, namespace: str) -> list[Finding]:
    async with connected(kubeconfig, context) as (client, _):
        told = findings(await inspected(client, namespace, WallClock()))
        return [msgspec.structs.replace(one, fix=aimed(one.fix, kubeconfig, context)) for one in told]


def line(finding: Finding) -> Text:
    """Return a finding as a line: what was found, and what to do."""
    text = styled(f"{finding.level:<5} ", COLOURS[finding.level])
    return text.append_text(styled(f"{finding.check:<16} {finding.found}{f' -> {finding.fix}' if finding.fix else ''}"))


def lines(finding: Finding, width: int) -> list[Text]:
    """Return a finding in lines of at most `width` columns: what to do, which may be a command, has lines of its own."""
    if line(finding).cell_len <= width:
        return [line(finding)]
    title = f"{finding.level:<5} {finding.check:<16} "
    found = wrapped(title + printable(finding.found), width, len(title))
    advice = wrapped_advice(printable(finding.fix), width, " " * (len(title) - len(ARROW)) + ARROW) if finding.fix else []
    told = [styled(text) for text in (*found, *advice)]
    told[0].stylize(COLOURS[finding.level], 0, len(finding.level))
    return told


def _summary(found: Sequence[Finding]) -> str:
    counts = Counter(finding.level for finding in found)
    return ", ".join(f"{counts[level]} {level}" for level in Level)


def as_json(found: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings for programs."""
    return {
        "ok": all(finding.level is not Level.FAIL for finding in found),
        "findings": [{"check": one.check, "level": str(one.level), "found": one.found, "fix": one.fix or None} for one in found],
    }
