"""Fields of policies in files that their CRDs do not have: an API server drops them, and nobody misses them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuward.crd.generate import all_crds

Object = dict[str, Any]


def no_fields(objects: Iterable[Object]) -> Iterator[str]:
    """Yield a line for each field of a custom resource's spec that is none."""
    schemas = {crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
               for crd in all_crds()}
    for obj in objects:
        if (schema := schemas.get(obj["kind"])) is not None:
            yield from (f"{obj['kind']} {obj['metadata']['name']}: {told}" for told in _unknown(obj.get("spec"), schema, "spec"))


def _unknown(value: object, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    known, others = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for number, each in enumerate(value):
            yield from _unknown(each, schema["items"], f"{path}[{number}]")
    if not isinstance(value, Mapping) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for key, each in value.items():
        if known is not None and key in known:
            yield from _unknown(each, known[key], f"{path}.{key}")
        elif isinstance(others, Mapping):
            yield from _unknown(each, others, f"{path}.{key}")
        elif known is not None:
            near = difflib.get_close_matches(str(key), known, n=1)
            yield f"{path}.{key} is no field, and is ignored" + (f"; did you mean {near[0]}?" if near else "")
