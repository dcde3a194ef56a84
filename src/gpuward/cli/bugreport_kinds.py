"""What a bug report has of a cluster: never Secrets, nor ConfigMaps, into which people put the same."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpuward.kube import resources
from gpuward.kube.resources import GVR


class Wanted(NamedTuple):
    """Name a kind whose objects are in the report."""

    file: str
    kind: str
    resource: GVR
    namespace: str = ""
    """Only those in it; empty for all, or for those in the operator's namespace."""
    fields: str = ""


CLUSTER: Final = (
    Wanted("clusterpolicies", "ClusterPolicy", resources.CLUSTER_POLICIES),
    Wanted("nvidiadrivers", "NVIDIADriver", resources.NVIDIA_DRIVERS),
    Wanted("rolloutpolicies", "RolloutPolicy", resources.ROLLOUT_POLICIES),
    Wanted("nodes", "Node", resources.NODES),
    Wanted("node-events", "Event", resources.EVENTS, "default", "involvedObject.kind=Node"),
    Wanted("poddisruptionbudgets", "PodDisruptionBudget", resources.POD_DISRUPTION_BUDGETS),
    Wanted("runtimeclasses", "RuntimeClass", resources.RUNTIME_CLASSES),
    Wanted("resourceclaims", "ResourceClaim", resources.RESOURCE_CLAIMS),
    # What NVIDIA's must-gather script has where it is there.
    Wanted("clusterversions", "ClusterVersion", GVR("config.openshift.io", "v1", "clusterversions", False)),
    Wanted("machines", "Machine", GVR("machine.openshift.io", "v1beta1", "machines", True)),
    Wanted("hyperconvergeds", "HyperConverged", GVR("hco.kubevirt.io", "v1beta1", "hyperconvergeds", True)),
    Wanted("kubevirts", "KubeVirt", GVR("kubevirt.io", "v1", "kubevirts", True)),
)
IN_NAMESPACE: Final = (
    Wanted("pods", "Pod", resources.PODS),
    Wanted("daemonsets", "DaemonSet", resources.DAEMON_SETS),
    Wanted("controllerrevisions", "ControllerRevision", resources.CONTROLLER_REVISIONS),
    Wanted("deployments", "Deployment", resources.DEPLOYMENTS),
    Wanted("replicasets", "ReplicaSet", GVR("apps", "v1", "replicasets", True)),
    Wanted("events", "Event", resources.EVENTS),
    Wanted("leases", "Lease", resources.LEASES),
    Wanted("services", "Service", resources.SERVICES),
    Wanted("serviceaccounts", "ServiceAccount", resources.SERVICE_ACCOUNTS),
)
OPTIONAL: Final = frozenset({
    "nvidiadrivers.nvidia.com", "rolloutpolicies.gpuward.io", "resourceclaims.resource.k8s.io",
    "clusterversions.config.openshift.io", "machines.machine.openshift.io",
    "hyperconvergeds.hco.kubevirt.io", "kubevirts.kubevirt.io",
})
"""Kinds that many clusters do without."""
