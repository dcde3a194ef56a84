"""The cluster in one process is for any operator: no word of GPUs is in it. What GPU machines are is plugged in."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "packages" / "kubesandbox"
WORDS = re.compile("nvidia|gpu|cuda|dcgm|toolkit|validator|driver|mig-", re.IGNORECASE)
KUBERNETES_OWN = PACKAGE / "src" / "kubesandbox" / "data" / "kubetypes.json"
"""Kubernetes' own types, in which volumes and devices have drivers."""


def test_no_word_of_gpus_is_in_the_package() -> None:
    texts = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".md", ".toml") and ".venv" not in path.parts]
    assert len(texts) > 100
    found = [f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}" for path in texts
             for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if WORDS.search(line)]
    assert found == []


def test_the_table_of_types_has_no_words_but_kubernetes_own() -> None:
    assert {word.lower() for word in WORDS.findall(KUBERNETES_OWN.read_text(encoding="utf-8"))} == {"driver"}
