"""What is said where somebody names a node that is not there."""

from __future__ import annotations

import difflib

from gpuward.errors import InputError
from gpuward.model.listing import MOST_NAMED

NEAR = 0.6
"""How alike a name must be, from 0 to 1, that somebody may have meant."""


def unknown_node(name: str, known: list[str], where: str = "cluster") -> InputError:
    """Return the error for a node that is not there, with the names that it may have been meant as."""
    like = {other: difflib.SequenceMatcher(None, name, other).ratio() for other in sorted(known)}
    near = sorted((other for other, ratio in like.items() if ratio >= NEAR), key=lambda other: -like[other])
    near = (near or [other for other in like if name in other])[:MOST_NAMED]
    named = ", ".join(near or sorted(known)[:MOST_NAMED])
    return InputError("NODE", name, f"name a node of the {where}, such as {named}" if named else f"the {where} has no nodes")
