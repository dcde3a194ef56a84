"""Requests in Kubernetes' protobuf encoding, which kubectl's typed commands send: read into the JSON that they stand for.

The encoding is protobuf's wire format behind the prefix `k8s\\0` and an envelope (runtime.Unknown) with kind and apiVersion.
The fields' numbers come with the types (`kubetypes`); what is missing there is not read.
"""

from __future__ import annotations

import base64
import json
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors, kubetypes

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

MAGIC: Final = b"k8s\0"
_VARINT, _FIXED64, _BYTES = 0, 1, 2


def parse(body: bytes) -> Object | None:
    """Return a message as JSON, or None for a kind that is not built in; raise `errors.BadRequest` for garbage."""
    if not body.startswith(MAGIC):
        raise errors.BadRequest("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_fields(body[len(MAGIC):]))
        meta = {number: value.decode() for number, value in _fields(envelope[1])}
        api_version, kind = meta.get(1, ""), meta.get(2, "")
        group = api_version.rpartition("/")[0]
        # DeleteOptions belong to no group of their own: they are sent in the one of what is deleted.
        type_name = "meta.v1.DeleteOptions" if kind == "DeleteOptions" else kubetypes.type_of(group, kind)
        if type_name is None:
            return None
        return {**_message(envelope.get(2, b""), type_name), "apiVersion": api_version, "kind": kind}
    except (LookupError, ValueError, AttributeError, TypeError, struct.error) as error:
        raise errors.BadRequest(f"the protobuf message cannot be read: {error}") from None


def _message(data: bytes, type_name: str) -> Object:
    names = kubetypes.numbers(type_name)
    result: Object = {}
    for number, value in _fields(data):
        if number not in names:
            continue
        name, inner = names[number]
        if name.startswith("@"):
            result.update(_message(value, inner))
        elif inner.startswith("[]"):
            result.setdefault(name, []).append(_value(value, inner[2:]))
        elif inner.startswith("{}"):
            pair = dict(_fields(value))
            result.setdefault(name, {})[pair.get(1, b"").decode()] = _value(pair.get(2, b""), inner[2:])
        else:
            result[name] = _value(value, inner)
    return result


def _value(value: Any, type_name: str) -> Any:
    if type_name == "string":
        return value.decode()
    if type_name in ("integer", "number"):
        return value
    if type_name == "boolean":
        return bool(value)
    if type_name == "bytes":
        return base64.b64encode(value).decode()
    if type_name == "any":
        return json.loads(dict(_fields(value)).get(1) or b"null")
    if type_name in ("quantity", "intorstring", "time", "microtime"):
        return _wrapped(dict(_fields(value)), type_name)
    return _message(value, type_name)


def _wrapped(parts: dict[int, Any], type_name: str) -> Any:
    if type_name == "quantity":
        return parts.get(1, b"0").decode()
    if type_name == "intorstring":
        return parts[3].decode() if parts.get(1) else parts.get(2, 0)
    if not parts:
        return None
    moment = datetime.fromtimestamp(parts.get(1, 0), UTC)
    if type_name == "time":
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return moment.replace(microsecond=parts.get(2, 0) // 1000).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            # Negative numbers are written as 64-bit two's complement.
            yield number, value - (1 << 64) if value >> 63 else value
        elif wire == _FIXED64:
            yield number, struct.unpack_from("<d", data, at)[0]
            at += 8
        elif wire == _BYTES:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError(f"{size} bytes wanted at {at}, {len(data) - at} are left")
            yield number, data[at:at + size]
            at += size
        else:
            raise ValueError(f"wire type {wire} at {at}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
