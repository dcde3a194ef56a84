"""Pod Security admission: what the labels of a namespace forbid its pods, and of what they make the server warn.

Facts from kube-apiserver's admission plugin PodSecurity (v1.36), with its defaults: without labels everything is allowed, and
nobody is exempt. What `audit` finds goes to the audit log, which the sandbox does not keep.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kubesandbox import errors, preconditions
from kubesandbox.podsecurity_checks import LEVELS, violations

if TYPE_CHECKING:
    from kubesandbox.resources import Resource
    from kubesandbox.store import Store

Object = dict[str, Any]

PREFIX: Final = "pod-security.kubernetes.io/"
_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]*)")
_TEMPLATES: Final = frozenset({"daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps", "jobs.batch"})


class Standard(NamedTuple):
    """Name a level of the Pod Security Standards and its version: `latest` or `v1.x`."""

    level: str = "privileged"
    version: str = "latest"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    def broken_by(self, spec: Object) -> list[str]:
        """Return the reasons for which a pod is not allowed; none when it is."""
        return [found.reason for found in self._violations(spec)]

    def told(self, spec: Object) -> str:
        """Say what a pod breaks, as the server does; empty when nothing."""
        return ", ".join(map(str, self._violations(spec)))

    def _violations(self, spec: Object) -> list[Any]:
        if self.level == "privileged":
            return []
        return violations(self.level, None if self.version == "latest" else int(self.version[3:]), spec)


def check_pod(resource: Resource, pod: Object, store: Store) -> None:
    """Raise `errors.Forbidden` for a pod that the labels of its namespace do not allow."""
    enforced, _ = _standards(store, pod["metadata"]["namespace"])
    if told := enforced.told(pod["spec"]):
        name = pod["metadata"]["name"]
        raise errors.Forbidden(f'pods "{name}" is forbidden: violates PodSecurity "{enforced}": {told}',
                               details=preconditions.details(resource, name))


def check_namespace(resource: Resource, new: Object, old: Object | None) -> None:
    """Raise `errors.Invalid` for a namespace with labels of this admission that mean nothing."""
    causes = _wrong(new)
    if causes and (old is None or causes != _wrong(old)):
        raise preconditions.invalid(resource, new["metadata"]["name"], causes)


def warnings(store: Store, resource_key: str, new: Object, old: Object | None) -> tuple[str, ...]:
    """Return of what the server warns who creates (`old` is None) or changes an object."""
    if resource_key == "namespaces":
        return _about_pods_there(store, new, old) if old is not None else ()
    if resource_key == "pods" and old is None:
        spec = new["spec"]
    elif resource_key in _TEMPLATES:
        spec = new["spec"]["template"].get("spec") or {}
    else:
        return ()
    _, warned = _standards(store, new["metadata"].get("namespace") or "default")
    told = warned.told(spec)
    return (f'would violate PodSecurity "{warned}": {told}',) if told else ()


def _about_pods_there(store: Store, new: Object, old: Object) -> tuple[str, ...]:
    wanted, before = _of_labels(_labels(new))[0], _of_labels(_labels(old))[0]
    if wanted == before or wanted.level == "privileged" or (
            wanted.version == before.version and LEVELS.index(wanted.level) <= LEVELS.index(before.level)):
        return ()
    name = new["metadata"]["name"]
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for pod in store.list("pods", name):
        if reasons := ", ".join(wanted.broken_by(pod["spec"])):
            first.setdefault(reasons, pod["metadata"]["name"])
            counts[reasons] += 1
    if not counts:
        return ()
    others = {1: "", 2: " (and 1 other pod)"}
    told = sorted(f"{first[reasons]}{others.get(count, f' (and {count - 1} other pods)')}: {reasons}"
                  for reasons, count in counts.items())
    return (f'existing pods in namespace "{name}" violate the new PodSecurity enforce level "{wanted}"', *told)


def _standards(store: Store, namespace: str) -> tuple[Standard, Standard]:
    found = store.find("namespaces", None, namespace)
    return _of_labels(_labels(found)) if found is not None else (Standard(), Standard())


def _labels(namespace: Object) -> tuple[tuple[str, str], ...]:
    return tuple((key.removeprefix(PREFIX), value) for key, value in (namespace["metadata"].get("labels") or {}).items()
                 if key.startswith(PREFIX))


@lru_cache(maxsize=256)
def _of_labels(labels: tuple[tuple[str, str], ...]) -> tuple[Standard, Standard]:
    """Return what is enforced and of what is warned; what is enforced is warned of too, where nothing else is said."""
    said = dict(labels)
    enforced = Standard(_level(said.get("enforce", "privileged"), "restricted"), _version(said.get("enforce-version", "latest")))
    if "warn" in said:
        return enforced, Standard(_level(said["warn"], "privileged"), _version(said.get("warn-version", "latest")))
    version = _version(said["warn-version"]) if "warn-version" in said else enforced.version
    return enforced, Standard(enforced.level if said.get("enforce") in LEVELS else "privileged", version)


def _level(text: str, otherwise: str) -> str:
    return text if text in LEVELS else otherwise


def _version(text: str) -> str:
    return text if _VERSION.fullmatch(text) else "latest"


def _wrong(namespace: Object) -> list[tuple[str, str, str]]:
    said, causes = dict(_labels(namespace)), []
    for mode in ("enforce", "audit", "warn"):
        for label, fits, rule in ((mode, LEVELS.__contains__, "must be one of " + ", ".join(LEVELS)),
                                  (f"{mode}-version", _is_version, 'must be "latest" or "v1.x"')):
            if label in said and not fits(said[label]):
                told = f'Invalid value: "{said[label]}": {rule}'
                causes.append(("FieldValueInvalid", f"metadata.labels[{PREFIX}{label}]", told))
    return causes


def _is_version(text: str) -> bool:
    return text == "latest" or bool(_VERSION.fullmatch(text))
