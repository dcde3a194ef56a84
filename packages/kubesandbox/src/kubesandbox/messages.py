"""What goes in and out of the sandbox's API server, independent of any transport."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
import yaml

from kubesandbox import errors, protobuf

Object = dict[str, Any]

JSON: Final = "application/json"
encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Request:
    """Hold one request; `path` is without the query, `query` has one value per name."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON

    def flag(self, name: str) -> bool:
        """Tell whether a boolean query parameter is set."""
        return self.query.get(name, "").lower() in ("1", "true") or (name in self.query and not self.query[name])

    def seconds(self, name: str) -> int | None:
        """Return a whole number from the query; raise `errors.BadRequest` when it is none."""
        text = self.query.get(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise errors.BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


class PageExpired(errors.Gone):
    """Refuse to go on with a paged list of an old version; `token` goes on with the newest instead."""

    def __init__(self, token: str) -> None:
        super().__init__(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results. Continuing with the provided token results in an inconsistent list - objects that were created, "
            "modified, or deleted between the time the first chunk was returned and now may show up in the list.")
        self.token = token


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold one complete answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Stream:
    """Hold an answer that goes on: each item of `chunks()` is to be sent at once; `close` ends it."""

    chunks: Callable[[], AsyncIterator[bytes]]
    close: Callable[[], None]
    content_type: str = JSON


def answer(obj: Any, status: int = 200, warnings: tuple[str, ...] = ()) -> Answer:
    """Return an object, or bytes that are JSON already, as an answer; `warnings` go into the Warning header."""
    body = obj if isinstance(obj, bytes) else encode(obj)
    quoted = ", ".join('299 - "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in warnings)
    return Answer(status, body, {"Warning": quoted} if quoted else {})


class Refusal(Protocol):
    """Be an error that an API server answers with: one of this package's, or of whoever plays with the answers."""

    @property
    def message(self) -> str: ...

    @property
    def status(self) -> int: ...

    @property
    def reason(self) -> str: ...

    @property
    def details(self) -> dict[str, Any]: ...


def status_object(error: Refusal) -> Object:
    """Return the Status object that tells of an error."""
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": error.message,
                    "reason": error.reason, "code": error.status}
    if not error.reason:
        del body["reason"]
    if error.details:
        body["details"] = error.details
    if isinstance(error, PageExpired):
        body["metadata"] = {"continue": error.token}
    return body


def refusal(error: Refusal) -> Answer:
    """Return an error as an answer."""
    headers = {}
    seconds = error.details.get("retryAfterSeconds")
    if seconds:
        headers["Retry-After"] = str(seconds)
    return Answer(error.status, encode(status_object(error)), headers)


def success(status: int = 200, **details: Any) -> Answer:
    """Return a Status object that tells of success."""
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if status != 200:
        body["code"] = status
    if details:
        body["details"] = details
    return answer(body, status)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the C loader may be missing
    """Read YAML as Kubernetes does: what looks like a date stays a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def parse(body: bytes, content_type: str) -> Any:
    """Read a JSON or YAML body; raise `errors.BadRequest` or `errors.UnsupportedMediaType`."""
    kind = content_type.partition(";")[0].strip().lower()
    if "protobuf" in kind:
        message = protobuf.parse(body)
        if message is not None:
            return message
    if "protobuf" in kind or "cbor" in kind:
        raise unsupported([JSON, "application/yaml"])
    try:
        return yaml.load(body, _Loader) if "yaml" in kind else _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise errors.BadRequest(f"error decoding the request body: {error}") from None


def unsupported(accepted: list[str]) -> errors.UnsupportedMediaType:
    """Say which media types would have been accepted."""
    return errors.UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted))
