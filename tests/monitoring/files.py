"""What deploy/monitoring/ holds, as data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpuward.controllers.metricnames import COUNTED, FLEET, HISTOGRAM, OWN, OWN_FLEET, PREFIX, full_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
RULES = FOLDER / "alerts.yaml"
UNIT_TESTS = Path(__file__).parent / "alerts_test.yaml"
NO_PROMETHEUS = "prometheus is not on the PATH (Debian's package prometheus has it, and promtool)"
Object = dict[str, Any]


def alerts() -> list[Object]:
    """Return the alerts."""
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def dashboard() -> Object:
    """Return the dashboard."""
    return dict(json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8")))


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel and each of its queries, for a dashboard that shows everything of the last minutes."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expr = target["expr"].replace("$__rate_interval", "1m").replace("$__range", "10m")
            yield panel["title"], re.sub(r"\$\w+", ".*", expr)


def labels_of() -> dict[str, tuple[str, ...]]:
    """Return the labels of every series that the operator has, by its name."""
    found: dict[str, tuple[str, ...]] = {PREFIX + name: () for name in (*FLEET, *(f"{name}_total" for name in COUNTED))}
    for name, told in (OWN | OWN_FLEET).items():
        if told.kind == HISTOGRAM:
            found |= {f"{full_name(name, told)}_{part}": told.labels for part in ("sum", "count")}
            found[f"{full_name(name, told)}_bucket"] = (*told.labels, "le")
        else:
            found[full_name(name, told)] = told.labels
    return found
