"""The bytes of a recording: a first line that names the format, then records that are whole or are not read.

A record is its kind, its length and a checksum, then a piece of one compressed stream that ends where the record ends. So what
came before a torn record can be read, and each piece is compressed with what the pieces before it have in common with it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec

from gpuward.recording.changes import Changes, in_parts
from gpuward.recording.frame import Frame, Header
from gpuward.recording.operands import OperandFrame

FORMAT: Final = 3
"""Since 2 an action says by which rule it looks at its node's pods last; since 3 passes over the operands are recorded, too."""
READ: Final = frozenset({2, FORMAT})
_BEGINNING: Final = b"gpuward recording, format "
_HEAD: Final = struct.Struct(">cII")
_LARGEST: Final = 1 << 28
"""Bytes of a record once it is unpacked: more than any has."""
_LEVEL: Final = 6

Record = Header | Changes | Frame | OperandFrame
_TYPES: Final[dict[bytes, type[Record]]] = {b"H": Header, b"P": Changes, b"F": Frame, b"O": OperandFrame}


class NotARecording(ValueError):
    """Say why bytes cannot be read as a recording."""


class OtherFormat(NotARecording):
    """Say that a recording has a format that this gpuward does not read."""


class Encoder:
    """Write one recording."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(_LEVEL)

    def begin(self, header: Header) -> bytes:
        """Return the first bytes."""
        return _BEGINNING + b"%d\n" % FORMAT + self._record(b"H", header)

    def frame(self, frame: Frame | OperandFrame) -> Iterator[bytes]:
        """Return the records of a frame. The last one makes it count."""
        *parts, last = in_parts(frame.changes)
        for part in parts:
            yield self._record(b"P", part)
        yield self._record(b"F" if isinstance(frame, Frame) else b"O", msgspec.structs.replace(frame, changes=last))

    def _record(self, kind: bytes, record: Record) -> bytes:
        packed = self._stream.compress(msgspec.msgpack.encode(record)) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        return _HEAD.pack(kind, len(packed), zlib.crc32(packed)) + packed


class Decoder:
    """Read one recording. What follows the last whole record is counted in `torn`; `damage` says why it is not read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.torn = 0
        self.damage = ""

    def __iter__(self) -> Iterator[Record]:
        """Return the records.

        Raises:
            NotARecording: the bytes are something else.
            OtherFormat: a later gpuward wrote them, or one that is too old.
        """
        at = self._first_record()
        stream = zlib.decompressobj()
        while at < len(self._data):
            kind, size, checksum = _HEAD.unpack(self._data[at:at + _HEAD.size].ljust(_HEAD.size, b"\0"))
            packed = self._data[at + _HEAD.size:at + _HEAD.size + size]
            if len(self._data) < at + _HEAD.size + size:
                return self._stop(at, "is not whole")
            if zlib.crc32(packed) != checksum or kind not in _TYPES:
                return self._stop(at, "was changed since it was written")
            try:
                record = msgspec.msgpack.decode(stream.decompress(packed, _LARGEST), type=_TYPES[kind])
            except (zlib.error, msgspec.MsgspecError, RecursionError) as error:
                return self._stop(at, f"cannot be read: {error}")
            yield record
            at += _HEAD.size + size
        return None

    def _first_record(self) -> int:
        line, _, _ = self._data[:64].partition(b"\n")
        number = line.removeprefix(_BEGINNING)
        if not self._data.startswith(_BEGINNING) or not number.isdigit():
            raise NotARecording("it is not a recording of gpuward")
        if int(number) not in READ:
            age, known = "a newer" if int(number) > FORMAT else "an older", " and ".join(map(str, sorted(READ)))
            raise OtherFormat(f"it has format {int(number)}, and this gpuward reads {known}: use {age} one")
        return len(line) + 1

    def _stop(self, at: int, why: str) -> None:
        self.torn, self.damage = len(self._data) - at, why
