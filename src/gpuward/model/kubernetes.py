"""Which versions of Kubernetes gpuward supports."""

from __future__ import annotations

import re
from typing import Final

OLDEST: Final = (1, 29)
"""The oldest that is supported, and that the tests are played on. The chart's `kubeVersion` says the same."""
OLDEST_NAME: Final = "{}.{}".format(*OLDEST)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


def read_version(text: str) -> tuple[int, int] | None:
    """Return major and minor of a version as an API server tells it; None if it cannot be read."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found is not None else None


def is_too_old(text: str) -> bool:
    """Tell whether a version is older than those that are supported; one that cannot be read is not."""
    version = read_version(text)
    return version is not None and version < OLDEST
