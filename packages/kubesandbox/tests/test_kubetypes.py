from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import errors, kubetypes
from kubesandbox.resources import BUILT_IN


def read(type_name: str, value: Any) -> tuple[Any, list[str]]:
    reading = kubetypes.Reading()
    return kubetypes.decoder(type_name)(value, (), reading), reading.unknown


def test_every_served_resource_has_its_type() -> None:
    for resource in BUILT_IN:
        assert kubetypes.type_of(resource.group, resource.kind), resource.key


@pytest.mark.parametrize(("sent", "stored", "unknown"), [
    ({"name": "c", "image": "", "resources": {}}, {"name": "c", "resources": {}}, []),
    ({"name": "c"}, {"name": "c", "resources": {}}, []),
    ({"image": "i"}, {"name": "", "image": "i", "resources": {}}, []),
    ({"name": "c", "args": [], "env": None}, {"name": "c", "resources": {}}, []),
    ({"name": "c", "env": [{"name": "A", "value": ""}]}, {"name": "c", "env": [{"name": "A"}], "resources": {}}, []),
    ({"name": "c", "securityContext": {"privileged": False}},
     {"name": "c", "securityContext": {"privileged": False}, "resources": {}}, []),
    ({"name": "c", "comand": ["x"]}, {"name": "c", "resources": {}}, ["comand"]),
    ({"name": "c", "env": [{"name": "A"}, {"name": "B", "valu": "1"}]},
     {"name": "c", "env": [{"name": "A"}, {"name": "B"}], "resources": {}}, ["env[1].valu"]),
    ({"name": "c", "resources": {"limits": {"memory": "1024Mi", "cpu": 1}}},
     {"name": "c", "resources": {"limits": {"memory": "1Gi", "cpu": "1"}}}, []),
])
def test_containers_are_stored_as_go_writes_them(sent: Any, stored: Any, unknown: list[str]) -> None:
    assert read("core.v1.Container", sent) == (stored, unknown)


@pytest.mark.parametrize(("type_name", "sent", "message"), [
    ("core.v1.Container", {"image": 5}, "cannot unmarshal number into Go struct field Container.image of type string"),
    ("core.v1.Container", {"env": {}}, r"cannot unmarshal object into Go struct field Container.env of type \[\]v1.EnvVar"),
    ("core.v1.Container", {"ports": [{"containerPort": "80"}]},
     "unmarshal string into .* ContainerPort.ports.containerPort of type int32"),
    ("core.v1.Container", {"resources": {"limits": {"cpu": "x"}}}, "quantities must match"),
    ("core.v1.Container", {"tty": "yes"}, "unmarshal string into Go struct field Container.tty of type bool"),
    ("meta.v1.ObjectMeta", {"creationTimestamp": "yesterday"}, "parsing time"),
])
def test_values_of_another_type_are_refused(type_name: str, sent: Any, message: str) -> None:
    with pytest.raises(errors.BadRequest, match=message):
        read(type_name, sent)


def test_times_are_normalised_to_utc() -> None:
    meta, _ = read("meta.v1.ObjectMeta", {"creationTimestamp": "2024-01-01T02:00:00+02:00"})
    assert meta == {"creationTimestamp": "2024-01-01T00:00:00Z"}
    spec, _ = read("coordination.v1.LeaseSpec", {"renewTime": "2024-01-01T02:00:00Z"})
    assert spec == {"renewTime": "2024-01-01T02:00:00.000000Z"}


def test_merge_keys_come_with_the_types() -> None:
    spec = kubetypes.fields("core.v1.PodSpec") or {}
    assert spec["containers"].merge_key == "name"
    assert spec["tolerations"].merges is False
    meta = kubetypes.fields("meta.v1.ObjectMeta") or {}
    assert meta["ownerReferences"].merge_key == "uid"
    assert (meta["finalizers"].merges, meta["finalizers"].merge_key) == (True, None)
