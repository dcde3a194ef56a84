"""Which resources the API server serves under which group and version, and what a path addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors, event_versions
from kubesandbox.resources import REGISTRY, Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubesandbox.crds import Definitions
    from kubesandbox.store import Store

Object = dict[str, Any]

NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class Served:
    """Describe a resource as one group and version serve it; it is stored under `storage_key`."""

    resource: Resource
    storage_key: str
    columns: tuple[Object, ...] | None = None
    """The printer columns of a custom resource; None for built-in ones."""
    outward: Callable[[Object], Object] | None = None
    inward: Callable[[Object], Object] | None = None

    def show(self, obj: Object) -> Object:
        """Return a stored object in this version."""
        if self.outward is not None:
            return self.outward(obj)
        if obj["apiVersion"] != self.resource.api_version:
            return {**obj, "apiVersion": self.resource.api_version}
        return obj


@dataclass(frozen=True, slots=True)
class Target:
    """Say what a path addresses."""

    served: Served
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None


_EVENTS: Final = Served(replace(REGISTRY["events"], group="events.k8s.io"), "events",
                        outward=event_versions.outward, inward=event_versions.inward)


class Catalog:
    """Find what is served; custom resources come and go with their definitions."""

    def __init__(self, store: Store, definitions: Definitions) -> None:
        self._store = store
        self._definitions = definitions
        self._fixed = {_address(served.resource): served for served in self._built_in()}

    @staticmethod
    def _built_in() -> Iterator[Served]:
        for resource in REGISTRY.values():
            yield Served(resource, resource.key)
        yield _EVENTS

    def all(self) -> list[Served]:
        """Return everything that is served, built-in resources first."""
        return [*self._fixed.values(), *self._custom()]

    def _custom(self) -> Iterator[Served]:
        for key in sorted(self._definitions.versions):
            for version in self._definitions.versions[key].values():
                yield Served(version.resource, key, version.columns)

    def find(self, group: str, version: str, plural: str) -> Served | None:
        """Return what is served at an address, or None."""
        found = self._fixed.get((group, version, plural))
        if found is None:
            custom = self._definitions.versions.get(f"{plural}.{group}", {}).get(version)
            if custom is not None:
                found = Served(custom.resource, f"{plural}.{group}", custom.columns)
        return found

    def knows(self, path: str) -> bool:
        """Tell whether a path belongs to an API group that is served, whatever the rest of it says."""
        steps = [step for step in path.split("/") if step]
        if steps[:1] == ["api"]:
            return True
        return steps[:1] == ["apis"] and (len(steps) == 1 or any(served.resource.group == steps[1] for served in self.all()))

    def target(self, path: str) -> Target:
        """Read a resource's path; raise `errors.NotFound` when nothing is served there."""
        steps = [step for step in path.split("/") if step]
        if steps[:1] == ["api"] and len(steps) > 2:
            group, version, rest = "", steps[1], steps[2:]
        elif steps[:1] == ["apis"] and len(steps) > 3:
            group, version, rest = steps[1], steps[2], steps[3:]
        else:
            raise _nothing_here()
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in NAMESPACE_SUBRESOURCES):
            namespace, rest = rest[1], rest[2:]
        served = self.find(group, version, rest[0])
        if served is None or len(rest) > 3 or (namespace is not None and not served.resource.namespaced):
            raise _nothing_here()
        subresource = rest[2] if len(rest) > 2 else None
        if subresource is not None and subresource not in (*served.resource.subresources, "finalize"):
            raise _nothing_here()
        return Target(served, namespace, rest[1] if len(rest) > 1 else None, subresource)


def _address(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


def _nothing_here() -> errors.NotFound:
    return errors.NotFound("the server could not find the requested resource")
