"""The text of configuration files that operands read from ConfigMaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml's where PyYAML was built with it: it writes the same text five times as fast, and each `gpuward plan` has to."""


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return a document as YAML, its keys in their order."""
    text: str = yaml.dump(document, Dumper=DUMPER, sort_keys=False)
    return text
