"""A page for each reason: who is paged for one gets what it means, what to look at, what helps, and where else it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

from gpuward.model.advice import ADVICE
from gpuward.model.counting import template
from gpuward.model.reasons import Reason
from gpuward.model.sentences import SENTENCES

ALERTS: Final = Path(__file__).parents[2] / "deploy" / "monitoring" / "alerts.yaml"
_HELD: Final = "gpuward_driver_upgrade_held_nodes"
_SINCE: Final = "gpuward_driver_upgrade_held_since_timestamp_seconds"


def index() -> str:
    """Return every reason with its page, what it means and whether somebody has to act, as a Markdown table."""
    rows = [f"| [{reason}](reasons/{reason}.md) | {ADVICE[reason].means.partition('. ')[0].rstrip('.')} | {ADVICE[reason].act} |"
            for reason in sorted(Reason)]
    return "\n".join(["| reason | what it means | does somebody have to act? |", "|---|---|---|", *rows])


def pages() -> dict[str, str]:
    """Return the page of each reason, by its path below docs/."""
    fired = _alerts()
    return {f"reasons/{reason}.md": _page(reason, fired.get(reason, [])) for reason in sorted(Reason)}


def _page(reason: Reason, alerts: list[str]) -> str:
    advice = ADVICE[reason]
    return "\n".join([
        f"# {reason}", "",
        "<!-- Made from the code: pytest tests/docs --rewrite-docs -->", "",
        f"> {template(SENTENCES[reason])}", "",
        advice.means, "",
        f"**Does somebody have to act?** {advice.act}.", "",
        "## What to do", advice.do, "",
        "## What to look at",
        "```sh", *_commands(reason), "```", "",
        "## Where else it shows", *_elsewhere(reason, alerts), "",
        "All reasons are in [Reasons](../reasons.md), how they come about in [Driver upgrades](../upgrade.md).", "",
    ])


def _commands(reason: Reason) -> list[str]:
    return [
        "# the nodes that have this reason now",
        f"gpuward status -o jsonpath='{{.nodes[?(@.reason==\"{reason}\")].name}}'",
        "# one of them: its state, its pods, and what would help, tried on paper first",
        "gpuward explain NODE",
        "# the whole fleet",
        "gpuward status",
    ]


def _elsewhere(reason: Reason, alerts: list[str]) -> list[str]:
    level = "Warning" if reason.needs_person else "Normal"
    told = ("none on nodes: the condition `DriverUpgrade` of the ClusterPolicy tells what holds many" if reason.concerns_fleet
            else "`GPUDriverUpgrade` on the node, and on its pods" if reason is Reason.NOTICE_GIVEN
            else "`GPUDriverUpgradeHeld` on the node, Normal, once it lasts for 5 minutes" if reason is Reason.VALIDATOR_MISSING
            else "none: every node passes through it" if reason.in_passing
            else f"`GPUDriverUpgradeHeld` on the node, {level}")
    return [
        f"- Event: {told}.",
        f"- Metric: `{_HELD}{{reason=\"{reason}\"}}` counts the nodes, `{_SINCE}` says since when.",
        f"- Alert: {', '.join(f'`{name}`' for name in alerts) or 'none'}.",
    ]


def _alerts() -> dict[Reason, list[str]]:
    """Return the alerts that fire for each reason."""
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    found: dict[Reason, list[str]] = {}
    for rule in group["rules"]:
        for name in "|".join(re.findall(r'reason=~?"([^"]*)"', rule["expr"])).split("|"):
            if name:
                found.setdefault(Reason(name), []).append(rule["alert"])
    return found
