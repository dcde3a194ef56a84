"""The CustomResourceDefinitions of NVIDIA's API and of our own, made from the types.

For NVIDIA's the result has the schema of the CRDs that are published with gpu-operator 26.7, so either can stand for the
other in a cluster.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import yaml

from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.crd.rolloutpolicy import RolloutPolicy
from gpuward.crd.schema import schema_of, summary

if TYPE_CHECKING:
    from gpuward.crd.facts import KubeObject, Schema

Kind: TypeAlias = type[ClusterPolicy] | type[NVIDIADriver] | type[RolloutPolicy]

_STATUS_COLUMN: Final = ("Status", "string", ".status.state")
_AGE_COLUMN: Final = ("Age", "string", ".metadata.creationTimestamp")
_API_VERSION: Final = "Group and version of the API."
_KIND: Final = "Kind of the object."


class CustomResource(msgspec.Struct, frozen=True, kw_only=True):
    """Say what a CRD needs besides the type: names, and the columns of `kubectl get`."""

    type: Kind
    plural: str
    short_names: tuple[str, ...] = ()
    columns: tuple[tuple[str, str, str], ...]
    """Title, type and JSON path of each column."""

    @property
    def group(self) -> str:
        """Return the API group."""
        return self.type.api_version.partition("/")[0]

    @property
    def crd_name(self) -> str:
        """Return the name of the CRD object."""
        return f"{self.plural}.{self.group}"


CUSTOM_RESOURCES: Final = (
    CustomResource(type=ClusterPolicy, plural="clusterpolicies", columns=(_STATUS_COLUMN, _AGE_COLUMN)),
    CustomResource(
        type=NVIDIADriver, plural="nvidiadrivers", short_names=("nvd", "nvdriver", "nvdrivers"),
        columns=(_STATUS_COLUMN, ("Default", "boolean", ".spec.default"), _AGE_COLUMN),
    ),
    CustomResource(
        type=RolloutPolicy, plural="rolloutpolicies", columns=(
            _STATUS_COLUMN,
            ("Nodes", "integer", ".spec.failureBudget.nodes"),
            ("Percent", "integer", ".spec.failureBudget.percent"),
            ("Retries", "integer", ".spec.retries"),
            ("Holders", "string", ".spec.deviceHolders"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
    ),
)


def all_crds() -> list[KubeObject]:
    """Return the CustomResourceDefinitions, as JSON values of which the caller may change its own copy."""
    return [crd(resource) for resource in CUSTOM_RESOURCES]


def crd(resource: CustomResource) -> KubeObject:
    """Return the CustomResourceDefinition of one resource."""
    kind, version = resource.type.kind, resource.type.api_version.partition("/")[2]
    names: dict[str, Any] = {"kind": kind, "listKind": f"{kind}List", "plural": resource.plural}
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    names["singular"] = kind.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.crd_name},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Cluster",
            "versions": [{
                "additionalPrinterColumns": [
                    {"name": title, "type": shown_as, "jsonPath": path} for title, shown_as, path in resource.columns
                ],
                "name": version,
                "schema": {"openAPIV3Schema": object_schema(resource.type)},
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
            }],
        },
    }


def object_schema(kind: Kind) -> Schema:
    """Return the schema of the whole object: metadata is left to the API server, the rest comes from the type."""
    parts = {field.name: schema_of(field.type) for field in msgspec.structs.fields(kind) if field.name != "metadata"}
    return {
        "type": "object",
        "description": summary(kind),
        "properties": {
            "apiVersion": {"type": "string", "description": _API_VERSION},
            "kind": {"type": "string", "description": _KIND},
            "metadata": {"type": "object"},
            **parts,
        },
    }


@cache
def schema_for_reading(kind: Kind) -> Schema:
    """Return the schema of a kind, made once; it is shared, so it must not be changed."""
    return object_schema(kind)


def as_yaml(*objects: KubeObject) -> str:
    """Return objects as YAML documents, ready for `kubectl apply --server-side -f -`."""
    return "".join("---\n" + yaml.dump(item, Dumper=_PlainDumper, sort_keys=False, width=120) for item in objects)


class _PlainDumper(yaml.SafeDumper):
    """Write shared parts out in full: anchors and aliases are hard to read and to compare."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
