"""The validation of pod specs and of the templates of pods, as far as operators, charts and their users break it.

Facts from Kubernetes' core validation (v1.36), in its words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import quantities

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]
Cause = tuple[str, str, str]
"""Reason, field, message."""

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')")
_NATIVE: Final = re.compile(r"(cpu|memory|ephemeral-storage|hugepages-.+|[^/]*|.*kubernetes\.io/.*)")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")


def check(spec: Object, at: str) -> Iterator[Cause]:
    """Yield what is wrong with a pod's spec that stands at a field."""
    if not spec.get("containers"):
        yield "FieldValueRequired", f"{at}.containers", "Required value"
    yield from _volumes(spec.get("volumes") or (), f"{at}.volumes")
    yield from _tolerations(spec.get("tolerations") or (), f"{at}.tolerations")
    yield from _affinity(spec, at)
    names: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for field in ("initContainers", "containers"):
        for place, container in enumerate(spec.get(field) or ()):
            here = f"{at}.{field}[{place}]"
            yield from _container(container, here, names, volumes)
            names.add(container.get("name", ""))
            if spec.get("hostNetwork"):
                yield from _host_ports(container, here)


def _container(container: Object, here: str, names: set[str], volumes: set[Any]) -> Iterator[Cause]:
    name = container.get("name")
    for needed in ("name", "image"):
        if not container.get(needed):
            yield "FieldValueRequired", f"{here}.{needed}", "Required value"
    if name and not DNS_LABEL.fullmatch(name):
        yield "FieldValueInvalid", f"{here}.name", f'Invalid value: "{name}": {_DNS_RULE}'
    if name in names:
        yield "FieldValueDuplicate", f"{here}.name", f'Duplicate value: "{name}"'
    for number, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield "FieldValueRequired", f"{here}.env[{number}].name", "Required value"
    yield from _mounts(container, here, volumes)
    yield from _resources(container.get("resources") or {}, f"{here}.resources")
    yield from _probes(container, here)
    context = container.get("securityContext") or {}
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        yield ("FieldValueInvalid", f"{here}.securityContext",
               "Invalid value: cannot set `allowPrivilegeEscalation` to false and `privileged` to true")


def _mounts(container: Object, here: str, volumes: set[Any]) -> Iterator[Cause]:
    paths: set[str] = set()
    privileged = (container.get("securityContext") or {}).get("privileged")
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        field, path = f"{here}.volumeMounts[{number}]", mount.get("mountPath") or ""
        if mount.get("name") not in volumes:
            yield "FieldValueNotFound", f"{field}.name", f'Not found: "{mount.get("name")}"'
        if not path:
            yield "FieldValueRequired", f"{field}.mountPath", "Required value"
        elif path in paths:
            yield "FieldValueInvalid", f"{field}.mountPath", f'Invalid value: "{path}": must be unique'
        paths.add(path)
        if mount.get("mountPropagation") == "Bidirectional" and not privileged:
            yield ("FieldValueForbidden", f"{here}.volumeMounts.mountPropagation",
                   "Forbidden: Bidirectional mount propagation is available only to privileged containers")


