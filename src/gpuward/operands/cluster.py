"""The facts of the cluster, from its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpuward import names
from gpuward.model.placement import placement_of
from gpuward.model.snapshot import Snapshot
from gpuward.model.systems import kernel_of, system_of, tag_in, tag_of
from gpuward.model.views import NodeView
from gpuward.operands.facts import ClusterFacts, NodeKernel, Runtime

RUNTIMES: Mapping[str, Runtime] = {"docker": "docker", "containerd": "containerd", "cri-o": "crio"}
"""Container runtimes by the name that the kubelet reports."""


def cluster_facts(namespace: str, nodes: Iterable[NodeView], *, driver_image: str = "", has_service_monitor_crd: bool = False,
                  config_maps: Mapping[str, tuple[str, ...]] | None = None, secrets: Iterable[str] = ()) -> ClusterFacts:
    """Return what rendering needs to know of a cluster with these nodes.

    Of nodes that differ the first by name decides, so that the same cluster always gives the same objects: the operating system
    is that of the first GPU node that reports one; the runtime is containerd if any GPU node has it, else the first one's.
    With the image of the running driver in `driver_image`, its operating system stays as long as any GPU node has it, or does not
    say what it has: a node that comes or goes, or discovery that is away for a moment, must not replace the driver of all others.
    """
    gpu_nodes = _one_of_each(node for node in nodes if node.gpu_present)
    tags = [tag for node in gpu_nodes if (tag := os_tag(node))]
    stays = next((tag for tag in tags if driver_image.endswith(f"-{tag}")), "")
    if tags and len(tags) < len(gpu_nodes):
        stays = stays or tag_in(driver_image)
    return ClusterFacts(
        namespace=namespace,
        runtime=_runtime(gpu_nodes),
        os_tag=stays or next(iter(tags), ""),
        has_gpu_nodes=bool(gpu_nodes),
        has_service_monitor_crd=has_service_monitor_crd,
        kernels=tuple(sorted({kernel for node in gpu_nodes if (kernel := _kernel(node))})),
        config_maps=dict(config_maps or {}),
        secrets=frozenset(secrets),
    )


def running_image(snapshot: Snapshot, *, left: bool) -> str:
    """Return the image of the driver DaemonSet, and at its end the operating system that this was made for: a digest does not
    say it, nor does an image that somebody else put in. Without one it is the vGPU manager's, which is replaced at once, under
    virtual machines too, or that of driver pods which were `left` behind: one with the operating system that most of them have.
    """
    images = {ds.name: f"{ds.image}-{ds.system}" if ds.system else ds.image for ds in snapshot.daemonsets}
    found = images.get(names.DRIVER_APP) or images.get(names.VGPU_MANAGER_APP, "")
    if found or not left:
        return found
    pods = [pod.driver_image for on_node in snapshot.pods.values() for pod in on_node
            if pod.driver_image and pod.phase == "Running"]
    systems = Counter(map(tag_in, pods))
    return max(pods, key=lambda image: (systems[tag_in(image)], image), default="")


def _one_of_each(nodes: Iterable[NodeView]) -> list[NodeView]:
    """Return the first node of each kind by name: most nodes of a large fleet are alike, and alike they tell the same."""
    kinds: dict[tuple[str | None, ...], NodeView] = {}
    for node in nodes:
        label = node.labels.get
        kind = (node.runtime, label(names.NFD_OS_ID), label(names.NFD_OS_VERSION), label(names.NFD_KERNEL),
                label(names.DRIVER_OS), label(names.DRIVER_KERNEL))
        if node.name <= kinds.setdefault(kind, node).name:
            kinds[kind] = node
    return sorted(kinds.values(), key=lambda node: node.name)


def os_tag(node: NodeView) -> str:
    """Return a node's operating system as driver images spell it, such as ubuntu22.04 or rhel9; empty when it is not known."""
    return tag_of(system_of(node.labels))


def _kernel(node: NodeView) -> NodeKernel | None:
    """Return what the node's precompiled driver is for, by its placement, or by discovery where it has none yet."""
    placed = placement_of(node.labels)
    version, system = placed.kernel or kernel_of(node.labels), placed.os or system_of(node.labels)
    return NodeKernel(version, system, tag_of(system)) if version and system else None


def _runtime(gpu_nodes: Sequence[NodeView]) -> Runtime:
    found = [RUNTIMES[name] for node in gpu_nodes if (name := node.runtime.partition(":")[0]) in RUNTIMES]
    return "containerd" if "containerd" in found or not found else found[0]
