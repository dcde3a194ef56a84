"""The faults that people bring about by name: what each does, and where without a node named.

Help shows them, so nothing heavy is imported here. `troubles.py` carries them out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FAULT_ANNOTATION: Final = "sandbox.gpuward.io/fault"
"""Node annotation: the faults in force on the node, by name, with commas between them."""

KNOWN_FAULTS: Final[dict[str, str]] = {
    "driver-crash": "the driver container ends with an error when it next installs a driver",
    "driver-hangs": "the driver container runs, and its startup probe never succeeds",
    "image-missing": "the driver's image cannot be pulled",
    "toolkit-crash": "the container toolkit ends with an error, again and again",
    "device-plugin-crash": "the device plugin ends with an error, again and again, and the node has no GPUs to give",
    "validator-hangs": "the validator's steps never come to an end",
    "pod-does-not-end": "pods outside the operator's namespace do not end when they are told to, grace period or not",
    "budget-blocks": "a GPU pod runs on the node whose disruption budget never lets it go",
    "node-not-ready": "the kubelet reports that the node is not ready",
    "node-unreachable": "the kubelet falls silent: nothing starts, ends or is reported there",
    "webhook-refuses": "an admission webhook refuses every change of the node but that of the sandbox's own annotations",
}
EVERYWHERE: Final = frozenset({"image-missing", "webhook-refuses"})
"""Those that come to every GPU node where none is named, the others to the first."""


def meant(text: str, known: Iterable[str]) -> str:
    """Ask for the known name that a text may be meant as; where none is like it, name some."""
    from difflib import get_close_matches  # only where somebody has mistyped

    known = list(known)
    near = get_close_matches(text, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def unknown_fault(name: str) -> str:
    """Return what to say of a fault that there is none of; empty for a known one."""
    if name in KNOWN_FAULTS:
        return ""
    return f"there is no fault {name!r}; {meant(name, KNOWN_FAULTS)}"


def faults_in(text: str) -> list[str]:
    """Return the names in an annotation's value, once each."""
    return list(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
