"""Protobuf requests, built by hand from the wire format."""

from __future__ import annotations

import struct

import pytest

from kubesandbox import errors, protobuf
from sandbox_helpers.calls import Caller


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def part(number: int, value: bytes | str | int | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return protobuf.MAGIC + part(1, part(1, api_version) + part(2, kind)) + part(2, raw) + part(3, "")


CONTAINER = (part(1, "c") + part(2, "i") + part(6, part(3, 8080))
             + part(8, part(1, part(1, "cpu") + part(2, part(1, "500m")))))
VOLUME = part(1, "v") + part(2, part(1, part(1, "/dev")))
POD_SPEC = part(1, VOLUME) + part(2, CONTAINER) + part(4, 30) + part(5, -1) + part(11, 1)
META = part(1, part(1, "x") + part(11, part(1, "app") + part(2, "y")))


@pytest.mark.parametrize(("api_version", "kind", "raw", "expected"), [
    ("v1", "ConfigMap", META + part(2, part(1, "k") + part(2, "v")) + part(3, part(1, "b") + part(2, b"\x00")),
     {"metadata": {"name": "x", "labels": {"app": "y"}}, "data": {"k": "v"}, "binaryData": {"b": "AA=="}}),
    ("v1", "Pod", part(2, POD_SPEC),
     {"spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 8080}],
                               "resources": {"limits": {"cpu": "500m"}}}],
               "volumes": [{"name": "v", "hostPath": {"path": "/dev"}}], "terminationGracePeriodSeconds": 30,
               "activeDeadlineSeconds": -1, "hostNetwork": True}}),
    ("policy/v1", "PodDisruptionBudget", part(2, part(1, part(1, 1) + part(3, "50%")) + part(3, part(2, 1))),
     {"spec": {"minAvailable": "50%", "maxUnavailable": 1}}),
    ("coordination.k8s.io/v1", "Lease", part(2, part(4, part(1, 1_700_000_000) + part(2, 5000))),
     {"spec": {"renewTime": "2023-11-14T22:13:20.000005Z"}}),
    ("apps/v1", "ControllerRevision", part(2, part(1, '{"a":1}')) + part(3, 4), {"data": {"a": 1}, "revision": 4}),
    ("v1", "DeleteOptions", part(1, 0) + part(2, part(1, "uid")) + part(5, "All"),
     {"gracePeriodSeconds": 0, "preconditions": {"uid": "uid"}, "dryRun": ["All"]}),
])
def test_messages_become_json(api_version: str, kind: str, raw: bytes, expected: dict[str, object]) -> None:
    assert protobuf.parse(envelope(api_version, kind, raw)) == {"apiVersion": api_version, "kind": kind, **expected}


@pytest.mark.parametrize("body", [b"", b"{}", protobuf.MAGIC, protobuf.MAGIC + b"\x0a\xff", envelope("v1", "Pod", b"\x12\x40x"),
                                  envelope("v1", "ConfigMap", part(1, part(1, b"\xff\xfe")))])
def test_garbage_is_refused(body: bytes) -> None:
    with pytest.raises(errors.BadRequest):
        protobuf.parse(body)


def test_custom_kinds_have_no_protobuf() -> None:
    assert protobuf.parse(envelope("example.com/v1", "Thing", b"")) is None


def test_the_server_takes_protobuf_bodies() -> None:
    caller = Caller()
    kind = "application/vnd.kubernetes.protobuf"
    made = caller.ok("POST", "/api/v1/namespaces/default/configmaps", envelope("v1", "ConfigMap", META), content_type=kind)
    assert made["metadata"]["labels"] == {"app": "y"}
    assert caller.send("POST", "/apis/example.com/v1/things", envelope("example.com/v1", "Thing", b""),
                       content_type=kind).status == 404
