"""OpenAPI documents: which groups and kinds there are, without the built-in types' fields.

Enough for kubectl's commands that do not validate on the client; custom resources come with their schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuward.sandbox.discovery import GIT_VERSION

if TYPE_CHECKING:
    from gpuward.sandbox.catalog import Catalog
    from gpuward.sandbox.crds import Definitions

Object = dict[str, Any]


def find(path: str, catalog: Catalog, definitions: Definitions) -> Object | None:
    """Return the OpenAPI document at a path, or None."""
    steps = [step for step in path.split("/") if step]
    if steps == ["openapi", "v2"]:
        return {"swagger": "2.0", "info": _info(), "paths": {}, "definitions": {}}
    if steps == ["openapi", "v3"]:
        addresses = dict.fromkeys(_address(served.resource.group, served.resource.version) for served in catalog.all())
        return {"paths": {address: {"serverRelativeURL": f"/openapi/v3/{address}?hash=0"} for address in addresses}}
    if steps[:2] == ["openapi", "v3"]:
        return _group(steps[2:], catalog, definitions)
    return None


def _info() -> Object:
    return {"title": "Kubernetes", "version": GIT_VERSION}


def _address(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _group(steps: list[str], catalog: Catalog, definitions: Definitions) -> Object:
    schemas: Object = {}
    for served in catalog.all():
        resource = served.resource
        if _address(resource.group, resource.version) != "/".join(steps):
            continue
        versions = definitions.versions.get(served.storage_key, {})
        known = versions.get(resource.version)
        body = dict(known.raw_schema) if known is not None else {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        body["x-kubernetes-group-version-kind"] = [
            {"group": resource.group, "version": resource.version, "kind": resource.kind}]
        name = ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind]).lstrip(".")
        schemas[name] = body
    return {"openapi": "3.0.0", "info": _info(), "paths": {}, "components": {"schemas": schemas}}