def _resources(resources: Object, at: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            if not _NATIVE.fullmatch(name) and not float(quantities.parse(text)).is_integer():
                yield "FieldValueInvalid", f"{at}.{field}[{name}]", f'Invalid value: "{text}": must be an integer'
    for name, text in requests.items():
        if name not in limits:
            if not _NATIVE.fullmatch(name):
                yield ("FieldValueRequired", f"{at}.limits",
                       "Required value: Limit must be set for non overcommitable resources")
        elif not _NATIVE.fullmatch(name) and quantities.parse(text) != quantities.parse(limits[name]):
            yield ("FieldValueInvalid", f"{at}.requests",
                   f'Invalid value: "{text}": must be equal to {name} limit of {limits[name]}')
        elif quantities.parse(text) > quantities.parse(limits[name]):
            yield ("FieldValueInvalid", f"{at}.requests",
                   f'Invalid value: "{text}": must be less than or equal to {name} limit of {limits[name]}')


def _probes(container: Object, here: str) -> Iterator[Cause]:
    for name in _PROBES:
        probe = container.get(name)
        if probe is None:
            continue
        if not any(handler in probe for handler in _HANDLERS):
            yield "FieldValueRequired", f"{here}.{name}", "Required value: must specify a handler type"
        if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
            yield ("FieldValueInvalid", f"{here}.{name}.successThreshold",
                   f"Invalid value: {probe['successThreshold']}: must be 1")


def _host_ports(container: Object, here: str) -> Iterator[Cause]:
    for number, port in enumerate(container.get("ports") or ()):
        if port.get("hostPort") not in (None, port.get("containerPort")):
            yield ("FieldValueInvalid", f"{here}.ports[{number}].hostPort",
                   f"Invalid value: {port['hostPort']}: must match `containerPort` when `hostNetwork` is true")


def _volumes(volumes: Any, at: str) -> Iterator[Cause]:
    names: set[str] = set()
    for number, volume in enumerate(volumes):
        here, name = f"{at}[{number}]", volume.get("name") or ""
        if not name:
            yield "FieldValueRequired", f"{here}.name", "Required value"
        elif not DNS_LABEL.fullmatch(name):
            yield "FieldValueInvalid", f"{here}.name", f'Invalid value: "{name}": {_DNS_RULE}'
        elif name in names:
            yield "FieldValueDuplicate", f"{here}.name", f'Duplicate value: "{name}"'
        names.add(name)
        for extra in [source for source in volume if source != "name"][1:]:
            yield "FieldValueForbidden", f"{here}.{extra}", "Forbidden: may not specify more than 1 volume type"
        path = (volume.get("hostPath") or {}).get("path")
        if path is not None and ".." in path.split("/"):
            yield "FieldValueInvalid", f"{here}.hostPath.path", f"Invalid value: \"{path}\": must not contain '..'"


def _tolerations(tolerations: Any, at: str) -> Iterator[Cause]:
    for number, one in enumerate(tolerations):
        here, operator = f"{at}[{number}]", one.get("operator") or "Equal"
        if operator not in ("Equal", "Exists", "Gt", "Lt"):
            yield ("FieldValueNotSupported", f"{here}.operator",
                   f'Unsupported value: "{operator}": supported values: "Equal", "Exists"')
        elif operator == "Exists" and one.get("value"):
            yield ("FieldValueInvalid", f"{here}.operator",
                   f'Invalid value: "{one["value"]}": value must be empty when `operator` is \'Exists\'')
        elif operator == "Equal" and not one.get("key"):
            yield ("FieldValueInvalid", f"{here}.operator",
                   f'Invalid value: "{operator}": operator must be Exists when `key` is empty, which means "match all values and '
                   'all keys"')
        if one.get("tolerationSeconds") is not None and one.get("effect") != "NoExecute":
            yield ("FieldValueInvalid", f"{here}.effect",
                   f"Invalid value: \"{one.get('effect', '')}\": effect must be 'NoExecute' when `tolerationSeconds` is set")


def _affinity(spec: Object, at: str) -> Iterator[Cause]:
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return
    here = f"{at}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    if not required.get("nodeSelectorTerms"):
        yield "FieldValueRequired", here, "Required value: must have at least one node selector term"
    for number, term in enumerate(required.get("nodeSelectorTerms") or ()):
        for place, one in enumerate(term.get("matchExpressions") or ()):
            yield from _expression(one, f"{here}[{number}].matchExpressions[{place}]")


def _expression(one: Object, here: str) -> Iterator[Cause]:
    operator, values = one.get("operator"), one.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            yield "FieldValueRequired", f"{here}.values", "Required value: must be specified when `operator` is 'In' or 'NotIn'"
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield ("FieldValueForbidden", f"{here}.values",
                   "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield ("FieldValueRequired", f"{here}.values",
                   "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield "FieldValueInvalid", f"{here}.operator", f'Invalid value: "{operator}": not a valid selector operator'
