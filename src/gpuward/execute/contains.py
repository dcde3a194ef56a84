"""Whether a live object is all that a rendered one asks for, whatever the API server has added to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

WHOLE = ("data", "matchLabels", "nodeSelector", "affinity")
"""Maps to which the API server adds nothing: a key that is not wanted there was added by somebody."""
PLACES = ("nodeSelector", "affinity", "nodeName")
"""Fields of a pod's spec that nobody adds for it: what is not wanted there keeps pods from nodes that are to have them."""


def contains(live: Any, wanted: Any) -> bool:
    """Tell whether every field of `wanted` is in `live` with an equal value.

    Lists are equal item by item and in length, since to a list the API server adds nothing. A field that is empty in `wanted`
    equals one that is absent: the API server drops it. The maps named in `WHOLE` are equal key by key, and pods are not placed
    otherwise (`PLACES`).
    """
    if isinstance(wanted, Mapping):
        if not isinstance(live, Mapping):
            return not wanted and live is None
        if any(key in wanted and set(live.get(key) or ()) - set(wanted[key] or ()) for key in WHOLE):
            return False
        if "containers" in wanted and any(live.get(key) and not wanted.get(key) for key in PLACES):
            return False
        return all(contains(live.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        if not isinstance(live, Sequence) or isinstance(live, str):
            return not wanted and live is None
        return len(live) == len(wanted) and all(map(contains, live, wanted))
    return bool(live == wanted) or (live is None and wanted in ("", False, 0))
