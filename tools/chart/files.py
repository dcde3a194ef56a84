"""The files of the chart that are made from others: a test says when they are out of date, `./dev chart` writes them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import yaml

from tools.chart.values import names, schema

ROOT = Path(__file__).parents[2]
WITH_NFD = re.compile(r"(?m)^(nfd:\n(?:  #.*\n)*  enabled: )true$")
CHART = ROOT / "deploy" / "helm" / "gpuward"


def made_files() -> dict[Path, str]:
    """Return the path and text of each file of the chart that is made from the code or from other files of deploy/."""
    values = schema(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))
    made = {
        CHART / "values.schema.json": json.dumps(values, indent=1) + "\n",
        CHART / "files" / "names.json": json.dumps(names(values), separators=(",", ":")) + "\n",
        CHART / "files" / "alerts.yaml": _without_comments(ROOT / "deploy" / "monitoring" / "alerts.yaml"),
        CHART / "files" / "dashboard.json": (ROOT / "deploy" / "monitoring" / "dashboard.json").read_text(encoding="utf-8"),
    }
    for crd in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
        made[CHART / "crds" / crd.name] = crd.read_text(encoding="utf-8")
    return made


def copy_of(folder: Path, *, with_nfd: bool = False) -> Path:
    """Copy the chart into a folder and return the copy; without node feature discovery, whose chart Helm would ask for."""
    chart = folder / CHART.name
    shutil.copytree(CHART, chart)
    if not with_nfd:
        meta = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
        meta.pop("dependencies", None)
        (chart / "Chart.yaml").write_text(yaml.safe_dump(meta, sort_keys=False), encoding="utf-8")
        values = chart / "values.yaml"
        values.write_text(WITH_NFD.sub(r"\g<1>false", values.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    return chart


def _without_comments(path: Path) -> str:
    return re.sub(r"(?m)^#.*\n", "", path.read_text(encoding="utf-8"))
