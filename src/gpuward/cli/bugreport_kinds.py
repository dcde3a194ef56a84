"""What a bug report has of a cluster: never Secrets, nor ConfigMaps, into which people put the same."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpuward.kube import resources
from gpuward.kube.resources import GVR


class CollectedKind(NamedTuple):
    """Name a kind whose objects are in the report."""

    file: str
    kind: str
    resource: GVR
    namespace: str = ""
    """Only those in it; empty for all, or for those in the operator's namespace."""
    fields: str = ""


CLUSTER: Final = (
    CollectedKind("clusterpolicies", "ClusterPolicy", resources.CLUSTER_POLICIES),
    CollectedKind("nvidiadrivers", "NVIDIADriver", resources.NVIDIA_DRIVERS),
    CollectedKind("rolloutpolicies", "RolloutPolicy", resources.ROLLOUT_POLICIES),
    CollectedKind("nodes", "Node", resources.NODES),
    CollectedKind("node-events", "Event", resources.EVENTS, "default", "involvedObject.kind=Node"),
    CollectedKind("poddisruptionbudgets", "PodDisruptionBudget", resources.POD_DISRUPTION_BUDGETS),
    CollectedKind("runtimeclasses", "RuntimeClass", resources.RUNTIME_CLASSES),
    CollectedKind("resourceclaims", "ResourceClaim", resources.RESOURCE_CLAIMS),
    # What NVIDIA's must-gather script has where it is there.
    CollectedKind("clusterversions", "ClusterVersion", GVR("config.openshift.io", "v1", "clusterversions", False)),
    CollectedKind("machines", "Machine", GVR("machine.openshift.io", "v1beta1", "machines", True)),
    CollectedKind("hyperconvergeds", "HyperConverged", GVR("hco.kubevirt.io", "v1beta1", "hyperconvergeds", True)),
    CollectedKind("kubevirts", "KubeVirt", GVR("kubevirt.io", "v1", "kubevirts", True)),
)
IN_NAMESPACE: Final = (
    CollectedKind("pods", "Pod", resources.PODS),
    CollectedKind("daemonsets", "DaemonSet", resources.DAEMON_SETS),
    CollectedKind("controllerrevisions", "ControllerRevision", resources.CONTROLLER_REVISIONS),
    CollectedKind("deployments", "Deployment", resources.DEPLOYMENTS),
    CollectedKind("replicasets", "ReplicaSet", GVR("apps", "v1", "replicasets", True)),
    CollectedKind("events", "Event", resources.EVENTS),
    CollectedKind("leases", "Lease", resources.LEASES),
    CollectedKind("services", "Service", resources.SERVICES),
    CollectedKind("serviceaccounts", "ServiceAccount", resources.SERVICE_ACCOUNTS),
)
OPTIONAL: Final = frozenset({
    "nvidiadrivers.nvidia.com", "rolloutpolicies.gpuward.io", "resourceclaims.resource.k8s.io",
    "clusterversions.config.openshift.io", "machines.machine.openshift.io",
    "hyperconvergeds.hco.kubevirt.io", "kubevirts.kubevirt.io",
})
"""Kinds that many clusters do without."""
