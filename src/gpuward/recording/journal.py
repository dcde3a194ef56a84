"""Passes to the bytes of recordings: what is worth a frame, and what the frame has to say that those before it did not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gpuward.model.snapshot import Snapshot
from gpuward.recording.changes import NOTHING, changes_between
from gpuward.recording.codec import Encoder
from gpuward.recording.digest import digest
from gpuward.recording.frame import LONGEST_ERROR, Done, Entry, Frame, Header, recorded_actions, shown_between
from gpuward.recording.operands import Concern, Decided, OperandFrame, OperandPass, Told

_BEFORE = Entry(NOTHING, (), 0.0)


class Journal:
    """Keep what was recorded last, so that the next frame holds only what changed."""

    def __init__(self, version: str, images: Mapping[str, str] | None = None) -> None:
        self._header = Header(version, images or {})
        self._encoder = Encoder()
        self._facts: Snapshot = NOTHING
        self._last: Entry | None = None
        self._operands: dict[Concern, tuple[Decided, str, Mapping[str, str]]] = {}
        self._missed = 0

    def wants(self, seen: Entry | OperandPass) -> bool:
        """Tell whether a pass is worth a frame: it decided something else than the last one, or something went wrong."""
        if isinstance(seen, OperandPass):
            if seen.concern not in self._operands or seen.error or _failed(seen):
                return True
            decided, error, _ = self._operands[seen.concern]
            # What a state waits for changes with every pod.
            return bool(error) or (seen.decided.writes, seen.decided.verdicts) != (decided.writes, decided.verdicts)
        last = self._last
        if last is None or seen.error or last.error or _failed(seen):
            return True
        return seen.plan != last.plan or seen.policies != last.policies or seen.policy != last.policy

    def missed(self, passes: int) -> None:
        """Count passes that came too fast."""
        self._missed += passes

    def begin(self, seen: Entry | OperandPass, told: Told | None = None) -> Iterator[bytes]:
        """Return the first bytes of a recording, which hold everything."""
        self._encoder = Encoder()
        yield self._encoder.begin(self._header)
        self._facts, self._last, self._operands = NOTHING, None, {}
        yield from self.add(seen, told)

    def add(self, seen: Entry | OperandPass, told: Told | None = None) -> Iterator[bytes]:
        """Return the bytes of one more frame; of a pass over the operands it is told as given."""
        frame = self._of_operands(seen, told or Told()) if isinstance(seen, OperandPass) else self._of_upgrade(seen)
        self._facts, self._missed = seen.snapshot, 0
        yield from self._encoder.frame(frame)

    def _of_upgrade(self, seen: Entry) -> Frame:
        last = self._last or _BEFORE
        first, plan = last is _BEFORE, last.plan if seen.error else seen.plan
        self._last = msgspec.structs.replace(seen, plan=plan)
        return Frame(
            at=seen.at,
            changes=changes_between(self._facts, seen.snapshot),
            policies=seen.policies if first or seen.policies != last.policies else msgspec.UNSET,
            policy=seen.policy if first or seen.policy != last.policy else msgspec.UNSET,
            digest="" if seen.error else digest(plan),
            shown=shown_between(last.plan, plan),
            actions=() if seen.error else recorded_actions(plan),
            outcomes=tuple(map(_shortened, seen.outcomes)),
            error=seen.error,
            troubled=seen.troubled,
            missed=self._missed,
        )

    def _of_operands(self, seen: OperandPass, told: Told) -> OperandFrame:
        known = self._operands[seen.concern][2] if seen.concern in self._operands else None
        self._operands[seen.concern] = (seen.decided, seen.error, told.digests)
        return OperandFrame(
            at=seen.at,
            concern=seen.concern,
            changes=changes_between(self._facts, seen.snapshot),
            decided=told.decided,
            digests=msgspec.UNSET if told.digests == known else told.digests,
            comparable=told.comparable,
            outcomes=tuple(map(_kind_of_failure, seen.outcomes)),
            error=seen.error,
            missed=self._missed,
        )


def _failed(seen: Entry | OperandPass) -> bool:
    return any(done.error for done in seen.outcomes)


def _shortened(done: Done) -> Done:
    if len(done.error) <= LONGEST_ERROR:
        return done
    return msgspec.structs.replace(done, error=done.error[:LONGEST_ERROR] + "...")


def _kind_of_failure(done: Done) -> Done:
    """Leave out what an API server says about an object: it may quote what is in it."""
    return msgspec.structs.replace(done, error=done.error.partition(": ")[0][:LONGEST_ERROR])
