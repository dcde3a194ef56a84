from __future__ import annotations

from typing import Any

from kubesandbox import openapi_types


def test_a_type_comes_with_all_that_it_is_made_of() -> None:
    schemas: dict[str, Any] = {}
    openapi_types.collect("core.v1.Pod", schemas)
    spec = schemas["io.k8s.core.v1.PodSpec"]["properties"]
    assert spec["containers"]["items"] == {"allOf": [{"$ref": "#/components/schemas/io.k8s.core.v1.Container"}]}
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert spec["containers"]["x-kubernetes-patch-strategy"] == "merge"
    assert spec["nodeSelector"] == {"type": "object", "additionalProperties": {"type": "string"}}
    properties = [one for schema in schemas.values() for one in schema["properties"].values()]
    references = {part["$ref"] for one in properties for part in one.get("allOf", ())}
    assert {reference.rpartition("/")[2] for reference in references} <= set(schemas)
