"""Rules of single kinds that an operator can break: events, leases, budgets, update strategies.

Facts from Kubernetes' validation packages (v1.34).
"""

from __future__ import annotations

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
_LONGEST: Final = {"reason": 128, "action": 128, "reportingInstance": 128, "message": 1024}


def check(resource_key: str, obj: Object) -> Iterator[Cause]:
    """Yield what is wrong with an object by the rules of its own kind."""
    rule = _RULES.get(resource_key)
    if rule is not None:
        yield from rule(obj)
    if resource_key in _STRATEGIES:
        yield from _strategy(resource_key, obj)


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
        yield ("FieldValueInvalid", f"spec.{name}.rollingUpdate.maxUnavailable",
               "Invalid value: 0: may not be 0 when `maxSurge` is 0")


_RULES: Final[dict[str, Callable[[Object], Iterator[Cause]]]] = {
    "events": _event, "leases.coordination.k8s.io": _lease, "poddisruptionbudgets.policy": _budget,
}
