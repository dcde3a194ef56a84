"""What is served: /version, /api, /apis and the resource lists, also in the aggregated form of apidiscovery.k8s.io/v2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors, reviews

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubesandbox.catalog import Catalog
    from kubesandbox.resources import Resource

Object = dict[str, Any]

MINOR: Final = "36"
GIT_VERSION: Final = "v1.36.3+kubesandbox"
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The content type by which kubectl recognises the aggregated form."""
ALL_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_ORDER: Final = ("", "apps", "batch", "events.k8s.io")
"""The groups that come first: kubectl takes the first match of a short name."""


class Discovery:
    """Describe what a catalog serves."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def find(self, path: str, accept: str) -> Object | None:
        """Return the document at a path, or None when the path is no discovery path."""
        aggregated = AGGREGATED in accept.replace(" ", "")
        steps = [step for step in path.split("/") if step]
        if steps == ["version"]:
            return version()
        if steps == ["api"]:
            if aggregated:
                return self._aggregated(core=True)
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        if steps == ["apis"]:
            if aggregated:
                return self._aggregated(core=False)
            groups = [self._group(group) for group in self._groups() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        if steps[:1] == ["api"] and len(steps) == 2:
            return self._resource_list("", steps[1])
        if steps[:1] == ["apis"] and len(steps) == 2:
            return self._group(steps[1])
        return self._resource_list(steps[1], steps[2]) if steps[:1] == ["apis"] and len(steps) == 3 else None

    def _resources(self) -> Iterator[Resource]:
        for served in self._catalog.all():
            yield served.resource
        yield from reviews.RESOURCES

    def _groups(self) -> list[str]:
        found = list(dict.fromkeys(resource.group for resource in self._resources()))
        return sorted(found, key=lambda group: (_ORDER.index(group) if group in _ORDER else len(_ORDER), group))

    def _versions(self, group: str) -> list[str]:
        found = dict.fromkeys(resource.version for resource in self._resources() if resource.group == group)
        return sorted(found, key=_priority, reverse=True)

    def _group(self, group: str) -> Object:
        versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in self._versions(group)]
        if not versions:
            raise errors.NotFound("the server could not find the requested resource")
        return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resource_list(self, group: str, version: str) -> Object:
        found = [resource for resource in self._resources() if (resource.group, resource.version) == (group, version)]
        if not found:
            raise errors.NotFound("the server could not find the requested resource")
        entries = [entry for resource in found for entry in _entries(resource)]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}" if group else version,
                "resources": entries}

    def _aggregated(self, core: bool) -> Object:
        items = []
        for group in self._groups():
            if (group == "") == core:
                versions = [{"version": version, "freshness": "Current", "resources": [
                    _aggregate(resource) for resource in self._resources()
                    if (resource.group, resource.version) == (group, version)]} for version in self._versions(group)]
                items.append({"metadata": {"name": group, "creationTimestamp": None}, "versions": versions})
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def version() -> Object:
    """Return what /version answers."""
    return {"major": "1", "minor": MINOR, "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "sandbox/kubesandbox"}


def _priority(name: str) -> tuple[int, int, int]:
    """Order versions as Kubernetes does: v2 before v1, stable before beta before alpha."""
    digits, _, rest = name.removeprefix("v").partition("beta" if "beta" in name else "alpha")
    level = 2 if "beta" not in name and "alpha" not in name else 1 if "beta" in name else 0
    return level, int(digits) if digits.isdigit() else 0, int(rest) if rest.isdigit() else 0


def _verbs(resource: Resource) -> list[str]:
    return ["create"] if resource in reviews.RESOURCES else ALL_VERBS


def _subresource(resource: Resource, name: str) -> tuple[str, list[str], str, str]:
    """Return a subresource's kind, verbs, group and version."""
    if name == "scale":
        return "Scale", ["get", "patch", "update"], "autoscaling", "v1"
    if name == "eviction":
        return "Eviction", ["create"], "policy", "v1"
    if name == "binding":
        return "Binding", ["create"], resource.group, resource.version
    verbs = ["get"] if name == "log" else ["get", "patch", "update"]
    return resource.kind, verbs, resource.group, resource.version


def _entries(resource: Resource) -> Iterator[Object]:
    entry: Object = {"name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
                     "kind": resource.kind, "verbs": _verbs(resource)}
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    for name in sorted(resource.subresources):
        kind, verbs, group, version = _subresource(resource, name)
        more = {"group": group, "version": version} if group != resource.group else {}
        yield {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced, "kind": kind,
               "verbs": verbs, **more}


def _aggregate(resource: Resource) -> Object:
    entry: Object = {
        "resource": resource.plural, "responseKind": {"group": resource.group, "version": resource.version,
                                                      "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster", "singularResource": resource.singular,
        "verbs": _verbs(resource)}
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    subs = []
    for name in sorted(resource.subresources):
        kind, verbs, group, version = _subresource(resource, name)
        subs.append({"subresource": name, "responseKind": {"group": group, "version": version, "kind": kind}, "verbs": verbs})
    if subs:
        entry["subresources"] = subs
    return entry
