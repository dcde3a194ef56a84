"""Passes to the bytes of recordings: what is worth a frame, and what the frame has to say that those before it did not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpuward.recording.changes import NOTHING, changes_between
from gpuward.recording.codec import Encoder
from gpuward.recording.digest import digest
from gpuward.recording.frame import LONGEST_ERROR, Done, Entry, Frame, Header, recorded_actions, shown_between

_BEFORE = Entry(NOTHING, (), 0.0)


class Journal:
    """Keep what was recorded last, so that the next frame holds only what changed."""

    def __init__(self, version: str) -> None:
        self._header = Header(version)
        self._encoder = Encoder()
        self._last: Entry | None = None
        self._missed = 0

    def wants(self, seen: Entry) -> bool:
        """Tell whether a pass is worth a frame: it decided something else than the last one, or something went wrong."""
        last = self._last
        if last is None or seen.error or last.error or any(done.error for done in seen.outcomes):
            return True
        return seen.plan != last.plan or seen.policies != last.policies or seen.policy != last.policy

    def missed(self, passes: int) -> None:
        """Count passes that came too fast."""
        self._missed += passes

    def begin(self, seen: Entry) -> Iterator[bytes]:
        """Return the first bytes of a recording, which hold everything."""
        self._encoder = Encoder()
        yield self._encoder.begin(self._header)
        self._last = None
        yield from self.add(seen)

    def add(self, seen: Entry) -> Iterator[bytes]:
        """Return the bytes of one more frame."""
        last, missed = self._last or _BEFORE, self._missed
        first, plan = last is _BEFORE, last.plan if seen.error else seen.plan
        self._last, self._missed = msgspec.structs.replace(seen, plan=plan), 0
        yield from self._encoder.frame(Frame(
            at=seen.at,
            changes=changes_between(last.snapshot, seen.snapshot),
            policies=seen.policies if first or seen.policies != last.policies else msgspec.UNSET,
            policy=seen.policy if first or seen.policy != last.policy else msgspec.UNSET,
            digest="" if seen.error else digest(plan),
            shown=shown_between(last.plan, plan),
            actions=() if seen.error else recorded_actions(plan),
            outcomes=tuple(map(_shortened, seen.outcomes)),
            error=seen.error,
            troubled=seen.troubled,
            missed=missed,
        ))


def _shortened(done: Done) -> Done:
    if len(done.error) <= LONGEST_ERROR:
        return done
    return msgspec.structs.replace(done, error=done.error[:LONGEST_ERROR] + "...")
