"""The validation of built-in objects where an operator and kubectl meet it, worded as kube-apiserver words it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import defaults, kubetypes, preconditions, strategies, validation_kinds, validation_pods

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kubesandbox.resources import Resource

Object = dict[str, Any]
Cause = tuple[str, str, str]
"""Reason, field, message."""

_LABEL: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")
_NAME_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')")
MOST_ANNOTATIONS: Final = 256 * 1024
"""Bytes that the annotations of an object may have together, keys and values."""
_DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_FREE_NAMES: Final = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})
_CONTAINERS: Final = ("containers", "initContainers")
_POD_MAY_CHANGE: Final = frozenset({"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"})
_RESTARTS: Final = ("Always", "OnFailure", "Never")
_SELECTING: Final = frozenset({"daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps"})


def check(resource: Resource, new: Object, old: Object | None) -> None:
    """Raise `errors.Invalid` with every rule that the new object breaks."""
    causes = [*metadata(resource, new), *_templates(resource, new, old), *validation_kinds.check(resource.key, new, old),
              *_changes(resource, new, old)]
    if causes:
        raise preconditions.invalid(resource, new["metadata"]["name"], causes)


def metadata(resource: Resource, obj: Object) -> Iterator[Cause]:
    """Yield what is wrong with an object's name, labels and annotations."""
    meta = obj["metadata"]
    name = meta["name"]
    form = _DNS_LABEL if resource.key == "namespaces" else _SUBDOMAIN
    if resource.plural not in _FREE_NAMES and (len(name) > 253 or not form.fullmatch(name)):
        yield "FieldValueInvalid", "metadata.name", f'Invalid value: "{name}": {_SUBDOMAIN_RULE}'
    for field in ("labels", "annotations"):
        for message in _pairs(meta.get(field), labels=field == "labels"):
            yield "FieldValueInvalid", f"metadata.{field}", message
    annotations = meta.get("annotations") or {}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MOST_ANNOTATIONS:
        yield "FieldValueTooLong", "metadata.annotations", f"Too long: may not be more than {MOST_ANNOTATIONS} bytes"
    yield from _owners(meta.get("ownerReferences") or ())
    for number, finalizer in enumerate(meta.get("finalizers") or ()):
        if "/" not in finalizer and finalizer not in _FINALIZERS and not resource.custom and resource.key != _DEFINITIONS:
            yield ("FieldValueInvalid", f"metadata.finalizers[{number}]",
                   f'Invalid value: "{finalizer}": name is neither a standard finalizer name nor is it fully qualified')


