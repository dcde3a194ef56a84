"""Custom resources as they are recorded: without anything in which people put secrets.

What stands for a value that is left out is the same for all of them, so that a resource means the same but for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from gpuward import names
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.generate import Kind, schema_for_reading
from gpuward.crd.keptspec import spec_to_keep
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.crd.rolloutpolicy import RolloutPolicy
from gpuward.model.views import PolicyView

T = TypeVar("T")

LEFT_OUT: Final = "..."
RECORDED: Final = (names.NVIDIA_GROUP + "/", names.GPUWARD_GROUP + "/")
"""Prefixes of the annotations that are recorded."""
_KINDS: Final[Mapping[str, Kind]] = {kind.kind: kind for kind in (ClusterPolicy, NVIDIADriver, RolloutPolicy)}
_TEXTS: Final = frozenset({"args", "annotations"})
"""Fields of a spec in which every text may be a secret; keys stay."""


def redacted(view: PolicyView) -> PolicyView:
    """Return a custom resource without environment variables' values, arguments, annotations of others, fields that its kind
    does not have, and the part of each message in which a value may be quoted.
    """
    kind = _KINDS.get(str(view.body.get("kind")))
    schema = schema_for_reading(kind)["properties"] if kind is not None else {}
    given = view.body.get("metadata")
    metadata: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    kept: dict[str, Any] = {key: metadata[key] for key in ("name", "uid", "finalizers") if key in metadata}
    if annotations := recorded_annotations(metadata.get("annotations") or {}, str(view.body.get("kind"))):
        kept["annotations"] = _told_apart(annotations, metadata["annotations"], view.body)
    body = {key: view.body[key] for key in ("apiVersion", "kind") if key in view.body} | {"metadata": kept}
    if "spec" in view.body:
        body["spec"] = _known(view.body["spec"], schema.get("spec", {"properties": {}}))
    if view.body.get("status"):
        body["status"] = _status(view.body["status"])
    return msgspec.structs.replace(view, body=body)


def recorded_annotations(annotations: Mapping[str, T], kind: str = "") -> dict[str, T | str]:
    """Return the annotations that are recorded; the spec that a custom resource of that kind keeps, without its secrets."""
    return {key: _KEPT[key](value, kind) if key in _KEPT and isinstance(value, str) else value
            for key, value in annotations.items() if key.startswith(RECORDED)}


def _kept_spec(text: str, kind: str) -> str:
    """Return the annotation that keeps a spec as it would be if the spec were without secrets."""
    try:
        spec = msgspec.json.decode(text, type=dict[str, Any])
        schema = schema_for_reading(_KINDS[kind])["properties"]["spec"]
        return spec_to_keep({"spec": _known(spec, schema)}) or LEFT_OUT
    except (msgspec.MsgspecError, KeyError, RecursionError, ValueError):
        return LEFT_OUT if text else text


def _kept_rollout(text: str, kind: str) -> str:
    """Return the annotation that keeps a RolloutPolicy as it would be if that were without secrets."""
    try:
        kept = msgspec.json.decode(text, type=dict[str, Any])
        spec = _known(kept["spec"], schema_for_reading(RolloutPolicy)["properties"]["spec"])
        return msgspec.json.encode({**kept, "spec": spec}).decode()
    except (msgspec.MsgspecError, KeyError, RecursionError, ValueError):
        return LEFT_OUT if text else text


_KEPT: Final = {names.VALID_SPEC: _kept_spec, names.VALID_ROLLOUT_POLICY: _kept_rollout}


def _told_apart(annotations: dict[str, str], given: Mapping[str, str], body: Mapping[str, Any]) -> dict[str, str]:
    """Return annotations whose kept spec differs from the spec where it did, be it in secrets alone."""
    text = annotations.get(names.VALID_SPEC)
    if not text or given[names.VALID_SPEC] == spec_to_keep(body):
        return annotations
    return {**annotations, names.VALID_SPEC: f"{text} "}


def _known(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return what a schema knows of a value, without what may be secret; what it does not know could be anything."""
    properties = schema.get("properties")
    if isinstance(value, list | tuple):
        return [_known(item, schema["items"]) for item in value] if "items" in schema else _blank(value)
    if not isinstance(value, Mapping):
        return _blank(value) if "items" in schema or "additionalProperties" in schema or properties is not None else value
    if properties is None:
        others = schema.get("additionalProperties")
        return {key: _known(item, others) for key, item in value.items()} if others else _blank(value)
    return {key: _field(key, item, properties[key]) for key, item in value.items() if key in properties}


def _field(key: str, value: Any, schema: Mapping[str, Any]) -> Any:
    if key in _TEXTS:
        return _blank(value)
    if key == "env":
        return [{name: text if name == "name" else _blank(text) for name, text in item.items()} if isinstance(item, Mapping)
                else LEFT_OUT for item in value] if isinstance(value, list | tuple) else _blank(value)
    return _known(value, schema)


def _blank(value: Any) -> Any:
    """Return a value with something else for every text and number in it; what is empty stays so."""
    if isinstance(value, Mapping):
        return {key: _blank(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_blank(item) for item in value]
    return LEFT_OUT if value not in ("", None) else value


def _status(status: Any) -> Any:
    """Return a status: which state and conditions, and of messages what comes before a quoted value."""
    if not isinstance(status, Mapping):
        return {}
    conditions = [{key: _head(text) if key == "message" else text for key, text in one.items()}
                  for one in _listed(status.get("conditions")) if isinstance(one, Mapping)]
    return {key: status[key] for key in ("state", "namespace") if key in status} | {"conditions": conditions}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _head(message: object) -> str:
    head, mark, rest = str(message).partition(": ")
    return f"{head}{mark}{LEFT_OUT}" if rest else head
