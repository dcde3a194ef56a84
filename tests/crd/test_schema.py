from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from gpuward.crd.facts import DEFAULTED, REQUIRED, Int32, IntOrString, Spec, cel
from gpuward.crd.schema import schema_of, struct_schema, without_descriptions


class Part(Spec, frozen=True, kw_only=True):
    """Be a part."""

    unknown_word: str
    fixed: Annotated[bool, DEFAULTED, REQUIRED] = False
    own_name: str = msgspec.field(name="ownNAME", default="")


@pytest.mark.parametrize(("annotation", "expected"), [
    (str, {"type": "string"}),
    (bool | None, {"type": "boolean"}),
    (Int32 | None, {"type": "integer", "format": "int32"}),
    (Annotated[Int32, msgspec.Meta(ge=1)], {"type": "integer", "format": "int32", "minimum": 1}),
    (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
    (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
    (dict[str, IntOrString], {"type": "object", "additionalProperties": {
        "anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}}),
    (Annotated[str, cel("self == oldSelf", "fixed")],
     {"type": "string", "x-kubernetes-validations": [{"message": "fixed", "rule": "self == oldSelf"}]}),
])
def test_types_become_schemas(annotation: Any, expected: dict[str, Any]) -> None:
    assert schema_of(annotation) == expected


@pytest.mark.parametrize("annotation", [float, int | str, list[str], tuple[str, int], dict[int, str], Any])
def test_a_type_without_a_counterpart_is_an_error(annotation: Any) -> None:
    with pytest.raises(TypeError, match="no CRD schema"):
        schema_of(annotation)


def test_a_struct_becomes_an_object_with_sorted_properties() -> None:
    assert struct_schema(Part) == {
        "type": "object", "description": "Be a part.", "required": ["fixed", "unknownWord"],
        "properties": {
            "fixed": {"type": "boolean", "default": False},
            "ownNAME": {"type": "string"},
            "unknownWord": {"type": "string"},
        },
    }
    assert list(struct_schema(Part)["properties"]) == ["fixed", "ownNAME", "unknownWord"]


def test_descriptions_can_be_taken_off() -> None:
    schema = {"description": "x", "properties": {"description": {"type": "string", "description": "y"}}}
    assert without_descriptions(schema) == {"properties": {"description": {"type": "string"}}}
