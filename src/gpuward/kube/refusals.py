"""From an HTTP answer that is not 2xx to the exception that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuward import errors

if TYPE_CHECKING:
    from gpuward.kube.transport import Response

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
_SHOWN: Final = 256
"""Longest piece of a body that is not a Status which is repeated in a message: it may be a proxy's whole HTML page."""


class Status(msgspec.Struct):
    """Read the Kubernetes Status object (meta/v1) that an API server sends with a refusal."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


_status_decoder: Final = msgspec.json.Decoder(Status)


def refusal(response: Response) -> errors.ApiError:
    """Return the exception for an answer whose status is not 2xx, with the Status object's reason and details.

    A Retry-After header is kept as `retryAfterSeconds` in the details when the Status itself does not say.
    """
    try:
        status = _status_decoder.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError):  # a proxy or load balancer answered in its own words
        status = Status()
    if status.kind != "Status":
        text = " ".join(response.body[:_SHOWN].decode("utf-8", "replace").split())
        status = Status(message=text or "no message")
    details = dict(status.details or {})
    wait = response.header("Retry-After")
    if wait is not None and wait.isdecimal():
        details.setdefault("retryAfterSeconds", int(wait))
    return from_status(response.status, status.reason, status.message, details)


def watch_error(body: bytes) -> errors.ApiError:
    """Return the exception for the object of a watch's ERROR event, which is a Status with its own code."""
    try:
        status = _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = Status(message="the watch reported an error that is not a Status")
    return from_status(status.code or 500, status.reason, status.message, dict(status.details or {}))


def from_status(code: int, reason: str, message: str, details: dict[str, Any]) -> errors.ApiError:
    """Build the exception for a status code and reason; an unknown code below 500 is a plain ApiError."""
    kind: type[errors.ApiError]
    if code == 409 and reason == errors.AlreadyExists.reason:
        kind = errors.AlreadyExists
    else:
        kind = _BY_STATUS.get(code, errors.ServerError if code >= 500 else errors.ApiError)
    return kind(message or f"HTTP {code}", status=code, reason=reason or None, details=details)
