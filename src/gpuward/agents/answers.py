"""Answers over HTTP that have to be there in time as a whole. Python's own timeouts begin anew with each byte."""

from __future__ import annotations

import http.client
import io
import math
import socket
import time
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

ANSWER_SECONDS: Final = 30.0
"""For one answer, from its first byte to its last one."""


class AnswerInTime(http.client.HTTPResponse):
    """Read an answer. Raises TimeoutError where its time is up."""

    def __init__(self, sock: socket.socket, *args: Any, seconds: float = math.inf, **keywords: Any) -> None:
        super().__init__(cast("socket.socket", _InTime(sock, seconds)), *args, **keywords)


class _InTime:
    """Be a socket, as far as an answer needs one."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._socket, self._seconds = sock, min(seconds, ANSWER_SECONDS)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._socket, self._seconds))


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._socket, self._seconds, self._until = sock, seconds, time.monotonic() + seconds
        self._silence = sock.gettimeout() or seconds
        # The socket stays open until this file is closed, also where the connection is closed before.
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, into: Buffer) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the answer was not there in {self._seconds:.3g} s")
        self._socket.settimeout(min(left, self._silence))
        return self._file.readinto(into)

    def close(self) -> None:
        self._file.close()
        super().close()
