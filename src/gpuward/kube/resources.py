"""The resources that gpuward reads and writes, each once, and the paths at which an API server serves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from gpuward import names
from gpuward.errors import InputError


@dataclass(frozen=True, slots=True)
class GVR:
    """Name a resource type: API group, version and plural, and whether its objects live in namespaces."""

    group: str
    version: str
    plural: str
    namespaced: bool

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        """Tell whether a CRD defines it, which bears its name: groups of built-in types have no dot, or end in `k8s.io`."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, of one object, or of an object's subresource.

        An empty namespace with an empty name means all namespaces. Raises errors.InputError when the namespace does
        not fit the resource: such a path would mean something else to the server.
        """
        if namespace and not self.namespaced:
            raise InputError("namespace", namespace, f"leave it empty, {self} are not in a namespace")
        if name and self.namespaced and not namespace:
            raise InputError("namespace", namespace, f"name the namespace of {self} {name}")
        if subresource and not name:
            raise InputError("name", name, f"name the object whose {subresource} is meant")
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)


NODES: Final = GVR("", "v1", "nodes", False)
NAMESPACES: Final = GVR("", "v1", "namespaces", False)
PODS: Final = GVR("", "v1", "pods", True)
EVENTS: Final = GVR("", "v1", "events", True)
CONFIG_MAPS: Final = GVR("", "v1", "configmaps", True)
SECRETS: Final = GVR("", "v1", "secrets", True)
SERVICES: Final = GVR("", "v1", "services", True)
SERVICE_ACCOUNTS: Final = GVR("", "v1", "serviceaccounts", True)
DAEMON_SETS: Final = GVR("apps", "v1", "daemonsets", True)
DEPLOYMENTS: Final = GVR("apps", "v1", "deployments", True)
CONTROLLER_REVISIONS: Final = GVR("apps", "v1", "controllerrevisions", True)
ROLES: Final = GVR("rbac.authorization.k8s.io", "v1", "roles", True)
ROLE_BINDINGS: Final = GVR("rbac.authorization.k8s.io", "v1", "rolebindings", True)
CLUSTER_ROLES: Final = GVR("rbac.authorization.k8s.io", "v1", "clusterroles", False)
CLUSTER_ROLE_BINDINGS: Final = GVR("rbac.authorization.k8s.io", "v1", "clusterrolebindings", False)
RUNTIME_CLASSES: Final = GVR("node.k8s.io", "v1", "runtimeclasses", False)
POD_DISRUPTION_BUDGETS: Final = GVR("policy", "v1", "poddisruptionbudgets", True)
LEASES: Final = GVR("coordination.k8s.io", "v1", "leases", True)
RESOURCE_CLAIMS: Final = GVR("resource.k8s.io", "v1", "resourceclaims", True)
CUSTOM_RESOURCE_DEFINITIONS: Final = GVR("apiextensions.k8s.io", "v1", "customresourcedefinitions", False)
VALIDATING_WEBHOOKS: Final = GVR("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", False)
MUTATING_WEBHOOKS: Final = GVR("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", False)
ACCESS_REVIEWS: Final = GVR("authorization.k8s.io", "v1", "subjectaccessreviews", False)
OWN_ACCESS_REVIEWS: Final = GVR("authorization.k8s.io", "v1", "selfsubjectaccessreviews", False)
OWN_REVIEWS: Final = GVR("authentication.k8s.io", "v1", "selfsubjectreviews", False)
SERVICE_MONITORS: Final = GVR("monitoring.coreos.com", "v1", "servicemonitors", True)
PROMETHEUS_RULES: Final = GVR("monitoring.coreos.com", "v1", "prometheusrules", True)
CLUSTER_POLICIES: Final = GVR(names.NVIDIA_GROUP, names.CLUSTER_POLICY_VERSION, "clusterpolicies", False)
NVIDIA_DRIVERS: Final = GVR(names.NVIDIA_GROUP, names.NVIDIA_DRIVER_VERSION, "nvidiadrivers", False)
GPU_CLUSTERS: Final = GVR(names.NVIDIA_GROUP, "v1alpha1", "gpuclusters", False)
ROLLOUT_POLICIES: Final = GVR(names.GPUWARD_GROUP, names.ROLLOUT_POLICY_VERSION, "rolloutpolicies", False)
NODE_MAINTENANCES: Final = GVR(names.MAINTENANCE_GROUP, "v1alpha1", "nodemaintenances", True)

KINDS: Final[dict[tuple[str, str], GVR]] = {
    ("v1", "Node"): NODES,
    ("v1", "Namespace"): NAMESPACES,
    ("v1", "Pod"): PODS,
    ("v1", "Event"): EVENTS,
    ("v1", "ConfigMap"): CONFIG_MAPS,
    ("v1", "Service"): SERVICES,
    ("v1", "ServiceAccount"): SERVICE_ACCOUNTS,
    ("apps/v1", "DaemonSet"): DAEMON_SETS,
    ("apps/v1", "Deployment"): DEPLOYMENTS,
    ("apps/v1", "ControllerRevision"): CONTROLLER_REVISIONS,
    ("rbac.authorization.k8s.io/v1", "Role"): ROLES,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): ROLE_BINDINGS,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): CLUSTER_ROLES,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): CLUSTER_ROLE_BINDINGS,
    ("node.k8s.io/v1", "RuntimeClass"): RUNTIME_CLASSES,
    ("policy/v1", "PodDisruptionBudget"): POD_DISRUPTION_BUDGETS,
    ("coordination.k8s.io/v1", "Lease"): LEASES,
    ("resource.k8s.io/v1", "ResourceClaim"): RESOURCE_CLAIMS,
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): CUSTOM_RESOURCE_DEFINITIONS,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): SERVICE_MONITORS,
    ("monitoring.coreos.com/v1", "PrometheusRule"): PROMETHEUS_RULES,
    (CLUSTER_POLICIES.api_version, "ClusterPolicy"): CLUSTER_POLICIES,
    (NVIDIA_DRIVERS.api_version, "NVIDIADriver"): NVIDIA_DRIVERS,
    (ROLLOUT_POLICIES.api_version, "RolloutPolicy"): ROLLOUT_POLICIES,
    (NODE_MAINTENANCES.api_version, "NodeMaintenance"): NODE_MAINTENANCES,
}
"""From an object's apiVersion and kind to its resource, for objects that are rendered whole."""
