"""What the API server does not take: objects as they should be, and notes of waves on their policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gpuward.kube.memory import Memory
from gpuward.model.snapshot import Untaken
from gpuward.model.views import Ref

NOTED_ON: Final = ("ClusterPolicy ", "NVIDIADriver ")
"""The kinds of policies on which waves are noted, as their refusals are kept."""


class UntakenWrites:
    """Take it how such writes end; whoever decides is told of a refusal."""

    def __init__(self, memory: Memory, touch: Callable[[], None]) -> None:
        self._memory = memory
        self._touch = touch

    def wrote_object(self, kind: str, ref: Ref, digest: str, refusal: str, *, deletion: bool = False) -> Untaken | None:
        """Take it how a write or a deletion of an object ended: refused with what, if it was; return what is known of that."""
        if (found := self._memory.wrote_object(Untaken.key(kind, ref), digest, refusal, deletion=deletion)) is not None:
            self._touch()
        return found

    def noted_waves(self, kind: str, ref: Ref, refusal: str) -> None:
        """Take it how a note of a rollout's waves on its policy ended: refused with what, if it was."""
        if self._memory.wrote_object(Untaken.key(kind, ref), ref.uid, refusal) is not None:
            self._touch()

    def notes_are(self, wanted: Iterable[str]) -> None:
        """Forget the refusals of notes of waves but for those that are to be written still: kind and name of their policies."""
        refused = {key for key in self._memory.untaken if key.startswith(NOTED_ON)}
        for key in refused.difference(wanted):
            del self._memory.untaken[key]
            self._touch()
