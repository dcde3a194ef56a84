"""Write a compressed archive that is there whole, or not at all."""

from __future__ import annotations

import errno
import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from gpuward.errors import GpuwardError, InputError

IN_MEMORY: Final = 8 << 20
"""Bytes of a member that are kept in memory while it is made."""
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
EXISTS: Final = "it is there already: name another file, or say --force"


class Archive:
    """Take members, all in one folder and of one time."""

    def __init__(self, tar: tarfile.TarFile, folder: str, at: int) -> None:
        self.members: list[str] = []
        self._tar = tar
        self._folder = folder
        self._at = at

    def add(self, name: str, data: bytes) -> None:
        """Add a member."""
        self._add(name, io.BytesIO(data), len(data))

    @contextmanager
    def member(self, name: str) -> Iterator[IO[bytes]]:
        """Yield a file that becomes a member when the context ends well."""
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            yield file
            size = file.tell()
            file.seek(0)
            self._add(name, file, size)

    def _add(self, name: str, file: IO[bytes], size: int) -> None:
        info = tarfile.TarInfo(f"{self._folder}/{name}")
        info.size, info.mtime, info.mode = size, self._at, 0o600
        self._tar.addfile(info, file)
        self.members.append(name)


@contextmanager
def archive_at(path: Path, folder: str, at: float, *, force: bool) -> Iterator[Archive]:
    """Yield an archive that appears at a path when the context ends well. Only its owner may read it.

    Raises:
        InputError: a file is there and may not be replaced, or none can be written.
        GpuwardError: there is no room for it.
    """
    if path.is_dir():
        raise InputError("--output", str(path), "name a file, not a folder")
    if not force and os.path.lexists(path):
        raise InputError("--output", str(path), EXISTS)
    try:
        number, name = tempfile.mkstemp(prefix=".gpuward-", dir=path.parent)
    except OSError as error:
        raise InputError("--output", str(path), f"name a file that can be written: {error.strerror}") from error
    made = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            # Without a file name and with the time given, the same members make the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=int(at), compresslevel=6) as zipped, \
                    tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar:
                yield Archive(tar, folder, int(at))
            file.flush()
            os.fsync(file.fileno())
        publish(made, path, force=force)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise GpuwardError(f"{path} could not be written: {error.strerror}") from error
    finally:
        made.unlink(missing_ok=True)


def publish(made: Path, path: Path, *, force: bool, option: str = "--output") -> None:
    """Give a file that is whole its name.

    Raises:
        InputError: a file is there and may not be replaced.
    """
    if force:
        made.replace(path)
        return
    try:
        os.link(made, path)  # unlike a rename it fails where somebody was faster
    except FileExistsError:
        raise InputError(option, str(path), EXISTS) from None
    except OSError:  # a file system without hard links
        made.rename(path)
