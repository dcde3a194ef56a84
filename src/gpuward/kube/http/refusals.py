"""From an HTTP answer that is not 2xx to the exception that says so."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from gpuward import errors

if TYPE_CHECKING:
    from gpuward.kube.http.transport import Response

_BY_STATUS: Final[dict[int, type[errors.ApiError]]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    409: errors.Conflict,
    410: errors.Gone,
    415: errors.UnsupportedMediaType,
    422: errors.Invalid,
    429: errors.TooManyRequests,
}
_DENIED: Final = re.compile(r'admission webhook "[^"]*" denied the request')
"""How the API server begins what a webhook says."""
_SHOWN: Final = 256
"""Longest piece of a body that is not a Status which is repeated in a message: it may be a proxy's whole HTML page."""


class Status(msgspec.Struct):
    """Read the Kubernetes Status object (meta/v1) that an API server sends with a refusal."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a body raises that is not what it should be; the last for one that is nested too deeply."""

_DIGITS: Final = 9
"""More than any wait takes that is meant; Python refuses to read numbers of thousands of digits."""

_status_decoder: Final = msgspec.json.Decoder(Status)


def refusal(response: Response) -> errors.ApiError:
    """Return the exception for an answer whose status is not 2xx, with the Status object's reason and details.

    A Retry-After header is kept as `retryAfterSeconds` in the details when the Status itself does not say.
    """
    try:
        status = _status_decoder.decode(response.body)
    except UNREADABLE:  # a proxy or load balancer answered in its own words
        status = Status()
    if status.kind != "Status":
        text = " ".join(response.body[:_SHOWN].decode("utf-8", "replace").split())
        status = Status(message=text or f"HTTP status {response.status} without a message{_redirected(response)}")
    details = dict(status.details or {})
    if (wait := _asked(response)) is not None:
        details.setdefault("retryAfterSeconds", wait)
    return from_status(response.status, status.reason, status.message, details)


def _redirected(response: Response) -> str:
    """Return in words where an answer sends who asked. Nothing of the address is said but its host: the rest may be secret."""
    try:
        host = urlsplit(response.header("Location") or "").hostname
    except ValueError:
        host = None
    return f", sent on to {host}" if host else ""


def _asked(response: Response) -> int | None:
    """Return the seconds in a Retry-After header: a number, or a date beside the answer's own. Anything else says nothing."""
    wait = (response.header("Retry-After") or "").strip()
    if wait.isascii() and wait.isdecimal():
        return int(wait[-_DIGITS:]) if len(wait.lstrip("0")) <= _DIGITS else 10**_DIGITS
    until, sent = _date(wait), _date(response.header("Date") or "")
    return max(0, round((until - sent).total_seconds())) if until and sent else None


def _date(text: str) -> datetime | None:
    try:
        read = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def watch_error(body: bytes) -> errors.ApiError:
    """Return the exception for the object of a watch's ERROR event, which is a Status with its own code."""
    try:
        status = _status_decoder.decode(body)
    except UNREADABLE:
        status = Status(message="the watch reported an error that is not a Status")
    return from_status(status.code or 500, status.reason, status.message, dict(status.details or {}))


def from_status(code: int, reason: str, message: str, details: dict[str, Any]) -> errors.ApiError:
    """Build the exception for a status code and reason; an unknown code below 500 is a plain ApiError.

    An admission webhook denies with whichever code its author chose: that is a refusal of this very write, and says nothing of
    the server's load, of our credentials or of what others wrote meanwhile.
    """
    kind: type[errors.ApiError]
    if code < 500 and _DENIED.match(message):
        kind = errors.Forbidden
    elif code == 409 and reason == errors.AlreadyExists.reason:
        kind = errors.AlreadyExists
    else:
        kind = _BY_STATUS.get(code, errors.ServerError if code >= 500 else errors.ApiError)
    return kind(message or f"HTTP {code}", status=code, reason=reason or None, details=details)
