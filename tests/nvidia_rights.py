"""The rights that the roles of NVIDIA's chart give its operator: facts about v26.7.0, by resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuward import names

_READ: Final = "get list watch"
_ALL: Final = f"{_READ} create update patch delete"
EVERYWHERE: Final[Mapping[str, str]] = {
    "clusterversions.config.openshift.io": _READ,
    "proxies.config.openshift.io": _READ,
    "imagestreams.image.openshift.io": _READ,
    "securitycontextconstraints.security.openshift.io": f"{_ALL} use",
    "clusterroles.rbac.authorization.k8s.io": _ALL,
    "clusterrolebindings.rbac.authorization.k8s.io": _ALL,
    "nodes": f"{_READ} update patch",
    "namespaces": f"{_READ} update patch",
    "events": f"{_READ} create delete",
    "events.events.k8s.io": "create patch",
    "pods": f"{_READ} patch",
    "pods/eviction": "create",
    "daemonsets.apps": _READ,
    "clusterpolicies.nvidia.com": f"{_ALL} deletecollection",
    "clusterpolicies/finalizers.nvidia.com": f"{_ALL} deletecollection",
    "clusterpolicies/status.nvidia.com": f"{_ALL} deletecollection",
    "gpuclusters.nvidia.com": f"{_ALL} deletecollection",
    "gpuclusters/finalizers.nvidia.com": f"{_ALL} deletecollection",
    "gpuclusters/status.nvidia.com": f"{_ALL} deletecollection",
    "nvidiadrivers.nvidia.com": f"{_ALL} deletecollection",
    "nvidiadrivers/finalizers.nvidia.com": f"{_ALL} deletecollection",
    "nvidiadrivers/status.nvidia.com": f"{_ALL} deletecollection",
    "priorityclasses.scheduling.k8s.io": f"{_READ} create",
    "runtimeclasses.node.k8s.io": f"{_READ} create update delete",
    "customresourcedefinitions.apiextensions.k8s.io": f"{_READ} create update patch",
    "computedomains.resource.nvidia.com": f"{_READ} update patch",
    "computedomains/status.resource.nvidia.com": f"{_READ} update patch",
    "computedomaincliques.resource.nvidia.com": f"{_READ} create update patch",
    "leases.coordination.k8s.io": "get create update",
    "resourceclaims.resource.k8s.io": _READ,
    "resourceclaimtemplates.resource.k8s.io": f"{_READ} create update delete",
    "deviceclasses.resource.k8s.io": f"{_READ} create update delete",
    "resourceslices.resource.k8s.io": f"{_READ} create update delete",
    "validatingadmissionpolicies.admissionregistration.k8s.io": f"{_READ} create update delete",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": f"{_READ} create update delete",
}
IN_ITS_NAMESPACE: Final[Mapping[str, str]] = {
    "roles.rbac.authorization.k8s.io": _ALL,
    "rolebindings.rbac.authorization.k8s.io": _ALL,
    "controllerrevisions.apps": _READ,
    "daemonsets.apps": _ALL,
    "deployments.apps": _ALL,
    "configmaps": _ALL,
    "endpoints": _ALL,
    "pods": _ALL,
    "pods/eviction": _ALL,
    "secrets": _ALL,
    "services": _ALL,
    "services/finalizers": _ALL,
    "serviceaccounts": _ALL,
    "leases.coordination.k8s.io": _ALL,
    "servicemonitors.monitoring.coreos.com": f"{_READ} create update delete",
    "prometheusrules.monitoring.coreos.com": f"{_READ} create update delete",
    "nodefeatures.nfd.k8s-sigs.io": f"{_READ} create update",
}


def rules(verbs: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rules of a role."""
    return [{"apiGroups": [group], "resources": [resource], "verbs": each.split()}
            for name, each in verbs.items() for resource, _, group in [name.partition(".")]]


def roles() -> list[dict[str, Any]]:
    """Return the roles of an operator, under the names that both charts give them."""
    named = {"name": names.OPERATOR_NAME}
    return [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": named, "rules": rules(EVERYWHERE)},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
         "metadata": named | {"namespace": names.DEFAULT_NAMESPACE}, "rules": rules(IN_ITS_NAMESPACE)},
    ]
