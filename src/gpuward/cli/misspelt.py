"""What is wrong with policies in files: fields that their CRDs do not have, which an API server drops and nobody misses, fields
that an API server requires, and a RolloutPolicy that cannot be followed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuward.cli.terminal import say
from gpuward.crd.check import field_path
from gpuward.crd.generate import all_crds
from gpuward.crd.rollout_conversion import typed_rollout
from gpuward.errors import InputError

Object = dict[str, Any]
_OF_EVERY_OBJECT: Final = ("apiVersion", "kind", "metadata", "status")


def warn_of(objects: Sequence[Object]) -> None:
    """Tell on the side of fields that are none, as kubectl's strict validation does, and of those that are required.

    Raises:
        InputError: a RolloutPolicy cannot be followed; the message names every field, its value and what to write.
    """
    for line in wrong_fields(objects):
        say(line, err=True)
    for obj in objects:
        if obj["kind"] != "RolloutPolicy":
            continue
        _, problems = typed_rollout(obj)
        if problems:
            first, *others = problems
            fix = "; ".join((first.fix, *map(str, others)))
            raise InputError(f"RolloutPolicy {obj['metadata']['name']}: {first.field}", first.value, fix)


def wrong_fields(objects: Iterable[Object]) -> Iterator[str]:
    """Yield a line for each field of a custom resource that is none, and each that is required and not there."""
    schemas = {crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
               for crd in all_crds()}
    for obj in objects:
        if (schema := schemas.get(obj["kind"])) is not None:
            whole = {"properties": {"spec": schema, **{key: {} for key in _OF_EVERY_OBJECT}}}
            yield from (f"{obj['kind']} {obj['metadata']['name']}: {told}" for told in _wrong(obj, whole, ""))


def _wrong(value: object, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    known, others = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for number, each in enumerate(value):
            yield from _wrong(each, schema["items"], f"{path}[{number}]")
    if not isinstance(value, Mapping) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    yield from (f"{field_path(path, key)} is missing: an API server refuses the object without it"
                for key in schema.get("required", ()) if key not in value and "default" not in (known or {}).get(key, {}))
    for key, each in value.items():
        if known is not None and key in known:
            yield from _wrong(each, known[key], field_path(path, key))
        elif isinstance(others, Mapping):
            yield from _wrong(each, others, field_path(path, str(key)))
        elif known is not None:
            near = difflib.get_close_matches(str(key), known, n=1)
            yield f"{field_path(path, str(key))} is no field, and is ignored" + (f"; did you mean {near[0]}?" if near else "")
