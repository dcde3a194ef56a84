"""What comments, docstrings and pages name is there: files, folders, modules, exceptions, and in backticks any name of code."""

from __future__ import annotations

import builtins
import keyword
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gpuward import errors
from tests.docs.test_generated import ROOT

FOLDERS = ("src", "packages", "tests", "tools", "bench", "deploy", "examples")
SOURCES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
PAGES = sorted([ROOT / "README.md", *(
    file for folder in ("docs", "packages", "tools", "tests") for file in (ROOT / folder).rglob("*.md"))])
"""Not the changelog: it may name what is gone."""
DATA = (".yaml", ".json", ".toml", ".go", ".c", ".sh", "")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?")
_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_TEXT = re.compile(r'"[^"\n]*"')
_SPACE = re.compile(r"\s")
_WORD = re.compile(r"\w+")
_BACKTICKS = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w.-]*(/[\w.-]*)*(\.(py|md)|(?<!\.com)(?<!\.io)/)")
_COMMENT = re.compile(r"(?:^|\s)#\s.*$", re.MULTILINE)
_RAISED = re.compile(r"\berrors\.(?!(?:py|txt)\b)(\w+)")
_RAISES = re.compile(r"^(\s*)Raises:\n((?:\1 {4}.*\n|\s*\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^\s+([\w.]+): ", re.MULTILINE)
_METRIC = re.compile(r"^(?:gpuward|gpu_operator)_(\w+?)(?:_total)?$")
"""What every metric has before its name, and what Prometheus' client adds behind it."""
_MODULE = re.compile(r"\b(?:gpuward|kubesandbox)(?:\.(?!io\b)\w+)+")


def told(file: Path) -> Iterator[str]:
    """Yield a page, or the comments and docstrings of a source."""
    text = file.read_text(encoding="utf-8")
    yield from [text] if file.suffix == ".md" else (*_DOCSTRING.findall(text), *_COMMENT.findall(text))


def names_in(code: str) -> Iterator[str]:
    """Yield the names that code has or uses, and the words of its short texts: labels, fields, flags. Sentences are none."""
    rest = _COMMENT.sub("", _DOCSTRING.sub("", code))
    yield from _WORD.findall(_TEXT.sub(lambda found: "" if _SPACE.search(found[0]) else found[0], rest))


@cache
def known() -> frozenset[str]:
    """Return every word that is a name somewhere."""
    found = {*dir(builtins), *keyword.kwlist}
    for file in SOURCES:
        found.update(file.with_suffix("").relative_to(ROOT).parts)
        if file != Path(__file__):  # what it takes for its own tests is nowhere else
            found.update(names_in(file.read_text(encoding="utf-8")))
    for file in (file for folder in FOLDERS for file in (ROOT / folder).rglob("*")):
        if file.is_file() and file.suffix in DATA:
            found.update(_WORD.findall(file.read_text(encoding="utf-8", errors="ignore")))
    return frozenset(found)


@cache
def places() -> frozenset[str]:
    """Return every file and folder by its name, and by its path from any folder above it."""
    found: set[str] = set()
    for folder in (*FOLDERS, "docs", ".ci"):
        for file in ((ROOT / folder), *(ROOT / folder).rglob("*")):
            parts = file.relative_to(ROOT).parts
            found.update("/".join(parts[start:]) for start in range(len(parts)))
    return frozenset(found | {file.name for file in ROOT.iterdir()})


def missing(text: str) -> list[str]:
    """Return what a text names and is not there."""
    found = [name for name in _RAISED.findall(text) if not hasattr(errors, name)]
    for _, lines in _RAISES.findall(text):
        found += [name for name in _ENTRY.findall(lines) if not set(_WORD.findall(name)) <= known()]
    found += [name for name in _MODULE.findall(text) if not resolves(name)]
    for quoted in _BACKTICKS.findall(text):
        if _FILE.fullmatch(quoted):
            there = quoted.strip("/") in places()
        else:
            words = {_METRIC.sub(r"\1", word) for word in _WORD.findall(quoted)}
            there = not _NAME.fullmatch(quoted) or words <= known()
        if not there:
            found.append(quoted)
    return found


def resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_what_comments_docstrings_and_pages_name_is_there() -> None:
    found = {str(file.relative_to(ROOT)): [name for text in told(file) for name in missing(text)] for file in (*SOURCES, *PAGES)}
    assert {file: absent for file, absent in found.items() if absent} == {}


@pytest.mark.parametrize(("text", "absent"), [
    ("`find_access` and `asyncio.run()`, `nvidia.com/`, `kubectl get x`, `docs/`, `kube/cluster.py`", []),
    ("see `walk_backwards`, `kube/nothing.py` or `steps/`", ["walk_backwards", "kube/nothing.py", "steps/"]),
    ("Raises errors.NotFound or errors.Nonsense.", ["Nonsense"]), ("gpuward.kube.http.client.Client", []),
    ("gpuward.kube.customer.Client", ["gpuward.kube.customer.Client"]),
    ("Do.\n\nRaises:\n    NotFound: it is gone.\n    NoSuchError: never.\n", ["NoSuchError"]),
])
def test_what_is_found(text: str, absent: list[str]) -> None:
    assert missing(text) == absent


def test_what_a_newcomer_reads_first_needs_no_uv_on_the_path() -> None:
    assert [page.name for page in PAGES if "uv run gpuward" in page.read_text(encoding="utf-8")] == []
