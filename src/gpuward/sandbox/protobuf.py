"""The few Kubernetes messages that kubectl sends as protobuf only: Eviction, DeleteOptions and access reviews.

Facts from the `generated.proto` files of k8s.io/apimachinery and k8s.io/api; the encoding is protobuf's wire format behind the
prefix `k8s\\0` and an envelope (runtime.Unknown) that carries kind and apiVersion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuward import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Object = dict[str, Any]
Shape = dict[int, tuple[str, Any]]
"""Field number -> JSON name and how to read it: `str`, `int`, `bool`, `[str]` or another shape."""

MAGIC: Final = b"k8s\0"
_PRECONDITIONS: Final[Shape] = {1: ("uid", str), 2: ("resourceVersion", str)}
_DELETE_OPTIONS: Final[Shape] = {
    1: ("gracePeriodSeconds", int), 2: ("preconditions", _PRECONDITIONS), 3: ("orphanDependents", bool),
    4: ("propagationPolicy", str), 5: ("dryRun", [str])}
_METADATA: Final[Shape] = {1: ("name", str), 2: ("generateName", str), 3: ("namespace", str)}
_EVICTION: Final[Shape] = {1: ("metadata", _METADATA), 2: ("deleteOptions", _DELETE_OPTIONS)}
_ENVELOPE: Final[Shape] = {1: ("type", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)}
_KINDS: Final[Mapping[str, Shape]] = {
    "Eviction": _EVICTION, "DeleteOptions": _DELETE_OPTIONS, "SelfSubjectAccessReview": {}, "SelfSubjectReview": {},
    "SelfSubjectRulesReview": {}, "SubjectAccessReview": {}, "LocalSubjectAccessReview": {},
}


def parse(body: bytes) -> Object | None:
    """Return a message as JSON, or None for a kind that is not read here; raise `errors.BadRequest` for garbage."""
    if not body.startswith(MAGIC):
        raise errors.BadRequest("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = _message(body[len(MAGIC):], _ENVELOPE)
        kind = envelope.get("type", {}).get("kind", "")
        shape = _KINDS.get(kind)
        return None if shape is None else {**envelope["type"], **_message(envelope.get("raw", b""), shape)}
    except (IndexError, UnicodeDecodeError) as error:
        raise errors.BadRequest(f"protobuf message ends too soon or holds no text: {error}") from None


def _message(data: bytes, shape: Shape) -> Object:
    result: Object = {}
    for number, value in _fields(data):
        if number not in shape:
            continue
        name, how = shape[number]
        if how == [str]:
            result.setdefault(name, []).append(value.decode())
        elif isinstance(how, dict):
            result[name] = _message(value, how)
        else:
            result[name] = value.decode() if how is str else how(value)
    return result


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            # Negative numbers are written as 64-bit two's complement.
            yield number, value - (1 << 64) if value >> 63 else value
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise IndexError(f"{size} bytes wanted at {at}")
            yield number, data[at:at + size]
            at += size
        else:
            at += 8 if wire == 1 else 4


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
