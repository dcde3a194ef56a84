"""What is recorded of one pass over the operands: which objects were to be written, and what was said of the policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from gpuward.model.actions import Action, ApplyObject, DeleteObject, PatchAnnotations, PatchLabels, ReleasePod, SetOwner
from gpuward.model.snapshot import Snapshot
from gpuward.recording.changes import Changes
from gpuward.recording.digest import text_digest
from gpuward.recording.frame import Done
from gpuward.recording.redacted import recorded_annotations

Writing = ApplyObject | DeleteObject | PatchAnnotations | PatchLabels | ReleasePod | SetOwner
"""What is compared. Statuses are not: they follow from the verdict, how the upgrade stands, and when words were written last."""


class Concern(StrEnum):
    """Name the decision: by the kind of the custom resources that it is about."""

    CLUSTER_POLICY = "ClusterPolicy"
    NVIDIA_DRIVER = "NVIDIADriver"


class Write(msgspec.Struct, frozen=True, omit_defaults=True):
    """Say in short what was to be written, never with what is in it."""

    action: str
    about: str
    hash: str = ""
    """Of the object, or of the annotations, as they were to be."""
    options: tuple[str, ...] = ()
    why: str = ""

    @property
    def shape(self) -> tuple[object, ...]:
        """Return what does not depend on texts."""
        return self.action, self.about, self.hash, self.options

    def __str__(self) -> str:
        return f"{self.action} {self.about}{f' ({self.why})' if self.why else ''}"


class Judged(msgspec.Struct, frozen=True, omit_defaults=True):
    """Say what was said of a policy."""

    state: str
    reason: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.state}, {self.reason}{f': {self.message}' if self.message else ''}"


class Decided(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold in short what was decided."""

    writes: tuple[Write, ...] = ()
    verdicts: Mapping[str, Judged] = {}
    """By the policy's name."""
    waiting: Mapping[str, str] = {}

    @property
    def shape(self) -> tuple[object, ...]:
        """Return what does not depend on texts, in which values of a custom resource may be quoted."""
        said = {name: (verdict.state, verdict.reason) for name, verdict in self.verdicts.items()}
        return tuple(write.shape for write in self.writes), said, self.waiting.keys()

    def without_texts(self) -> Decided:
        """Return it without what may quote values of a custom resource."""
        writes = tuple(msgspec.structs.replace(write, why="") for write in self.writes)
        said = {name: msgspec.structs.replace(verdict, message="") for name, verdict in self.verdicts.items()}
        return Decided(writes, said, dict.fromkeys(self.waiting, ""))


class OperandPass(msgspec.Struct, frozen=True):
    """Hold one pass over the operands: the facts, the time, what was decided and how that went."""

    concern: Concern
    snapshot: Snapshot
    at: float
    decided: Decided = Decided()
    outcomes: tuple[Done, ...] = ()
    """How writes ended, by their numbers in `decided`."""
    error: str = ""
    """What kind of error ended the decision."""


class Told(msgspec.Struct, frozen=True):
    """Hold what a recording says of a decision, in which nothing depends on what is left out of custom resources."""

    decided: Decided = Decided()
    digests: Mapping[str, str] = {}
    """Digests of the objects as they were to be, by those of what is made of the recorded facts, where the two differ."""
    comparable: bool = True
    """Whether the same is decided on the recorded facts; not where it depends on what is left out."""


class OperandFrame(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold what a pass over the operands adds to what was recorded before it."""

    at: float
    concern: Concern
    changes: Changes = Changes()
    decided: Decided = Decided()
    digests: Mapping[str, str] | UnsetType = UNSET
    comparable: bool = True
    outcomes: tuple[Done, ...] = ()
    error: str = ""
    missed: int = 0


def written(actions: Iterable[Action]) -> list[Writing]:
    """Return the actions that are compared."""
    return [action for action in actions if isinstance(action, Writing)]


def write_of(action: Writing) -> Write:
    """Return an action in short."""
    name, flags = type(action).__name__, ("verify", "again", "orphan", "if_empty")
    options = tuple(flag for flag in flags if getattr(action, flag, False))
    if isinstance(action, ReleasePod):
        return Write(name, f"Pod {action.pod}", action.owner_uid, why=action.why)
    about = f"{action.kind} {action.ref}"
    if isinstance(action, PatchAnnotations):
        return Write(name, about, text_digest(recorded_annotations(action.annotations, action.kind)), why=action.why)
    if isinstance(action, SetOwner):
        said = {**recorded_annotations(action.annotations, action.kind), "": action.policy.uid if action.policy else None}
        return Write(name, about, text_digest(said), why=action.why)
    if isinstance(action, PatchLabels):
        return Write(name, about, text_digest(action.labels), why=action.why)
    return Write(name, about, action.hash if isinstance(action, ApplyObject) else "", options, action.why)
