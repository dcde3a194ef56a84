"""What the documentation says of the code is what the code says; `pytest tests/docs --rewrite-docs` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuward.upgrade.diagram import reasons_table, transitions_diagram

ROOT = Path(__file__).parents[2]
UPGRADE = ROOT / "docs" / "upgrade.md"
SECTIONS = {"transitions": transitions_diagram, "reasons": reasons_table}


def written(text: str) -> str:
    """Return the page with its generated sections as the code has them."""
    for name, generate in SECTIONS.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = pattern.search(text)
        assert found is not None, name
        text = f"{text[: found.start()]}{found[1]}{generate()}\n{found[2]}{text[found.end() :]}"
    return text


def test_the_generated_sections_are_up_to_date(rewrite_docs: bool) -> None:
    text = UPGRADE.read_text(encoding="utf-8")
    if rewrite_docs:
        UPGRADE.write_text(written(text), encoding="utf-8")
    assert rewrite_docs or text == written(text), "run: pytest tests/docs --rewrite-docs"


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"], ids=lambda page: page.name)
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
