"""Whatever happens to a file, what came before it is read, and nothing that is not whole."""

from __future__ import annotations

import struct
import zlib

import msgspec
import pytest

from gpuward.recording.changes import NOTHING, changes_between
from gpuward.recording.codec import FORMAT, Decoder, Encoder, NotARecording
from gpuward.recording.frame import Frame, Header
from tests import build

FRAMES = [Frame(float(number), changes_between(NOTHING, build.fleet(number))) for number in range(1, 4)]


def pieces() -> list[bytes]:
    """Return a recording of three frames, record by record."""
    encoder = Encoder()
    return [encoder.begin(Header("1.2.3")), *(piece for frame in FRAMES for piece in encoder.frame(frame))]


def test_what_was_written_is_read() -> None:
    decoder = Decoder(b"".join(pieces()))
    assert list(decoder) == [Header("1.2.3"), *FRAMES]
    assert decoder.torn == 0


def test_wherever_a_file_is_torn_all_that_is_whole_is_read() -> None:
    beginning, *frames = pieces()
    for number, piece in enumerate(frames):
        for length in range(len(piece)):
            decoder = Decoder(beginning + b"".join(frames[:number]) + piece[:length])
            assert len(list(decoder)) == 1 + number
            assert decoder.torn == length


@pytest.mark.parametrize("back", [1, 10, 60])
def test_a_record_that_was_changed_is_not_read(back: int) -> None:
    data = bytearray(b"".join(pieces()))
    data[-back] ^= 1
    decoder = Decoder(bytes(data))
    assert list(decoder) == [Header("1.2.3"), *FRAMES[:-1]]
    assert (decoder.torn, decoder.damage) == (len(pieces()[-1]), "was changed since it was written")


def test_a_record_that_is_nested_too_deeply_is_not_read() -> None:
    head, _ = Encoder().begin(Header("1.2.3")).split(b"\n", 1)
    record = msgspec.msgpack.encode({"at": 1.0, "changes": {}, "more": msgspec.Raw(b"\x91" * 100_000 + b"\xc0")})
    packed = _flushed(record)
    decoder = Decoder(head + b"\n" + struct.pack(">cII", b"F", len(packed), zlib.crc32(packed)) + packed)
    assert list(decoder) == []
    assert decoder.damage.startswith("cannot be read: maximum recursion depth exceeded")


def _flushed(data: bytes) -> bytes:
    stream = zlib.compressobj()
    return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(("data", "problem"), [
    (b"", "it is not a recording"),
    (b"apiVersion: v1\n", "it is not a recording"),
    (b"gpuward recording, format one\n", "it is not a recording"),
    (b"gpuward recording, format %d\n" % (FORMAT + 1), "use a newer one"),
    (b"gpuward recording, format 1\n", "it has format 1, and this gpuward reads 2 and 3: use an older one"),
])
def test_what_is_no_recording_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(NotARecording, match=problem):
        list(Decoder(data))


def test_the_format_before_is_still_read() -> None:
    """It had no passes over the operands, and nothing else in it was different."""
    data = b"".join(pieces()).replace(b"format %d" % FORMAT, b"format 2", 1)
    assert list(Decoder(data)) == [Header("1.2.3"), *FRAMES]
