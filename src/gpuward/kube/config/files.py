"""Certificates, keys and tokens that live in files, or inline in a kubeconfig, and are read again when they change."""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING

from gpuward.errors import KubeconfigError

if TYPE_CHECKING:
    from pathlib import Path


class Inline:
    """Hold a value that the kubeconfig carries itself."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    @classmethod
    def from_base64(cls, text: str, field: str) -> Inline:
        """Decode a `...-data` field. Raises errors.KubeconfigError naming `field` when it is not base64."""
        try:
            return cls(base64.b64decode("".join(text.split()), validate=True))
        except (binascii.Error, ValueError) as error:
            raise KubeconfigError(f"{field}: not valid base64 ({error}): encode the PEM text with `base64 -w0`") from None

    def read(self) -> bytes:
        """Return the value."""
        return self._value

    def read_again(self) -> bytes:
        """Return the value: it cannot change."""
        return self._value

    def apart(self) -> Inline:
        """Return itself: there is nothing that could be shared wrongly."""
        return self


class InFile:
    """Read a file, and read it again whenever its inode, size or modification time says that it changed.

    The kubelet replaces projected tokens and certificates by swapping a symbolic link, which changes the inode.
    A file that was read once and then disappears for a moment keeps its last value.
    """

    def __init__(self, path: Path, field: str) -> None:
        self._path = path
        self._field = field
        self._stamp: tuple[int, int, int] | None = None
        self._value: bytes | None = None

    def read(self) -> bytes:
        """Return the file's content. Raises errors.KubeconfigError when it was never readable."""
        try:
            found = os.stat(self._path)
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            if self._value is None or stamp != self._stamp:
                self._value, self._stamp = self._path.read_bytes(), stamp
        except OSError as error:
            if self._value is None:
                reason = error.strerror or str(error)
                raise KubeconfigError(
                    f"{self._field}: cannot read {self._path}: {reason}: name a file that exists and may be read"
                ) from error
        return self._value

    def read_again(self) -> bytes:
        """Return the file's content, whatever its modification time says."""
        self._stamp = None
        return self.read()

    def apart(self) -> InFile:
        """Return a reader of the same file with a memory of its own."""
        return InFile(self._path, self._field)


Source = Inline | InFile
