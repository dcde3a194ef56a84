"""A bounded ring of files: each is a recording of its own, and the oldest go when there is no room for more."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

MIB: Final = 1 << 20
PATTERN: Final = "recording-*.gpuward"
_NAME: Final = "recording-{:08}.gpuward"


class Limits(msgspec.Struct, frozen=True):
    """Bound the bytes on disk. Where the facts of a large fleet fill a segment it may be larger, and the ring has fewer."""

    segment: int = 4 * MIB
    total: int = 32 * MIB


class Ring:
    """Write to one's own newest file of a folder. Another process may have its own there, and both keep the same bounds."""

    def __init__(self, folder: Path, limits: Limits, *, private: bool = False) -> None:
        """Make the folder, readable for its owner only. A `private` one nobody named, so that others may have got there first.

        Raises:
            OSError: it cannot be made or read, or a private one is not ours alone.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if private:
            _make_sure_it_is_ours(folder)
        self._folder = folder
        self._limits = limits
        self._sizes = self._found()
        self._file = -1
        self._newest = Path()
        self._first = 0

    @property
    def is_full(self) -> bool:
        """Tell whether the next frame belongs into a new file: what a file begins with should be a small part of it."""
        most = min(max(self._limits.segment, 3 * self._first), self._limits.total)
        return self._file < 0 or self._sizes[self._newest] >= most

    def begin(self, pieces: Iterable[bytes]) -> None:
        """Begin a new file with these bytes."""
        self.close()
        self._sizes = self._found()
        self._newest = self._opened(max((_number(path) for path in self._sizes), default=0) + 1)
        self._sizes[self._newest] = 0
        self.add(pieces)
        self._first = self._sizes[self._newest]

    def add(self, pieces: Iterable[bytes]) -> None:
        """Add bytes to the newest file, and make room for them first.

        Raises:
            OSError: they cannot be written, or one file alone would be larger than the ring.
        """
        for piece in pieces:
            self._make_room(len(piece))
            self._sizes[self._newest] += len(piece)
            while piece:
                piece = piece[os.write(self._file, piece):]

    def close(self) -> None:
        """Close the newest file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _found(self) -> dict[Path, int]:
        found = {}
        for path in sorted(self._folder.glob(PATTERN)):
            with suppress(FileNotFoundError):  # another process may have made room just now
                found[path] = path.stat().st_size
        return found

    def _opened(self, number: int) -> Path:
        """Open a new file, of the first number from this one on that nobody else took."""
        while True:
            path = self._folder / _NAME.format(number)
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            except FileExistsError:
                number += 1
            else:
                return path

    def _make_room(self, size: int) -> None:
        while sum(self._sizes.values()) + size > self._limits.total:
            oldest = next((path for path in self._sizes if path != self._newest), None)
            if oldest is None:
                raise OSError(f"one look at the cluster takes more than the {self._limits.total} bytes that there are for all")
            oldest.unlink(missing_ok=True)
            del self._sizes[oldest]


def _make_sure_it_is_ours(folder: Path) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        problem = "is a link or a file"
    elif found.st_uid != os.geteuid():
        problem = f"belongs to user {found.st_uid}"
    elif found.st_mode & 0o077:
        problem = f"is open to others (mode {stat.S_IMODE(found.st_mode):o})"
    else:
        return
    raise PermissionError(f"{folder} {problem}: remove it, or name a folder with --recorder-dir")


def _number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0
