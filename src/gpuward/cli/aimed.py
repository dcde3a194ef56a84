"""Commands that people are told, for the cluster that they asked about: one that is pasted must not change another one."""

from __future__ import annotations

import re
from shlex import quote
from typing import Final

_KUBECTL: Final = re.compile(r"(?<![\w.-])kubectl (?=[a-z])")
_GPUWARD: Final = re.compile(r"(?<![\w.-])gpuward (?!crds\b|reasons\b|completion\b|render\b)[a-z]+(?:-[a-z]+)*")


def aimed(command: str, kubeconfig: str | None, context: str | None) -> str:
    """Return a command, or a sentence that has some, with the options by which the cluster was chosen."""
    chosen = (("--kubeconfig", kubeconfig), ("--context", context))
    options = " ".join(f"{option} {quote(value)}" for option, value in chosen if value)
    if not options:
        return command
    found = _KUBECTL.sub(lambda match: f"{match[0]}{options} ", command)
    return _GPUWARD.sub(lambda match: f"{match[0]} {options}", found)
