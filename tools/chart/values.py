"""What the chart's values may be: their names, and their JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.generate import object_schema
from gpuward.crd.rolloutpolicy import RolloutPolicy

Json = dict[str, Any]

SPEC: Json = object_schema(ClusterPolicy)["properties"]["spec"]["properties"]
ROLLOUT: Json = object_schema(RolloutPolicy)["properties"]["spec"]

TEXT: Json = {"type": "string"}
SWITCH: Json = {"type": "boolean"}
ANYTHING: Json = {"type": "object"}
NUMBER_OR_TEXT: Json = {"type": ["integer", "string"]}

RENAMED = {"driver.upgradePolicy.podDeletion": "gpuPodDeletion", "driver.repoConfig.name": "configMapName"}
"""Fields of the ClusterPolicy that NVIDIA's chart gives another name."""
NOT_A_VALUE = frozenset({"driver.useNvidiaDriverCRD"})
"""Fields of the ClusterPolicy that no value sets."""
IGNORED = frozenset({"psp", "operator.initContainer", "operator.defaultRuntime", "driver.useOpenKernelModules", "cdi.default"})
"""Values of older charts of NVIDIA's. They are accepted and change nothing, as with NVIDIA's chart."""
OPTIONAL: dict[str, Json] = {
    "nameOverride": TEXT, "fullnameOverride": TEXT, "global": ANYTHING,
    "hostPaths.kubeletRootDir": TEXT, "operator.version": TEXT, "operator.defaultGPUMode": TEXT,
    "operator.metrics": SPEC["operator"]["properties"]["metrics"], "draDriver": ANYTHING,
    "dcgmExporter.config": {"type": "object", "properties": {"create": SWITCH, "name": TEXT, "data": TEXT}},
}
"""Values that have no default, but may be set."""
OPEN = frozenset({
    "node-feature-discovery", "global", "operator.affinity", "operator.networkPolicy.metricsFrom", "extraObjects", "draDriver",
})
"""Values in which any name may stand."""
OPEN_EVERYWHERE = frozenset({"labels", "annotations", "nodeSelector", "additionalLabels"})
"""Maps whose keys are the cluster's, wherever they are and whatever their default has."""
NO_BLANKS: Json = {"type": "string", "pattern": r"^\S*$"}
ENV: Json = {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {
    "name": TEXT, "value": {}, "valueFrom": ANYTHING}}}
UNAVAILABLE: Json = {**NUMBER_OR_TEXT, "minimum": 0, "pattern": r"^$|^[0-9]+$|^(100|[1-9]?[0-9])%$"}
PULL_POLICY: Json = {"enum": ["", "Always", "IfNotPresent", "Never"]}
LIMITS: dict[str, Json] = {
    "operator.repository": NO_BLANKS, "operator.image": NO_BLANKS,
    "operator.resources": SPEC["validator"]["properties"]["resources"],
    "driver.upgradePolicy.maxUnavailable": UNAVAILABLE,
    "operator.agents": {"enum": ["nvidia", "gpuward"]},
    "operator.replicas": {"type": "integer", "minimum": 0},
    "operator.version": NUMBER_OR_TEXT,
    "operator.logging.level": {**NUMBER_OR_TEXT, "minimum": 1, "pattern": "^(|debug|info|warning|error|panic|[1-9][0-9]*)$"},
    "operator.logging.timeEncoding": {"enum": ["", "epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"]},
    "operator.imagePullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "operator.tolerations": SPEC["daemonsets"]["properties"]["tolerations"], "operator.env": ENV,
    "operator.imagePullSecrets": {"type": "array", "items": TEXT},
    "operator.recorder.sizeLimit": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([KMGT]i?|k)?$"},
    "driver.licensingConfig": {"type": "object", "properties": {"secretName": TEXT, "configMapName": TEXT, "nlsEnabled": SWITCH}},
    "daemonsets.rollingUpdate.maxUnavailable": UNAVAILABLE,
    "extraObjects": {"type": "array", "items": {"type": ["object", "string"]}},
    "rolloutPolicy": ROLLOUT,
}


def schema(defaults: Json) -> Json:
    """Return the JSON Schema of the values, of which `defaults` are the chart's own."""
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart gpuward"}
    return {**head, **_section("", defaults, SPEC)}


def names(schema_of_values: Json) -> Json:
    """Return the names that may stand in the values as a tree, of a list's items in a list; null where any name may."""
    return {name: _names_in(sub) for name, sub in sorted(schema_of_values["properties"].items())}


def _names_in(sub: Json) -> Json | list[Json] | None:
    if isinstance(sub.get("items"), dict):
        inside = _names_in(sub["items"])
        return [inside] if isinstance(inside, dict) else None
    properties = sub.get("properties")
    return {name: _names_in(one) for name, one in sorted(properties.items())} if properties else None


def _section(path: str, defaults: Json, fields: Json) -> Json:
    """Return the schema of a map of values: what has a default, what the ClusterPolicy has, and what may be there besides."""
    properties: Json = {}
    for field, sub in fields.items():
        full = _join(path, field)
        if full not in NOT_A_VALUE:
            properties[RENAMED.get(full, field)] = _plain(full, sub)
    for name, value in defaults.items():
        properties[name] = _value(_join(path, name), value, properties.get(name))
    for full, sub in OPTIONAL.items():
        parent, _, name = full.rpartition(".")
        if parent == path:
            properties[name] = _plain(full, sub)
    return {"type": "object", "properties": dict(sorted(properties.items()))}


def _value(path: str, default: Any, known: Json | None) -> Json:
    """Return the schema of one value: its limits, or what the ClusterPolicy says, or the type of its default."""
    if path in LIMITS:
        return _plain(path, LIMITS[path])
    if path in OPEN or path.rpartition(".")[2] in OPEN_EVERYWHERE:
        return ANYTHING
    if isinstance(default, dict) and (default or known is None):
        return _section(path, default, (known or {}).get("properties", {}))
    return known if known is not None else _type_of(default)


def _plain(path: str, sub: Any) -> Json:
    """Return a part of a CRD's schema as JSON Schema has it, under the names that the chart has."""
    plain = {key: value for key, value in sub.items() if not key.startswith("x-kubernetes-") and key not in ("format", "default")}
    if sub.get("x-kubernetes-int-or-string"):
        plain = {**{k: v for k, v in plain.items() if k != "anyOf"}, **NUMBER_OR_TEXT}
    if "properties" in plain:
        plain["properties"] = {
            RENAMED.get(_join(path, name), name): _plain(_join(path, name), one)
            for name, one in plain["properties"].items() if _join(path, name) not in NOT_A_VALUE
        }
        plain.pop("required", None)
    if isinstance(plain.get("items"), dict):
        needed = {"required": plain["items"]["required"]} if "required" in plain["items"] else {}
        plain["items"] = {**_plain(path, plain["items"]), **needed}
    if path.endswith(".version"):
        plain = {**plain, **NUMBER_OR_TEXT}
    if path.endswith(".imagePullPolicy"):
        plain = {**plain, **PULL_POLICY}
    return _with_empty(plain)


def _with_empty(sub: Json) -> Json:
    """Return a schema that also admits an empty text, by which NVIDIA's chart leaves a field out."""
    if sub.get("type") != "string":
        return sub
    if "enum" in sub:
        return {**sub, "enum": ["", *(value for value in sub["enum"] if value)]}
    if "pattern" in sub and not re.fullmatch(sub["pattern"], ""):
        return {**sub, "pattern": f"^$|{sub['pattern']}"}
    return sub


def _type_of(default: Any) -> Json:
    if isinstance(default, bool):
        return SWITCH
    if isinstance(default, int):
        return {"type": "integer"}
    if isinstance(default, list):
        return {"type": "array"}
    return ANYTHING if isinstance(default, dict) else TEXT


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def unknown_defaults(tree: Json, defaults: Json, path: str = "") -> Iterable[str]:
    """Yield the paths of defaults that the names do not have."""
    for name, value in defaults.items():
        if name not in tree:
            yield _join(path, name)
        elif isinstance(value, dict) and tree[name] is not None:
            yield from unknown_defaults(tree[name], value, _join(path, name))
