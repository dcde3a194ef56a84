"""Lines of the log about several nodes at once: what an edit of a policy does to 500 nodes is one line and not 500."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from gpuward.model.counting import counted

NAMED: Final = 5
"""How many nodes a line names."""

_ONE: Final = re.compile(r"\b1 ")

K = TypeVar("K", bound=Hashable)


def alike(found: Iterable[tuple[K, str]]) -> Mapping[K, Sequence[str]]:
    """Gather the nodes to which the same has happened."""
    groups: dict[K, dict[str, None]] = defaultdict(dict)
    for what, node in found:
        groups[what][node] = None
    return {what: list(nodes) for what, nodes in groups.items()}


def headline(text: str, names: Sequence[str], **arguments: object) -> str:
    """Return the message about nodes: of `{n:node is|nodes are} done` it makes `Node is done`, or `3 nodes are done`."""
    told = counted(text, {"n": len(names), **arguments})
    told = _ONE.sub("", told, count=1) if len(names) == 1 else told
    return told[0].upper() + told[1:]


def named(names: Sequence[str], kind: str = "node") -> dict[str, Any]:
    """Return the fields that name them: the only one, or the first of many and how many they are."""
    return {kind: names[0]} if len(names) == 1 else {f"{kind}s": list(names[:NAMED]), "count": len(names)}
