"""OpenAPI documents: which kinds there are and that their fields are validated by the server.

The built-in types come with their fields and without descriptions, custom resources with their schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubesandbox import kubetypes, openapi_types
from kubesandbox.discovery import GIT_VERSION

if TYPE_CHECKING:
    from kubesandbox.catalog import Catalog
    from kubesandbox.crds import Definitions
    from kubesandbox.resources import Resource

Object = dict[str, Any]


PROTO: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""What kubectl asks for of /openapi/v2, with which it judges a List. A document without any kinds is no bytes at all in it."""
_OPEN: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


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
    paths: Object = {}
    for served in catalog.all():
        resource = served.resource
        if _address(resource.group, resource.version) != "/".join(steps):
            continue
        versions = definitions.versions.get(served.storage_key, {})
        known = versions.get(resource.version)
        built_in = None if known is not None else kubetypes.type_of(resource.group, resource.kind)
        if built_in is not None:
            openapi_types.collect(built_in, schemas)
            name = openapi_types.name_of(built_in)
            schemas[name]["x-kubernetes-group-version-kind"] = [_kind(resource)]
        else:
            name = ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind]).lstrip(".")
            schemas[name] = {**(known.raw_schema if known is not None else _OPEN),
                             "x-kubernetes-group-version-kind": [_kind(resource)]}
        paths.update(_patch_path(resource))
    return {"openapi": "3.0.0", "info": _info(), "paths": paths, "components": {"schemas": schemas}}


def _patch_path(resource: Resource) -> Object:
    """Return the operation by which kubectl finds out that the server validates fields and runs dry."""
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}}
                  for name in ("dryRun", "fieldManager", "fieldValidation")]
    return {f"/{_address(resource.group, resource.version)}{scope}/{resource.plural}/{{name}}": {"patch": {
        "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": _kind(resource), "parameters": parameters,
        "responses": {"200": {"description": "OK"}}}}}


def _kind(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}
