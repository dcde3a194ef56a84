"""The site that mkdocs makes of docs/: strict, whole, and without a word from another host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.test_generated import ROOT

_LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """Collect what a page loads, and the text of its paragraphs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.paragraphs: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value for name, value in attrs if value and _LOADS.get(tag) == name]
        if tag == "p":
            self.paragraphs.append("")
        self._inside = tag == "p" or (self._inside and tag != "pre")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "p"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.paragraphs[-1] += data


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    """Build the site, and return its pages by their paths."""
    site = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", site)
    assert done.returncode == 0, done.stdout + done.stderr
    return {str(file.relative_to(site)): Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}


def test_every_page_is_there_and_loads_nothing_from_another_host(pages: dict[str, Page]) -> None:
    written = {str(file.relative_to(ROOT / "docs").with_suffix(".html")) for file in (ROOT / "docs").rglob("*.md")}
    assert pages.keys() == written | {"404.html"}
    assert {name: found for name, page in pages.items() if (found := [one for one in page.loads if "//" in one])} == {}


def test_lists_and_tables_are_not_taken_for_sentences(pages: dict[str, Page]) -> None:
    """Markdown as GitHub reads it needs no empty line before them, as mkdocs reads it it does."""
    pattern = re.compile(r"^(- |\d+\. |\|.*\|$)", re.MULTILINE)
    found = {name: [text for text in page.paragraphs if pattern.search(text)] for name, page in pages.items()}
    assert {name: texts for name, texts in found.items() if texts} == {}


def linked(page: Path) -> set[Path]:
    """Return the pages that a page links to."""
    found = re.findall(r"\]\((?!https?://)([^)#\s]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / link).resolve() for link in found}


def test_every_page_is_three_links_from_the_readme_at_most() -> None:
    """On GitHub there is no navigation."""
    reached = {ROOT / "README.md"}
    for _ in range(3):
        reached |= {found for page in reached for found in linked(page)}
    assert [page for page in reached if not page.exists()] == []
    assert {file.resolve() for file in (ROOT / "docs").rglob("*.md")} - reached == set()


@pytest.mark.parametrize("link", ["[a page](nowhere.md)", "[a section](upgrade.md#nowhere)", "[a file](../src/nowhere.py)"])
def test_a_broken_link_fails_the_build(tmp_path: Path, link: str) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs" / "ui.md").open("a", encoding="utf-8") as page:
        page.write(f"\nSee {link}.\n")
    assert build(tmp_path / "mkdocs.yml", tmp_path / "site").returncode != 0
