"""What others do to objects that gpuward applies: one edit is put right, and many are a fight in which nothing is decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import msgspec

from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Applied, Edit
from gpuward.model.views import DaemonSetView

CALM: Final = 120.0
"""Seconds without an edit after which a fight is over: more than two rests of a lane that is written to again and again."""
FIGHT: Final = 3
"""Edits, none of them that long after the one before, that are a fight."""
TOLD_AGAIN: Final = 100
"""After how many more of them people are told again: Kubernetes forgets an event within the hour."""


class TemplateEdited(msgspec.Struct, frozen=True):
    """Wait until a driver DaemonSet is what gpuward applied, and stays so."""

    reason: ClassVar = Reason.TEMPLATE_EDITED
    daemonset: str
    by: str


def is_news(edit: Edit) -> bool:
    """Tell whether people have to be told of an edit."""
    return edit.count == FIGHT or (is_fight(edit) and edit.count % TOLD_AGAIN == 0)


def is_fight(edit: Edit) -> bool:
    """Tell whether an object is edited again and again."""
    return edit.count >= FIGHT


def until(edit: Edit) -> float | None:
    """Return until when nothing is decided by an edited object; None as long as the edit stands."""
    if edit.stands:
        return None
    return edit.at + CALM if is_fight(edit) else edit.at


def edited(
    daemonsets: Iterable[DaemonSetView], applied: Mapping[tuple[str, str, str], Applied], known: Mapping[str, Edit]
) -> dict[str, Edit]:
    """Return the edits of DaemonSets, by uid. Whoever edits one by hand leaves our hash on it; whoever applies a manifest of ours
    that he has kept brings another one.
    """
    found = {}
    for ds in daemonsets:
        last, before = applied.get(("DaemonSet", ds.namespace, ds.name)), known.get(ds.uid)
        others = last is not None and last.generation < ds.generation and ds.applied_hash not in last.tried
        stands = others and not ds.deleting  # a deletion, too, makes a new generation
        if stands or before is not None:
            found[ds.uid] = msgspec.structs.replace(before or Edit(), stands=stands)
    return found
