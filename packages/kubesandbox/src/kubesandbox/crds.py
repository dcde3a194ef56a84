"""CustomResourceDefinitions: creating one makes its resource available, deleting one takes it and its objects away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import kubetypes, openapi_rules, preconditions, structural, validation
from kubesandbox.resources import Resource
from kubesandbox.store import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubesandbox.store import Event, Store

Object = dict[str, Any]

CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"


class Structural:
    """Be the `Schema` of one version of a custom resource."""

    def __init__(self, resource: Resource, schema: Mapping[str, Any]) -> None:
        self.resource = resource
        self.schema = dict(schema)

    def decode(self, obj: Object, unknown: list[str]) -> Object:
        """Return a pruned and defaulted copy; raise `errors.BadRequest` for broken metadata."""
        reading = kubetypes.Reading()
        meta = kubetypes.decoder("meta.v1.ObjectMeta")(obj.get("metadata") or {}, ((), "metadata"), reading)
        decoded: Object = structural.prune(self.schema, obj, "", unknown, root=True)
        unknown.extend(reading.unknown)
        decoded["metadata"] = meta
        structural.default(self.schema, decoded)
        return decoded

    def begin(self, obj: Object) -> None:
        """Drop the status of an object that is about to be created when statuses have their own endpoint."""
        if "status" in self.resource.subresources:
            obj.pop("status", None)

    def renew(self, new: Object, old: Object) -> None:
        """Leave an object that is about to replace another as it is."""
        del new, old

    def check(self, new: Object, old: Object | None, subresource: str | None) -> None:
        """Raise `errors.Invalid` for an object that breaks its schema or the rules for metadata."""
        del subresource
        content = {name: value for name, value in new.items() if name != "metadata"}
        before = {name: value for name, value in (old or {}).items() if name != "metadata"}
        known = {name: inner for name, inner in (self.schema.get("properties") or {}).items() if name != "metadata"}
        causes = [*validation.metadata(self.resource, new)]
        extra = (before,) if old is not None else ()
        causes.extend(openapi_rules.violations({**self.schema, "properties": known}, content, "", *extra))
        if causes:
            raise preconditions.invalid(self.resource, new["metadata"]["name"], causes)


@dataclass(frozen=True, slots=True)
class Version:
    """Describe one served version of a custom resource."""

    resource: Resource
    schema: Structural
    columns: tuple[Object, ...]
    raw_schema: Mapping[str, Any]


class Definitions:
    """Keep a store's resource types in step with its CustomResourceDefinitions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.versions: dict[str, dict[str, Version]] = {}
        """The served versions of each custom resource, by resource key and version name."""
        store.subscribe(self._on_definition, CRDS)
        store.subscribe(self._on_any)
        for definition in store.list(CRDS):
            self._establish(definition)

    def _on_definition(self, event: Event) -> None:
        if event.type == "DELETED":
            key = event.obj["metadata"]["name"]
            self.versions.pop(key, None)
            self._store.unregister(key)
        elif event.obj["metadata"].get("deletionTimestamp"):
            self._empty(event.obj)
        elif event.old is None or event.old.get("spec") != event.obj.get("spec"):
            self._establish(event.obj)

    def _on_any(self, event: Event) -> None:
        if event.type != "DELETED" or event.resource_key not in self.versions:
            return
        definition = self._store.find(CRDS, None, event.resource_key)
        if definition is not None and definition["metadata"].get("deletionTimestamp"):
            self._release(definition)

    def _establish(self, definition: Object) -> None:
        versions = {version["name"]: make_version(definition["spec"], version)
                    for version in definition["spec"]["versions"] if version.get("served")}
        stored = next(version["name"] for version in definition["spec"]["versions"] if version.get("storage"))
        main = versions.get(stored) or make_version(definition["spec"], next(
            version for version in definition["spec"]["versions"] if version["name"] == stored))
        self.versions[main.resource.key] = versions
        self._store.register(main.resource, main.schema)
        name = definition["metadata"]["name"]
        if CLEANUP not in (definition["metadata"].get("finalizers") or ()):
            self._store.modify(CRDS, None, name, lambda crd: crd["metadata"].setdefault("finalizers", []).append(CLEANUP))
        now = timestamp(self._store.now())
        self._store.patch_status(CRDS, None, name, lambda crd: crd.update(status=_status(crd, stored, now)))

    def _empty(self, definition: Object) -> None:
        key = definition["metadata"]["name"]
        for obj in self._store.list(key) if key in self.versions else ():
            if not obj["metadata"].get("deletionTimestamp"):
                self._store.delete(key, obj["metadata"].get("namespace"), obj["metadata"]["name"])
        self._release(definition)

    def _release(self, definition: Object) -> None:
        key = definition["metadata"]["name"]
        if key in self.versions and self._store.list(key):
            return
        if CLEANUP in (definition["metadata"].get("finalizers") or ()):
            self._store.modify(CRDS, None, key, lambda crd: crd["metadata"]["finalizers"].remove(CLEANUP))


def make_version(spec: Object, version: Object) -> Version:
    """Return one version of a CustomResourceDefinition's spec as the resource that it defines."""
    names = spec["names"]
    resource = Resource(
        group=spec["group"], version=version["name"], plural=names["plural"], kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced", singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()), categories=tuple(names.get("categories") or ()),
        subresources=frozenset(version.get("subresources") or ()), counts_generation=True, unconditional_update=False,
        custom=True)
    raw = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return Version(resource, Structural(resource, raw), tuple(version.get("additionalPrinterColumns") or ()), raw)


def _status(crd: Object, stored: str, now: str) -> Object:
    status = crd.get("status") or {}
    since = {condition["type"]: condition["lastTransitionTime"] for condition in status.get("conditions") or ()}
    told = (("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"))
    conditions = [{"type": kind, "status": "True", "reason": reason, "message": message,
                   "lastTransitionTime": since.get(kind, now)} for kind, reason, message in told]
    versions = list(dict.fromkeys([*(status.get("storedVersions") or ()), stored]))
    return {"acceptedNames": crd["spec"]["names"], "conditions": conditions, "storedVersions": versions}
