"""Builders for what a cluster starts with: nodes as node feature discovery leaves them, namespaces, Deployments.

Node labels and versions are those of real clusters: Ubuntu with its kernels, containerd, Kubernetes 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kubesandbox.errors import InputError
from kubesandbox.sim.machine import NFD_KERNEL, NFD_PREFIX

Object = dict[str, Any]

KUBERNETES: Final = "v1.36.3"
CONTAINERD: Final = "containerd://1.7.27"
NFD_OS_ID: Final = NFD_PREFIX + "system-os_release.ID"
NFD_OS_VERSION: Final = NFD_PREFIX + "system-os_release.VERSION_ID"


@dataclass(frozen=True, slots=True)
class _System:
    version: str
    kernel: str
    image: str


SYSTEMS: Final = {
    "ubuntu22.04": _System("22.04", "5.15.0-101-generic", "Ubuntu 22.04.4 LTS"),
    "ubuntu24.04": _System("24.04", "6.8.0-45-generic", "Ubuntu 24.04.1 LTS"),
}


def linux_node(name: str, os: str = "ubuntu22.04") -> Object:
    """Return a node as node feature discovery leaves it; raises InputError for an operating system that is not known here."""
    if os not in SYSTEMS:
        raise InputError("os", os, "use one of " + ", ".join(SYSTEMS))
    system = SYSTEMS[os]
    major, minor = system.version.split(".")
    resources = {"cpu": "96", "memory": "1024Gi", "pods": "250", "ephemeral-storage": "1000Gi"}
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}, "labels": {
            "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
            NFD_KERNEL: system.kernel, NFD_PREFIX + "kernel-version.major": system.kernel.split(".")[0],
            NFD_OS_ID: "ubuntu", NFD_OS_VERSION: system.version,
            NFD_OS_VERSION + ".major": major, NFD_OS_VERSION + ".minor": minor}},
        "spec": {},
        "status": {"capacity": dict(resources), "allocatable": dict(resources), "conditions": _conditions(),
                   "addresses": [{"type": "InternalIP", "address": _address(name)}, {"type": "Hostname", "address": name}],
                   "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                   "nodeInfo": {
                       "architecture": "amd64", "operatingSystem": "linux", "osImage": system.image,
                       "kernelVersion": system.kernel, "containerRuntimeVersion": CONTAINERD, "kubeletVersion": KUBERNETES,
                       "kubeProxyVersion": "", "machineID": name, "systemUUID": name, "bootID": name}}}


def namespace(name: str) -> Object:
    """Return a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
        "kubernetes.io/metadata.name": name}}, "spec": {"finalizers": ["kubernetes"]}}


def deployment(name: str, namespace_name: str, replicas: int, template: Object) -> Object:
    """Return a Deployment that selects the label `app` of its template."""
    return {"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace_name, "labels": {"app": name}},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}}


def template(app: str, image: str, resources: Object, *, policy: str = "Always",
              annotations: dict[str, str] | None = None) -> Object:
    """Return a pod template of one container, with the label `app`."""
    meta: Object = {"labels": {"app": app}}
    if annotations:
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": {
        "restartPolicy": policy, "containers": [{"name": app, "image": image, "resources": resources}]}}


def _conditions() -> list[Object]:
    healthy = (("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
               ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
               ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"))
    conditions = [{"type": kind, "status": "False", "reason": reason, "message": message}
                  for kind, reason, message in healthy]
    return [*conditions, {"type": "Ready", "status": "True", "reason": "KubeletReady",
                          "message": "kubelet is posting ready status"}]


def _address(name: str) -> str:
    """Return an address in 10.0.0.0/10 that belongs to a node's name."""
    value = 0
    for letter in name.encode():
        value = (value * 131 + letter) & 0x3FFFFF
    return f"10.{value >> 16}.{value >> 8 & 255}.{value & 255}"