def _owners(owners: Iterable[Object]) -> Iterator[Cause]:
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                told = "version must not be empty" if field == "apiVersion" else "must not be empty"
                yield "FieldValueInvalid", f"metadata.ownerReferences.{field}", f'Invalid value: "": {told}'
    controllers = [f'{owner.get("kind")} {owner.get("name")}' for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        yield ("FieldValueInvalid", "metadata.ownerReferences",
               f"Invalid value: {controllers}: Only one reference can have Controller set to true. Found \"true\" in references "
               "for " + " and ".join(controllers[:2]))


def _pairs(found: Object | None, *, labels: bool) -> Iterator[str]:
    """Yield what is wrong with labels (or what looks for them), or with annotations, whose keys are taken in lower case."""
    for key, value in (found or {}).items():
        yield from _key(key if labels else key.lower())
        if labels:
            yield from _label_value(value)


@lru_cache(maxsize=4096)
def _key(key: str) -> tuple[str, ...]:
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        return (f'Invalid value: "{key}": prefix part {_SUBDOMAIN_RULE}',)
    if not name or not _LABEL.fullmatch(name):
        return (f'Invalid value: "{key}": {_NAME_RULE}',)
    return (f'Invalid value: "{key}": name part must be no more than 63 bytes',) if len(name) > 63 else ()


@lru_cache(maxsize=4096)
def _label_value(value: str) -> tuple[str, ...]:
    if len(value) > 63:
        return (f'Invalid value: "{value}": must be no more than 63 bytes',)
    return () if _LABEL.fullmatch(value) else (f'Invalid value: "{value}": {_LABEL_RULE}',)


def _templates(resource: Resource, obj: Object, old: Object | None) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if old is not None and old.get("spec") == spec:
        return
    if resource.key == "pods":
        yield from _pod_spec(spec, "spec")
        if (policy := spec.get("restartPolicy")) not in _RESTARTS:
            listed = ", ".join(f'"{one}"' for one in _RESTARTS)
            yield "FieldValueNotSupported", "spec.restartPolicy", f'Unsupported value: "{policy}": supported values: {listed}'
    if resource.kind == "CustomResourceDefinition":
        yield from _definition(obj)
    if resource.key in _SELECTING:
        yield from _selector(spec)
    if resource.key in _SELECTING or resource.key == "jobs.batch":
        meta, template = ((spec.get("template") or {}).get(part) or {} for part in ("metadata", "spec"))
        for field in ("labels", "annotations"):
            for message in _pairs(meta.get(field), labels=field == "labels"):
                yield "FieldValueInvalid", f"spec.template.{field}", message
        yield from _pod_spec(template, "spec.template.spec")
        policy = template.get("restartPolicy")
        if resource.key != "jobs.batch" and policy not in (None, "Always"):
            yield ("FieldValueNotSupported", "spec.template.spec.restartPolicy",
                   f'Unsupported value: "{policy}": supported values: "Always"')


def _pod_spec(spec: Object, at: str) -> Iterator[Cause]:
    yield from validation_pods.check(spec, at)
    for message in _pairs(spec.get("nodeSelector"), labels=True):
        yield "FieldValueInvalid", f"{at}.nodeSelector", message


def _selector(spec: Object) -> Iterator[Cause]:
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    expressions = (spec.get("selector") or {}).get("matchExpressions")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not wanted and not expressions:
        yield "FieldValueRequired", "spec.selector", "Required value"
    elif any(labels.get(key) != value for key, value in wanted.items()):
        yield ("FieldValueInvalid", "spec.template.metadata.labels",
               f"Invalid value: {_go_map(labels)}: `selector` does not match template `labels`")


def _definition(obj: Object) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    for field, value in (("spec.group", spec.get("group")), ("spec.names.plural", names.get("plural")),
                         ("spec.names.kind", names.get("kind"))):
        if not value:
            yield "FieldValueRequired", field, "Required value"
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield ("FieldValueNotSupported", "spec.scope",
               f'Unsupported value: "{spec.get("scope", "")}": supported values: "Cluster", "Namespaced"')
    if obj["metadata"]["name"] != f"{names.get('plural')}.{spec.get('group')}":
        yield ("FieldValueInvalid", "metadata.name",
               f'Invalid value: "{obj["metadata"]["name"]}": must be spec.names.plural+"."+spec.group')
    if sum(bool(version.get("storage")) for version in spec.get("versions") or ()) != 1:
        yield ("FieldValueInvalid", "spec.versions",
               "Invalid value: must have exactly one version marked as storage version")


def _changes(resource: Resource, new: Object, old: Object | None) -> Iterator[Cause]:
    if old is None:
        return
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if resource.key in _SELECTING and before.get("selector") != after.get("selector"):
        yield "FieldValueInvalid", "spec.selector", f"Invalid value: {_go_map(after.get('selector'))}: field is immutable"
    if resource.key == "jobs.batch" and before.get("template") != after.get("template"):
        yield "FieldValueInvalid", "spec.template", f"Invalid value: {_go_map(after.get('template'))}: field is immutable"
    if resource.key == "pods" and (field := _other_containers(before, after)):
        yield "FieldValueForbidden", f"spec.{field}", "Forbidden: pod updates may not add or remove containers"
    elif resource.key == "pods" and _frozen(before) != _frozen(after):
        yield ("FieldValueForbidden", "spec",
               "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
               "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
               "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)")
    if resource.kind in ("RoleBinding", "ClusterRoleBinding") and old.get("roleRef") != new.get("roleRef"):
        yield "FieldValueInvalid", "roleRef", f"Invalid value: {_go_map(new.get('roleRef'))}: cannot change roleRef"


def _other_containers(before: Object, after: Object) -> str:
    """Return the field by which a pod would have more or fewer containers."""
    return next((field for field in _CONTAINERS if len(before.get(field) or ()) != len(after.get(field) or ())), "")


def _frozen(spec: Object) -> Object:
    kept = {name: value for name, value in spec.items() if name not in _POD_MAY_CHANGE}
    for field in _CONTAINERS:
        if field in kept:
            kept[field] = [{**container, "image": ""} for container in kept[field]]
    return kept


def _go_map(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    inner = ", ".join(f'"{key}":"{item}"' for key, item in sorted(value.items()))
    return "map[string]string{" + inner + "}"


class BuiltIn:
    """Be the `Schema` of a built-in resource."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        name = kubetypes.type_of(resource.group, resource.kind)
        if name is None:
            raise ValueError(f"no field data for {resource.key}")
        self.type_name = name

    def decode(self, obj: Object, unknown: list[str]) -> Object:
        """Return what the API server makes of an object before it looks at what is stored."""
        reading = kubetypes.Reading()
        decoded: Object = kubetypes.decoder(self.type_name)(obj, (), reading)
        unknown.extend(reading.unknown)
        defaults.apply(self.type_name, decoded)
        return decoded

    def begin(self, obj: Object) -> None:
        """Complete an object that is about to be created, in place."""
        strategies.begin(self.resource, obj)

    def renew(self, new: Object, old: Object) -> None:
        """Complete an object that is about to replace another, in place."""
        strategies.renew(self.resource, new, old)

    def check(self, new: Object, old: Object | None, subresource: str | None) -> None:
        """Raise `errors.Invalid` for an object that breaks a rule of its type."""
        if subresource is None:
            check(self.resource, new, old)
