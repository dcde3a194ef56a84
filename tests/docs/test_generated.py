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
    named = re.findall(r"`((?:src|docs|tests|examples|deploy|tools)/[\w./-]+)`", page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []
