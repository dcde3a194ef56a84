"""What of a cluster is compared, field by field, and what two clusters differ in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from gpuward import names
from tools.oracle.history import Paths

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace and name."""

KINDS: Final = ("Node", "Namespace", "ConfigMap", "Service", "ServiceAccount", "DaemonSet", "Role", "RoleBinding", "ClusterRole",
                "ClusterRoleBinding", "RuntimeClass", "ServiceMonitor", "ClusterPolicy", "NVIDIADriver")
"""What gpuward writes, as a whole or in part."""
OF_THE_SERVER: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
NOT_COMPARED: Final[Paths] = (
    *(("*", ("metadata", field)) for field in OF_THE_SERVER),
    ("DaemonSet", ("status",)), ("DaemonSet", ("metadata", "annotations", "deprecated.daemonset.template.generation")),
    ("DaemonSet", ("metadata", "annotations", names.APPLIED_HASH)),
    ("Service", ("status",)), ("Service", ("spec", "clusterIP*")), ("Service", ("spec", "ports", "*", "nodePort")),
    ("Node", ("status",)), ("Namespace", ("status",)), ("Namespace", ("spec",)),
)
"""What is left out: what the API server and others write, times, and what stands for uids, as the hash of a DaemonSet."""
NO_NODES: Final = "NoNodes"
"""The reason of a condition that says that no node is managed any more. Where none ever was there is no such condition."""


def compared(objects: Iterable[Object], left_out: Paths = ()) -> dict[Key, Object]:
    """Return objects by kind, namespace and name, without what is not compared and what else is left out."""
    listed = _without_digits([obj for obj in objects if obj["kind"] in KINDS])
    uids = {obj["metadata"]["uid"]: f"{obj['kind']} {obj['metadata']['name']}" for obj in listed}
    paths = (*NOT_COMPARED, *left_out)
    whole = [kind for kind, path in paths if not path]
    return {_key(obj): _normal(obj, uids, [path for kind, path in paths if kind in ("*", obj["kind"])]) for obj in listed
            if not any(fnmatchcase(f"{obj['kind']} {obj['metadata']['name']}", each) for each in whole)}


def _without_digits(objects: list[Object]) -> list[Object]:
    """Return objects with the names of NVIDIADrivers' DaemonSets, wherever they stand, as if they were made of the NVIDIADriver's
    name instead of its uid.
    """
    text = json.dumps(objects)
    for obj in objects:
        if obj["kind"] != "DaemonSet":
            continue
        owner = obj["spec"]["template"]["spec"].get("nodeSelector", {}).get(names.DRIVER_OWNER)
        if owner is not None:
            kernel = (obj["metadata"].get("labels") or {}).get(names.PRECOMPILED_KERNEL, "")
            name = obj["metadata"]["name"]
            text = text.replace(name, "-".join(filter(None, (name.rpartition("-")[0], "of", owner, kernel))))
    found: list[Object] = json.loads(text)
    return found


def _key(obj: Object) -> Key:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _normal(obj: Object, uids: Mapping[str, str], left_out: Sequence[tuple[str, ...]]) -> Object:
    found: Object = _without(obj, left_out)
    for owner in found["metadata"].get("ownerReferences", ()):
        owner["uid"] = uids.get(owner["uid"], "of an object that is gone")
    conditions = (found.get("status") or {}).get("conditions") or []
    conditions[:] = [one for one in conditions if one.get("reason") != NO_NODES]
    for condition in conditions:
        condition.pop("lastTransitionTime", None)
        condition["observedGeneration"] = condition.get("observedGeneration") in (None, obj["metadata"].get("generation"))
    return found


def _without(value: Any, paths: Sequence[tuple[str, ...]]) -> Any:
    """Return a copy without what is at some paths; the items of a list are at `*`."""
    if isinstance(value, list):
        return [_without(item, [path[1:] for path in paths if path[0] == "*"]) for item in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _without(item, [path[1:] for path in paths if len(path) > 1 and fnmatchcase(key, path[0])])
              for key, item in value.items() if not any(len(path) == 1 and fnmatchcase(key, path[0]) for path in paths)}
    return {key: item for key, item in copied.items() if item not in ({}, None) or key not in ("annotations", "labels")}


def differences(found: Mapping[Key, Object], fresh: Mapping[Key, Object]) -> list[str]:
    """Return a line for each field in which a cluster differs from a fresh one."""
    lines = []
    for key in sorted({*found, *fresh}):
        name = " ".join(part for part in (key[0], key[2]) if part)
        if key not in fresh:
            lines.append(f"{name}: is left behind")
        elif key not in found:
            lines.append(f"{name}: is missing")
        else:
            lines += [f"{name}: {line}" for line in _fields(found[key], fresh[key], "")]
    return lines


def _fields(found: Any, fresh: Any, path: str) -> Iterator[str]:
    if isinstance(found, dict) and isinstance(fresh, dict):
        for key in sorted({*found, *fresh}):
            yield from _fields(found.get(key, _ABSENT), fresh.get(key, _ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(found, list) and isinstance(fresh, list) and len(found) == len(fresh):
        for index, (one, other) in enumerate(zip(found, fresh, strict=True)):
            yield from _fields(one, other, f"{path}[{index}]")
    elif found != fresh:
        yield f"{path} is {_short(found)}, freshly installed {_short(fresh)}"


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT: Final = _Absent()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
