"""Drivers precompiled for a kernel: one DaemonSet for each kernel that GPU nodes run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from gpuward import names
from gpuward.errors import NotDiscovered, PolicyError
from gpuward.labels.discovery import NOT_DISCOVERED, how_to_label
from gpuward.model.actions import Action, DeleteObject, DeletePod, ReleasePod
from gpuward.model.driver import is_driver_pod
from gpuward.model.orphans import is_hosts_orphan
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, PodView
from gpuward.operands import images
from gpuward.operands.driver.digest import fnv1a, name_part
from gpuward.operands.facts import Context, NodeKernel
from gpuward.operands.objects import Json
from gpuward.operands.state import OperandState

_ARCHITECTURE = re.compile(r"(x86_64|aarch64)(_64k)?")


class Variant(msgspec.Struct, frozen=True):
    """Tell one driver DaemonSet from another: by the kernel that it is for, None for one that compiles on the node."""

    image: str
    kernel: NodeKernel | None = None
    suffix: str = ""
    """What tells its name from that of another kernel which is spelled the same in a name."""

    @property
    def name(self) -> str:
        """Return the DaemonSet's name; the kernel's part of it is made fit for a name."""
        if self.kernel is None:
            return names.DRIVER_APP
        return f"{names.DRIVER_APP}-{sanitized(self.kernel.version)}-{name_part(self.kernel.os)}{self.suffix}"

    @property
    def label(self) -> str:
        """Return the value of the label `nvidia.com/precompiled`."""
        return "false" if self.kernel is None else "true"

    @property
    def node_selector(self) -> dict[str, str]:
        """Return the node labels that a pod of this DaemonSet needs beside those of every driver pod."""
        return self.selector

    @property
    def selector(self) -> dict[str, str]:
        """Return the labels of this DaemonSet's pods that those of other kernels do not have; a node is placed by the same ones.

        With NVIDIA's operator all precompiled DaemonSets select the same pods, so that orphans are adopted by any of them, and
        deleted by its controller where they are for another kernel.
        """
        return {} if self.kernel is None else {names.DRIVER_KERNEL: self.kernel.version, names.DRIVER_OS: self.kernel.os}


def sanitized(kernel: str) -> str:
    """Return a kernel version as it may stand in an object's name: without the architecture, lower case, dots for underscores."""
    return _ARCHITECTURE.sub("", kernel).replace("_", ".").removesuffix(".").lower()


def variants(ctx: Context) -> tuple[Variant, ...]:
    """Return the driver DaemonSets that the policy and the nodes' kernels ask for, for each operating system that a kernel runs
    under: releases of Ubuntu share kernels.

    Raises:
        NotDiscovered: no GPU node says what it runs.
        PolicyError: there is no image.
    """
    if not ctx.facts.os_tag:
        raise NotDiscovered("spec.driver", "", f"{NOT_DISCOVERED} its operating system: {how_to_label(with_gpu=False)}")
    if not ctx.spec.driver.is_precompiled:
        reference = images.resolve("spec.driver", ctx.spec.driver, "DRIVER_IMAGE", ctx.images)
        return (Variant(images.with_os_tag(reference, ctx.facts.os_tag)),)
    _refuse_sidecars(ctx)
    if not ctx.facts.kernels:
        raise NotDiscovered("spec.driver.usePrecompiled", True,
                            f"{NOT_DISCOVERED} its kernel: {how_to_label(with_gpu=False)}")
    return _named_apart(Variant(_precompiled_image(ctx, kernel), kernel) for kernel in sorted(ctx.facts.kernels))


def _named_apart(found: Iterable[Variant]) -> tuple[Variant, ...]:
    """Give kernels that differ in their architecture alone, or in case, a DaemonSet each. x86 keeps the name that NVIDIA's
    operator gives both.
    """
    named: dict[str, Variant] = {}
    for variant in sorted(found, key=lambda each: each.kernel is not None and not each.kernel.version.endswith("x86_64")):
        own = variant
        if variant.name in named and variant.kernel is not None:
            own = msgspec.structs.replace(variant, suffix=f"-{fnv1a(variant.kernel.version + variant.kernel.os)}")
        named[own.name] = own
    return tuple(named.values())


def _refuse_sidecars(ctx: Context) -> None:
    for field, sidecar in (("spec.gds.enabled", ctx.spec.gds), ("spec.gdrcopy.enabled", ctx.spec.gdrcopy)):
        if sidecar.is_enabled:
            raise PolicyError(field, True, "set false, or spec.driver.usePrecompiled false: it needs the driver's sources")


def _precompiled_image(ctx: Context, kernel: NodeKernel) -> str:
    """Return the image for a kernel, with that kernel's own operating system and not some other node's."""
    driver = ctx.spec.driver
    if "sha256:" in f"{driver.image}:{driver.version}":
        raise PolicyError("spec.driver.version", driver.version or driver.image,
                          "name a driver branch such as 580: a digest is the image of one kernel only")
    reference = images.resolve("spec.driver", driver, "", {})
    return images.with_os_tag(f"{reference}-{kernel.version}", kernel.os_tag)


