"""The resource types that the sandbox's API server knows from the start.

Facts from the Kubernetes API reference (v1.33): group, version, names, scope, subresources, categories, and which types
count `metadata.generation` or refuse an update without a resourceVersion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STATUS: Final = frozenset({"status"})
SCALED: Final = frozenset({"status", "scale"})


@dataclass(frozen=True, slots=True)
class Resource:
    """Describe one resource type: how it is addressed and which rules of the API server apply to it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str
    short_names: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    categories: tuple[str, ...] = ()
    counts_generation: bool = False
    """Whether a change of anything but metadata and status moves `metadata.generation`."""
    unconditional_update: bool = True
    """Whether a PUT may leave out `metadata.resourceVersion`."""
    custom: bool = False
    """Whether a CustomResourceDefinition made it."""

    @property
    def key(self) -> str:
        """Return the name by which stores and error messages know it: `pods`, `daemonsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


def _r(api: str, plural: str, kind: str, *short: str, cluster: bool = False, subs: frozenset[str] = frozenset(),
       everywhere: bool = False) -> Resource:
    group, _, version = api.rpartition("/")
    return Resource(
        group=group, version=version, plural=plural, kind=kind, namespaced=not cluster, singular=kind.lower(),
        short_names=short, subresources=subs, categories=("all",) if everywhere else (),
        counts_generation=plural in _COUNT_GENERATION, unconditional_update=plural not in _CONDITIONAL,
    )


_COUNT_GENERATION: Final = frozenset({
    "pods", "deployments", "daemonsets", "replicasets", "statefulsets", "jobs", "cronjobs", "poddisruptionbudgets",
    "customresourcedefinitions", "resourceslices", "deviceclasses", "priorityclasses",
})
_CONDITIONAL: Final = frozenset({
    "leases", "poddisruptionbudgets", "customresourcedefinitions", "runtimeclasses", "resourceslices", "storageclasses",
})

BUILT_IN: Final[tuple[Resource, ...]] = (
    _r("v1", "configmaps", "ConfigMap", "cm"),
    _r("v1", "endpoints", "Endpoints", "ep"),
    _r("v1", "events", "Event", "ev"),
    _r("v1", "limitranges", "LimitRange", "limits"),
    _r("v1", "namespaces", "Namespace", "ns", cluster=True, subs=STATUS),
    _r("v1", "nodes", "Node", "no", cluster=True, subs=STATUS),
    _r("v1", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", subs=STATUS),
    _r("v1", "persistentvolumes", "PersistentVolume", "pv", cluster=True, subs=STATUS),
    _r("v1", "pods", "Pod", "po", subs=frozenset({"status", "eviction", "log", "binding"}), everywhere=True),
    _r("v1", "resourcequotas", "ResourceQuota", "quota", subs=STATUS),
    _r("v1", "secrets", "Secret"),
    _r("v1", "serviceaccounts", "ServiceAccount", "sa"),
    _r("v1", "services", "Service", "svc", subs=STATUS, everywhere=True),
    _r("apps/v1", "controllerrevisions", "ControllerRevision"),
    _r("apps/v1", "daemonsets", "DaemonSet", "ds", subs=STATUS, everywhere=True),
    _r("apps/v1", "deployments", "Deployment", "deploy", subs=SCALED, everywhere=True),
    _r("apps/v1", "replicasets", "ReplicaSet", "rs", subs=SCALED, everywhere=True),
    _r("apps/v1", "statefulsets", "StatefulSet", "sts", subs=SCALED, everywhere=True),
    _r("batch/v1", "cronjobs", "CronJob", "cj", subs=STATUS, everywhere=True),
    _r("batch/v1", "jobs", "Job", subs=STATUS, everywhere=True),
    _r("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", subs=STATUS),
    _r("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", "pc", cluster=True),
    _r("coordination.k8s.io/v1", "leases", "Lease"),
    _r("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", cluster=True),
    _r("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", cluster=True),
    _r("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", cluster=True),
    _r("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding"),
    _r("rbac.authorization.k8s.io/v1", "roles", "Role"),
    _r("resource.k8s.io/v1", "deviceclasses", "DeviceClass", cluster=True),
    _r("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", subs=STATUS),
    _r("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    _r("resource.k8s.io/v1", "resourceslices", "ResourceSlice", cluster=True),
    _r("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", "crd", "crds", cluster=True,
       subs=STATUS),
    _r("discovery.k8s.io/v1", "endpointslices", "EndpointSlice"),
    _r("storage.k8s.io/v1", "csinodes", "CSINode", cluster=True),
    _r("storage.k8s.io/v1", "storageclasses", "StorageClass", "sc", cluster=True),
)

REGISTRY: Final[dict[str, Resource]] = {resource.key: resource for resource in BUILT_IN}
