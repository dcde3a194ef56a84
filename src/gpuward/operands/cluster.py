"""The facts of the cluster, from its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.driver import POLICYS_POD_APPS, has_driver_labels, has_hosts_driver_labels
from gpuward.model.placement import placement_of
from gpuward.model.snapshot import References, Snapshot
from gpuward.model.systems import kernel_of, system_of, tag_in, tag_of
from gpuward.model.views import NodeView, PodView
from gpuward.model.workloads import Workload, Workloads, used_by_machines
from gpuward.operands.facts import ClusterFacts, NodeKernel, Runtime

RUNTIMES: Mapping[str, Runtime] = {"docker": "docker", "containerd": "containerd", "cri-o": "crio"}
"""Container runtimes by the name that the kubelet reports."""
_TELLING: Final = (names.DEPLOY_DRIVER, names.DEPLOY_VGPU_MANAGER, names.DEPLOY_OPERANDS, names.WORKLOAD_CONFIG)
"""The labels that tell which driver a node is to have."""
_NONE_HERE: Final = (None, "", "false", names.PRE_INSTALLED)
"""Values of a driver's label by which a node has none of ours. Others, as of a pause, are for a while."""


class RunningDrivers(msgspec.Struct, frozen=True):
    """Say what the drivers that run were made for. An operating system stands at the end of an image, where it is known."""

    image: str = ""
    host_image: str = ""
    """The vGPU manager's, which is replaced at once, under virtual machines too."""
    hosts_in_use: bool = False
    """Whether virtual machines have GPUs by the vGPU manager: it is for the system that it is for until they have gone."""
    runtimes: Mapping[str, str] = {}
    """The container runtime that DaemonSets were made for, by name, where they say so, or where their pods were left behind."""


_NONE, _UNKNOWN, _CONTAINERS = References(), RunningDrivers(), Workloads()


def cluster_facts(namespace: str, nodes: Iterable[NodeView], references: References = _NONE, *,
                  running: RunningDrivers = _UNKNOWN, workloads: Workloads = _CONTAINERS) -> ClusterFacts:
    """Return what rendering needs to know of a cluster with these nodes.

    Of nodes that differ the first by name decides, so that the same cluster always gives the same objects: the operating system
    of a driver is that of the first node that reports one and is to have this driver, or else of the first GPU node; the runtime
    is containerd if any GPU node has it, else the first one's. What the drivers that run were made for stays as long as any such
    node has it, or does not say what it has while another GPU node does: a node that comes or goes, or discovery that is away for
    a moment, must not replace the driver of all others.
    """
    gpu_nodes = _one_of_each(node for node in nodes if node.gpu_present)
    runtimes = [RUNTIMES[name] for node in gpu_nodes if (name := node.runtime.partition(":")[0]) in RUNTIMES]
    driven = [node for node in gpu_nodes if _is_driven(node, workloads)]
    hosts = [node for node in gpu_nodes if _is_host(node, workloads)]
    return ClusterFacts(
        namespace=namespace,
        runtime=_runtime(runtimes),
        driver_runtimes={name: kept for name, made_for in running.runtimes.items() for kept in runtimes if kept == made_for},
        os_tag=_system(driven, gpu_nodes, running.image),
        host_os_tag=_system(hosts, gpu_nodes, running.host_image, in_use=running.hosts_in_use),
        has_gpu_nodes=bool(gpu_nodes),
        has_service_monitor_crd=references.has_service_monitors,
        kernels=tuple(sorted({kernel for node in gpu_nodes if (kernel := _kernel(node))})),
        config_maps=references.config_maps,
        secrets=references.secrets,
    )