def is_left_behind(ds: DaemonSetView, namespace: str) -> bool:
    """Tell whether a driver DaemonSet was made by a ClusterPolicy that is gone, as after `kubectl delete --cascade=orphan`, or
    that is being deleted; given that the one in force does not own it.
    """
    made = ds.name.startswith(names.DRIVER_APP) and names.PRECOMPILED in ds.labels and ds.labels.get("app") == names.DRIVER_APP
    return made and ds.namespace == namespace and (ds.owner is None or ds.owner.kind == "ClusterPolicy")


def left_daemon_sets(existing: Iterable[DaemonSetView]) -> tuple[DaemonSetView, ...]:
    """Return the driver DaemonSets of a ClusterPolicy that leaves drivers to NVIDIADrivers now; their pods are to run on."""
    return tuple(sorted((each for each in existing if each.name.startswith(names.DRIVER_APP)), key=lambda each: each.name))


def stale_driver_daemon_sets(state: OperandState, existing: Iterable[DaemonSetView]) -> tuple[DaemonSetView, ...]:
    """Return the driver DaemonSets that must go because the policy now makes others.

    `state` is the rendered `state-driver`, `existing` the DaemonSets that the ClusterPolicy owns, or an earlier one left behind.
    A precompiled driver whose kernel no node reports any more goes only when no node wants it and none runs it against its will.
    """
    if not state.enabled or state.error is not None:
        return ()
    wanted = {obj["metadata"]["name"]: obj for obj in state.objects if obj["kind"] == "DaemonSet"}
    if not wanted:
        return ()
    kinds = {obj["metadata"]["labels"][names.PRECOMPILED] for obj in wanted.values()}
    stale = []
    for daemon_set in sorted(existing, key=lambda each: each.name):
        kind = daemon_set.labels.get(names.PRECOMPILED)
        if kind is None or daemon_set.name in wanted or not daemon_set.name.startswith(names.DRIVER_APP):
            continue
        if kind not in kinds or not (daemon_set.desired or daemon_set.misscheduled):
            stale.append(daemon_set)
    return tuple(stale)


def removal(ds: DaemonSetView, owned: Iterable[DaemonSetView], snapshot: Snapshot, why: str,
            coming: Iterable[Json] = ()) -> list[Action]:
    """Return how a driver DaemonSet goes whose pods run on; `coming` are those that are wanted, made already or not.

    Those of NVIDIA's operator for several kernels select each other's pods: an orphan of one is adopted by another, whose
    controller deletes it where it is for another kernel. And it lets `daemonsets.labels` change the label by which a driver pod
    keeps others off its node. Where one of that kind stays a moment longer, or a pod has another such label, pods are made such
    that none takes them, nor comes beside them, before their DaemonSet goes; it then has none but those that wait for a node,
    which go with it. Else none goes with it, since the DaemonSet may just be adopting pods that are not seen as its own yet.
    """
    others = [(each.selector, each.node_selector) for each in owned if each.uid != ds.uid and not each.deleting]
    others += [(body["spec"]["selector"]["matchLabels"], body["spec"]["template"]["spec"].get("nodeSelector", {}))
               for body in coming if body["metadata"]["name"] != ds.name]
    pods = [pod for name in snapshot.nodes for pod in snapshot.pods.get(name, ())
            if pod.is_owned_by(ds.uid) and not pod.deleting]
    everywhere = (pod for found in snapshot.pods.values() for pod in found)
    begun = any(pod.labels.get("app") == names.LEFT_DRIVER_APP for pod in everywhere)
    if not pods and (begun or not ds.available):
        return [DeleteObject("DaemonSet", ds.ref, orphan=not begun, if_empty=True, why=why)]
    if begun or any(_is_taken(pod, others, snapshot) or not _keeps_others_off(pod) for pod in pods):
        return [ReleasePod(pod.ref, pod.node, ds.uid, why=why) for pod in pods]
    return [DeleteObject("DaemonSet", ds.ref, orphan=True, why=why)]


def _keeps_others_off(pod: PodView) -> bool:
    return pod.labels.get(names.COMPONENT_LABEL) == names.DRIVER_COMPONENT


def homeless(snapshot: Snapshot) -> list[Action]:
    """Delete driver pods without a node that a DaemonSet left behind, those of hosts among them: placed later they would be a
    second driver on a node.
    """
    space = snapshot.namespace
    return [DeletePod(pod.ref, "", why="its DaemonSet is gone, and it has no node yet", unplaced=True)
            for pod in snapshot.pods.get("", ()) if pod.orphan and not pod.deleting
            and (is_driver_pod(pod, space) or is_hosts_orphan(pod, space))]


def _is_taken(
    orphan: PodView, others: Iterable[tuple[Mapping[str, str], Mapping[str, str]]], snapshot: Snapshot
) -> bool:
    """Tell whether a pod would be adopted by a DaemonSet that does not want it on its node."""
    labels = snapshot.nodes[orphan.node].labels
    return any(selector and selector.items() <= orphan.labels.items() and not nodes.items() <= labels.items()
               for selector, nodes in others)
