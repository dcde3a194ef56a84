"""What the documentation says of the code is what the code says; `pytest tests/docs --rewrite-docs` writes it anew."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tools.docs import fields, images, reasons

from gpuward.controllers.metricnames import COUNTED, FLEET, OWN, OWN_FLEET, PREFIX, full_name
from gpuward.sandbox.known_faults import EVERYWHERE, KNOWN_FAULTS
from gpuward.upgrade.diagram import reasons_table, transitions_table

ROOT = Path(__file__).parents[2]


def faults_table() -> str:
    """Return the faults that people bring about in the sandbox, as a Markdown table."""
    rows = [f"| `{name}` | {what} | {'every GPU node' if name in EVERYWHERE else 'the first GPU node'} |"
            for name, what in KNOWN_FAULTS.items()]
    return "\n".join(["| fault | what happens | without a node named, on |", "|---|---|---|", *rows])


def metrics_table() -> str:
    """Return all metrics as a Markdown table."""
    rows = [(PREFIX + name, "", "gauge", "leader", means) for name, means in FLEET.items()]
    rows += [(f"{PREFIX}{name}_total", "", "counter", "each", means) for name, means in COUNTED.items()]
    rows += [(full_name(name, told), ", ".join(told.labels), told.kind, exporter, told.means)
             for told_by, exporter in ((OWN_FLEET, "leader"), (OWN, "each")) for name, told in told_by.items()]
    lines = [f"| `{name}` | {labels} | {kind} | {exporter} | {means} |" for name, labels, kind, exporter, means in rows]
    return "\n".join(["| metric | labels | type | from | meaning |", "|---|---|---|---|---|", *lines])


SECTIONS = {"upgrade.md": {"transitions": transitions_table, "reasons": reasons_table}, "sandbox.md": {"faults": faults_table},
            "metrics.md": {"metrics": metrics_table}, "reasons.md": {"reasons": reasons.index},
            "air-gapped.md": {"images": images.table}}
PAGES = reasons.pages() | fields.pages()
"""Pages that are made whole, by their paths below docs/."""
FOLDERS = ("reasons", "reference")
"""Folders of docs/ that have such pages alone."""


def written(text: str, sections: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with its generated sections as the code has them."""
    for name, generate in sections.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = pattern.search(text)
        assert found is not None, name
        text = f"{text[: found.start()]}{found[1]}{generate()}\n{found[2]}{text[found.end() :]}"
    return text


@pytest.mark.parametrize("page", SECTIONS)
def test_the_generated_sections_are_up_to_date(page: str, rewrite_docs: bool) -> None:
    file, sections = ROOT / "docs" / page, SECTIONS[page]
    text = file.read_text(encoding="utf-8")
    if rewrite_docs:
        file.write_text(written(text, sections), encoding="utf-8")
    assert rewrite_docs or text == written(text, sections), "run: pytest tests/docs --rewrite-docs"


def test_the_pages_that_are_made_whole_are_up_to_date(rewrite_docs: bool) -> None:
    docs = ROOT / "docs"
    there = {str(file.relative_to(docs)): file for folder in FOLDERS for file in (docs / folder).glob("*.md")}
    if rewrite_docs:
        for file in (file for page, file in there.items() if page not in PAGES):
            file.unlink()
        for page, text in PAGES.items():
            (docs / page).parent.mkdir(exist_ok=True)
            (docs / page).write_text(text, encoding="utf-8")
        return
    assert there.keys() == PAGES.keys(), "run: pytest tests/docs --rewrite-docs"
    stale = [page for page, file in there.items() if file.read_text(encoding="utf-8") != PAGES[page]]
    assert stale == [], "run: pytest tests/docs --rewrite-docs"


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:src|packages|docs|tests|examples|deploy|tools)/[\w./-]+)`", page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_size_of_what_reads_kubeconfigs_is_about_what_decisions_says() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    found = re.search(r"\(about ([\d,]+) lines in (\d+) files of `(src/[\w/]+)`: (.+?)\)", text, re.DOTALL)
    assert found is not None
    files = re.findall(r"`(\w+\.py)`", found[4])
    lines = sum(len((ROOT / found[3] / file).read_text(encoding="utf-8").splitlines()) for file in files)
    assert len(files) == int(found[2])
    assert lines == pytest.approx(int(found[1].replace(",", "")), rel=0.1)


def test_the_prometheus_rule_has_the_rules_of_the_rule_file(rewrite_docs: bool) -> None:
    folder = ROOT / "deploy" / "monitoring"
    comment, _, groups = (folder / "alerts.yaml").read_text(encoding="utf-8").partition("groups:\n")
    head = ("# The alerts of alerts.yaml, for the Prometheus operator; pytest tests/docs --rewrite-docs writes it anew.\n"
            f"# {comment.splitlines()[-1].removeprefix('# ')}\n"
            "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: gpuward\n  namespace: gpu-operator\n"
            "  labels:\n    app: gpu-operator\nspec:\n  groups:\n")
    wanted, file = head + textwrap.indent(groups, "  "), folder / "prometheusrule.yaml"
    if rewrite_docs:
        file.write_text(wanted, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == wanted, "run: pytest tests/docs --rewrite-docs"
