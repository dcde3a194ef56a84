"""A file system that knows of files and tells nothing more, as one of a server that is away: it answers until it is asked what a
file is, or from the first look on. It is FUSE's protocol, without its library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LONGEST = 30
"""Seconds after which it fails all who wait, whatever became of the test."""
LOOKUP, GETATTR, OPEN, RELEASE, FLUSH, INIT, ROOT = 1, 3, 14, 18, 25, 26, 1


def answer(number: int, node: int, *, finds: bool) -> bytes | None:
    """Return what is answered; nothing where it is silent."""
    folder, file = 0o40755, 0o100644
    if number == INIT:
        return struct.pack("=4I2HI", 7, 19, 0, 0, 8, 8, 4096)
    if number == GETATTR and node == ROOT:
        return struct.pack("=QII", 0, 0, 0) + attributes(ROOT, folder)
    if number == LOOKUP and finds:
        return struct.pack("=4QII", 2, 1, 0, 0, 0, 0) + attributes(2, file)
    if number == OPEN:
        return struct.pack("=QII", 1, 0, 0)
    return b"" if number in (RELEASE, FLUSH) else None


def attributes(node: int, mode: int) -> bytes:
    return struct.pack("=6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 512, 0)


def serve(folder: str, finds: bool) -> None:
    """Mount it, and answer until this process is killed."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", os.fsencode(folder), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "cannot mount")
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    signal.alarm(LONGEST)
    while True:
        asked = os.read(device, 1 << 17)
        _, number, unique, node = struct.unpack_from("=IIQQ", asked)
        if (content := answer(number, node, finds=finds)) is not None:
            os.write(device, struct.pack("=IiQ", 16 + len(content), 0, unique) + content)


@contextmanager
def silent(folder: Path, *, finds: bool) -> Iterator[None]:
    """Mount it there meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    server = subprocess.Popen([sys.executable, __file__, str(folder), str(int(finds))], stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"mounted\n"
        yield
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        with suppress(OSError):
            ctypes.CDLL(None).umount2(os.fsencode(folder), 2)


if __name__ == "__main__":
    serve(sys.argv[1], bool(int(sys.argv[2])))
