"""Read recordings from files, as the moments that they hold."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
from msgspec import UNSET

from gpuward.errors import InputError
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import References, Snapshot
from gpuward.model.views import PolicyView
from gpuward.recorder.ring import PATTERN, Limits
from gpuward.recording.changes import Changes
from gpuward.recording.codec import Decoder, NotARecording, OtherFormat
from gpuward.recording.frame import Frame, Header, Shown
from gpuward.recording.operands import Concern, OperandFrame
from gpuward.recording.rebuilding import Facts

_GZIP: Final = b"\x1f\x8b"


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


class Recording(msgspec.Struct, frozen=True):
    """Hold one recording as it is on disk."""

    name: str
    data: bytes
    alone: bool
    """Whether it is what was asked for, and not one of several."""


def recordings(path: Path) -> Iterator[Recording]:
    """Return the recordings at a path, oldest first: the file, or those of a folder or of a bug report.

    Raises:
        InputError: there are none, or one cannot be read.
    """
    if path.is_dir():
        if not (found := sorted(path.glob(PATTERN))):
            inside = ", ".join(sorted({each.parent.name for each in path.glob(f"*/{PATTERN}")}))
            fix = f"name one of its folders: {inside}" if inside else "name a folder that `gpuward run` wrote to"
            raise InputError("FILE", str(path), f"no {PATTERN} is in it: {fix}")
        yield from (Recording(file.name, _content(file), alone=False) for file in found)
    elif not path.is_file():
        raise InputError("FILE", str(path), "there is no such file: name a recording, a folder of them, or a bug report")
    elif (data := _content(path)).startswith(_GZIP):
        yield from _archived(path)
    else:
        yield Recording(path.name, data, alone=True)


def _archived(path: Path) -> Iterator[Recording]:
    """Return the recordings of a bug report. It may be a stranger's: nothing of it is written anywhere."""
    try:
        with tarfile.open(path, "r:gz") as tar:
            members = {PurePosixPath(each.name).name: each for each in tar if each.isreg()}
            found = {name: member for name, member in members.items() if PurePosixPath(name).match(PATTERN)}
            if not found:
                raise InputError("FILE", str(path), f"no {PATTERN} is in this archive: name a bug report with flight recordings")
            for name, member in sorted(found.items()):
                if member.size > Limits().total:
                    raise InputError("FILE", str(path), f"{name} in it is larger than any recording")
                file = tar.extractfile(member)
                assert file is not None
                yield Recording(name, file.read(), alone=False)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise InputError("FILE", str(path), f"it is no whole archive: {error}") from error


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError("FILE", str(file), f"it cannot be read: {error.strerror}") from error


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
    for found in recordings(path):
        if not found.data:  # its process was killed, or is at it, before the first byte
            note(f"{found.name} is left out: nothing was written to it")
            continue
        where = str(path) if found.alone else str(path / found.name)
        decoder = Decoder(found.data)
        try:
            yield from _moments(decoder)
        except OtherFormat as error:
            if found.alone:
                raise InputError("FILE", where, str(error)) from error
            note(f"{found.name} is left out: {error}")
            continue
        except NotARecording as error:
            raise InputError("FILE", where, str(error)) from error
        if decoder.torn:
            note(f"{found.name}: the last {decoder.torn} bytes are left out: a record there {decoder.damage}")


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