def running_drivers(snapshot: Snapshot, workloads: Workloads = _CONTAINERS, *, left: bool = False, hosts_left: bool = False,
                    made: Iterable[str] = ()) -> RunningDrivers:
    """Return what the driver DaemonSets that are there were made for: a digest does not say it, nor does an image that somebody
    else put in. Without one it is what driver pods were made for that were `left` behind: that which most of them have. So it is
    for hosts, and for the runtime of DaemonSets that are `made` and not there.
    """
    images = {ds.name: f"{ds.image}-{ds.system}" if ds.system else ds.image for ds in snapshot.daemonsets}
    runtimes = {ds.name: ds.runtime for ds in snapshot.daemonsets if ds.runtime}
    image, host_image = images.get(names.DRIVER_APP, ""), images.get(names.VGPU_MANAGER_APP, "")
    if left:
        image = image or _most_common(
            snapshot, lambda pod, node: has_driver_labels(pod.labels) and _is_driven(node, workloads))
    if hosts_left:
        host_image = host_image or _most_common(
            snapshot, lambda pod, node: has_hosts_driver_labels(pod.labels) and _is_host(node, workloads))
    if gone := frozenset(made) - images.keys():
        runtimes |= _runtimes_of_left(snapshot, gone)
    in_use = bool(host_image) and used_by_machines(snapshot, names.DEPLOY_VGPU_MANAGER)
    return RunningDrivers(image, host_image, in_use, runtimes)


def _most_common(snapshot: Snapshot, where: Callable[[PodView, NodeView], bool]) -> str:
    found = [pod.driver_image for name, pods in snapshot.pods.items() if (node := snapshot.nodes.get(name)) is not None
             for pod in pods if pod.driver_image and pod.phase == "Running" and where(pod, node)]
    systems = Counter(map(tag_in, found))
    return max(found, key=lambda image: (systems[tag_in(image)], image), default="")


def _runtimes_of_left(snapshot: Snapshot, gone: Set[str]) -> dict[str, Runtime]:
    """Return the container runtime for which most pods were made of DaemonSets that are gone, by the names of these: on RHEL only
    those for containerd mount the subscription.
    """
    found: dict[str, Counter[Runtime]] = {}
    for pods in snapshot.pods.values():
        for pod in pods:
            app = names.DRIVER_APP if pod.labels.get("app") in POLICYS_POD_APPS else pod.labels.get("app", "")
            if app in gone and pod.driver_image and pod.phase == "Running" and names.DRIVER_KERNEL not in pod.placed_by:
                found.setdefault(app, Counter())["containerd" if pod.subscribed else "crio"] += 1
    return {app: max(sorted(counts), key=counts.__getitem__) for app, counts in found.items()}


def _is_driven(node: NodeView, workloads: Workloads) -> bool:
    """Tell whether a node is to have the driver for containers, or still has it."""
    label = node.labels.get(names.DEPLOY_DRIVER)
    if label or node.labels.get(names.DEPLOY_OPERANDS) == "false":
        return label not in _NONE_HERE
    return workloads.wanted(node.labels.get(names.WORKLOAD_CONFIG)) is Workload.CONTAINER


def _is_host(node: NodeView, workloads: Workloads) -> bool:
    """Tell whether a node is to have the vGPU manager, or still has it."""
    label = node.labels.get(names.DEPLOY_VGPU_MANAGER)
    if label or node.labels.get(names.DEPLOY_OPERANDS) == "false":
        return label not in _NONE_HERE
    return workloads.wanted(node.labels.get(names.WORKLOAD_CONFIG)) is Workload.VM_VGPU


def _system(nodes: Sequence[NodeView], gpu_nodes: Sequence[NodeView], image: str, *, in_use: bool = False) -> str:
    """Return the operating system of a driver for these nodes, of which those that run have this image; or else of GPU nodes."""
    nodes = nodes or gpu_nodes
    tags, told = [tag for node in nodes if (tag := os_tag(node))], [tag for node in gpu_nodes if (tag := os_tag(node))]
    stays = next((tag for tag in tags if image.endswith(f"-{tag}")), "")
    if told and (in_use or len(tags) < len(nodes)):
        stays = stays or tag_in(image)
    return stays or next(iter(tags or told), "")


def _one_of_each(nodes: Iterable[NodeView]) -> list[NodeView]:
    """Return the first node of each kind by name: most nodes of a large fleet are alike, and alike they tell the same."""
    kinds: dict[tuple[str | None, ...], NodeView] = {}
    for node in nodes:
        label = node.labels.get
        kind = (node.runtime, label(names.NFD_OS_ID), label(names.NFD_OS_VERSION), label(names.NFD_KERNEL),
                label(names.DRIVER_OS), label(names.DRIVER_KERNEL), *(label(key) for key in _TELLING))
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


def _runtime(found: Sequence[Runtime]) -> Runtime:
    return "containerd" if "containerd" in found or not found else found[0]
