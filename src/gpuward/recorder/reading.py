"""Read recordings from files, as the moments that they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import UNSET

from gpuward.errors import InputError
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import References, Snapshot
from gpuward.model.views import PolicyView
from gpuward.recorder.ring import PATTERN
from gpuward.recording.changes import Changes
from gpuward.recording.codec import Decoder, NotARecording, OtherFormat
from gpuward.recording.frame import Frame, Header, Shown
from gpuward.recording.operands import Concern, OperandFrame
from gpuward.recording.rebuilding import Facts


class Moment(msgspec.Struct, frozen=True):
    """Hold one recorded pass with all the facts that it was decided on."""

    snapshot: Snapshot
    policies: tuple[UpgradePolicy, ...]
    policy: str
    """The ClusterPolicy's name; empty without one."""
    shown: dict[str, Shown]
    """What was decided then about each managed node, in short."""
    frame: Frame
    gpuward: str
    """The version of gpuward that decided."""

    @property
    def at(self) -> float:
        """Return the time for which the pass decided."""
        return self.frame.at


class OperandMoment(msgspec.Struct, frozen=True):
    """Hold one recorded pass over the operands with all the facts that it was decided on."""

    snapshot: Snapshot
    images: Mapping[str, str]
    digests: Mapping[str, str]
    """Digests of the objects as they were to be, by those of what was made of the recorded facts, where the two differ."""
    frame: OperandFrame
    gpuward: str
    """The version of gpuward that decided."""

    @property
    def at(self) -> float:
        """Return the time for which the pass decided."""
        return self.frame.at


def recordings(path: Path) -> list[Path]:
    """Return the recordings at a path, oldest first: the file, or those of a folder.

    Raises:
        InputError: there are none.
    """
    if path.is_dir():
        if found := sorted(path.glob(PATTERN)):
            return found
        inside = ", ".join(sorted({each.parent.name for each in path.glob(f"*/{PATTERN}")}))
        fix = f"name one of its folders: {inside}" if inside else "name a folder that `gpuward run` wrote to"
        raise InputError("FILE", str(path), f"no {PATTERN} is in it: {fix}")
    if not path.is_file():
        raise InputError("FILE", str(path), "there is no such file: name a recording, or a folder of them")
    return [path]


def moments(path: Path, note: Callable[[str], None]) -> Iterator[Moment]:
    """Return what the recordings at a path hold of upgrades, oldest first. `note` is told of what cannot be read of them.

    Raises:
        InputError: a file is no recording, or one that this gpuward cannot read.
    """
    return (moment for moment in all_moments(path, note) if isinstance(moment, Moment))


def all_moments(path: Path, note: Callable[[str], None]) -> Iterator[Moment | OperandMoment]:
    """Return what the recordings at a path hold, oldest first. `note` is told of what cannot be read of them.

    Raises:
        InputError: a file is no recording, or one that this gpuward cannot read.
    """
    for file in recordings(path):
        try:
            data = file.read_bytes()
        except OSError as error:
            raise InputError("FILE", str(file), f"it cannot be read: {error.strerror}") from error
        if not data:  # its process was killed, or is at it, before the first byte
            note(f"{file.name} is left out: nothing was written to it")
            continue
        decoder = Decoder(data)
        try:
            yield from _moments(decoder)
        except OtherFormat as error:
            if file == path:
                raise InputError("FILE", str(file), str(error)) from error
            note(f"{file.name} is left out: {error}")
            continue
        except NotARecording as error:
            raise InputError("FILE", str(file), str(error)) from error
        if decoder.torn:
            note(f"{file.name}: the last {decoder.torn} bytes are left out: a record there {decoder.damage}")


def _moments(decoder: Decoder) -> Iterator[Moment | OperandMoment]:
    facts, shown = Facts(), dict[str, Shown]()
    header, policy, policies = Header(""), "", tuple[UpgradePolicy, ...]()
    digests: dict[Concern, Mapping[str, str]] = {}
    for record in decoder:
        if isinstance(record, Header):
            header = record
            continue
        try:
            facts.apply(record if isinstance(record, Changes) else record.changes)
        except (ValueError, KeyError) as error:
            raise NotARecording(f"it contradicts itself: {error}") from error
        if isinstance(record, Changes):
            continue
        if isinstance(record, OperandFrame):
            known = digests[record.concern] = digests.get(record.concern, {}) if record.digests is UNSET else record.digests
            yield OperandMoment(facts.snapshot(), header.images, known, record, header.gpuward)
            continue
        policies = policies if record.policies is UNSET else record.policies
        policy = policy if record.policy is UNSET else record.policy
        shown = {name: short for name, short in {**shown, **record.shown}.items() if short is not None}
        yield Moment(_named(facts.snapshot(), policy), policies, policy, shown, record, header.gpuward)


def _named(snapshot: Snapshot, policy: str) -> Snapshot:
    """Return the facts of an upgrade, with the name of the ClusterPolicy alone, which commands that would help name."""
    return msgspec.structs.replace(
        snapshot, policies=(PolicyView(policy),) if policy else (), rollout_policies=(), drivers=(), owned={}, applied={},
        references=References(), unlisted={})
