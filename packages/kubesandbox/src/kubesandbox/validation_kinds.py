"""Rules of single kinds that an operator can break: events, leases, budgets, update strategies.

Facts from Kubernetes' validation packages (v1.34).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Object = dict[str, Any]
Cause = tuple[str, str, str]
"""Reason, field, message."""

_STRATEGIES: Final = {
    "daemonsets.apps": ("updateStrategy", ("OnDelete", "RollingUpdate")),
    "deployments.apps": ("strategy", ("Recreate", "RollingUpdate")),
}
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_LONGEST: Final = {"reason": 128, "action": 128, "reportingInstance": 128, "message": 1024}


def check(resource_key: str, obj: Object, old: Object | None = None) -> Iterator[Cause]:
    """Yield what is wrong with an object, which may be about to replace another, by the rules of its own kind."""
    if old is not None and resource_key in _IMMUTABLE:
        yield from _IMMUTABLE[resource_key](obj, old)
    rule = _RULES.get(resource_key)
    if rule is not None:
        yield from rule(obj)
    if resource_key in _STRATEGIES:
        yield from _strategy(resource_key, obj)


def _node(node: Object) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for number, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        key, effect = taint.get("key", ""), taint.get("effect", "")
        if effect not in _EFFECTS:
            listed = ", ".join(f'"{one}"' for one in _EFFECTS)
            yield ("FieldValueNotSupported", f"metadata.taints[{number}].effect",
                   f'Unsupported value: "{effect}": supported values: {listed}')
        if (key, effect) in seen:
            yield ("FieldValueDuplicate", f"metadata.taints[{number}]",
                   f'Duplicate value: "{key}:{effect}": taints must be unique by key and effect pair')
        seen.add((key, effect))


def _node_change(node: Object, old: Object) -> Iterator[Cause]:
    before = (old.get("spec") or {}).get("providerID")
    if before and (node.get("spec") or {}).get("providerID") != before:
        yield ("FieldValueForbidden", "spec.providerID",
               'Forbidden: node updates may not change providerID except from "" to valid')


def _data(obj: Object) -> Iterator[Cause]:
    for field in ("data", "binaryData"):
        for key in obj.get(field) or {}:
            if not _CONFIG_KEY.fullmatch(key):
                yield ("FieldValueInvalid", f"{field}[{key}]",
                       f"Invalid value: \"{key}\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
                       "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')")


def _data_change(obj: Object, old: Object) -> Iterator[Cause]:
    if old.get("immutable"):
        for field in ("immutable", "data", "binaryData"):
            if obj.get(field) != old.get(field):
                yield "FieldValueForbidden", field, "Forbidden: field is immutable when `immutable` is set"


def _revision_change(obj: Object, old: Object) -> Iterator[Cause]:
    if obj.get("data") != old.get("data"):
        yield "FieldValueInvalid", "data", "Invalid value: field is immutable"


def _runtime_class(obj: Object) -> Iterator[Cause]:
    if not obj.get("handler"):
        yield "FieldValueRequired", "handler", "Required value"


def _runtime_class_change(obj: Object, old: Object) -> Iterator[Cause]:
    if obj.get("handler") != old.get("handler"):
        yield "FieldValueInvalid", "handler", f'Invalid value: "{obj.get("handler")}": field is immutable'


def _event(event: Object) -> Iterator[Cause]:
    about = (event.get("involvedObject") or {}).get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    # Events about objects without namespace live in "default".
    if namespace != about and not (not about and namespace == "default"):
        yield ("FieldValueInvalid", "involvedObject.namespace",
               f'Invalid value: "{about}": does not match event.namespace')
    if not event.get("eventTime"):
        return
    for field in ("reportingComponent", "reportingInstance", "action", "reason"):
        if not event.get(field):
            yield "FieldValueRequired", field, "Required value"
    for field, limit in _LONGEST.items():
        if len(event.get(field) or "") > limit:
            yield "FieldValueInvalid", field, f"Invalid value: {event[field]!r}: can have at most {limit} characters"


def _lease(lease: Object) -> Iterator[Cause]:
    spec = lease.get("spec") or {}
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield ("FieldValueInvalid", "spec.leaseDurationSeconds",
               f"Invalid value: {spec['leaseDurationSeconds']}: must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        yield ("FieldValueInvalid", "spec.leaseTransitions",
               f"Invalid value: {spec['leaseTransitions']}: must be greater than or equal to 0")


def _budget(budget: Object) -> Iterator[Cause]:
    spec = budget.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield "FieldValueInvalid", "spec", "Invalid value: minAvailable and maxUnavailable cannot be both set"
    for field in ("minAvailable", "maxUnavailable"):
        yield from _amount(f"spec.{field}", spec.get(field))


def _amount(field: str, value: Any) -> Iterator[Cause]:
    if isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit()):
        yield ("FieldValueInvalid", field, f'Invalid value: "{value}": a valid percent string must be a numeric string followed '
               "by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")
    if isinstance(value, int) and value < 0:
        yield "FieldValueInvalid", field, f"Invalid value: {value}: must be greater than or equal to 0"


def _strategy(resource_key: str, obj: Object) -> Iterator[Cause]:
    name, allowed = _STRATEGIES[resource_key]
    strategy = (obj.get("spec") or {}).get(name) or {}
    kind = strategy.get("type")
    if kind not in allowed:
        listed = ", ".join(f'"{one}"' for one in allowed)
        yield "FieldValueNotSupported", f"spec.{name}.type", f'Unsupported value: "{kind}": supported values: {listed}'
    rolling = strategy.get("rollingUpdate") or {}
    for field in ("maxUnavailable", "maxSurge"):
        yield from _amount(f"spec.{name}.rollingUpdate.{field}", rolling.get(field))
    if rolling and all(str(rolling.get(field, 0)).rstrip("%") == "0" for field in ("maxUnavailable", "maxSurge")):
        field = f"spec.{name}.rollingUpdate.maxUnavailable"
        if resource_key == "daemonsets.apps":
            yield "FieldValueRequired", field, "Required value: cannot be 0 when maxSurge is 0"
        else:
            yield "FieldValueInvalid", field, "Invalid value: 0: may not be 0 when `maxSurge` is 0"


_IMMUTABLE: Final[dict[str, Callable[[Object, Object], Iterator[Cause]]]] = {
    "nodes": _node_change, "configmaps": _data_change, "secrets": _data_change,
    "runtimeclasses.node.k8s.io": _runtime_class_change, "controllerrevisions.apps": _revision_change,
}
_RULES: Final[dict[str, Callable[[Object], Iterator[Cause]]]] = {
    "nodes": _node, "configmaps": _data, "secrets": _data, "runtimeclasses.node.k8s.io": _runtime_class,
    "events": _event, "leases.coordination.k8s.io": _lease, "poddisruptionbudgets.policy": _budget,
}
