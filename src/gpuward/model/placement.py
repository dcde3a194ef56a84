"""Where a node's driver comes from: the labels by which driver DaemonSets select their nodes, and when these may change.

What they follow from, NVIDIADrivers' selectors and discovery's labels, may change at any time, and the controller of a DaemonSet
deletes at once the pod of a node that is not selected any more. So the labels of a node change only where no driver goes by that;
elsewhere the node is to be moved, which the upgrade does once nothing uses its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpuward import names
from gpuward.model.driver import is_driver_pod, is_hosts_driver_pod, is_policys, owner_uid
from gpuward.model.driver_types import kept_owner
from gpuward.model.hosts import LeftHosts
from gpuward.model.owners import Claim, name_of, owner_of
from gpuward.model.removal import DriverKept
from gpuward.model.snapshot import Snapshot
from gpuward.model.systems import is_kernel, kernel_of, system_of, tag_in, tag_of
from gpuward.model.views import DaemonSetView, NodeView, PodView


class Placing(msgspec.Struct, frozen=True):
    """Hold what decides where drivers come from."""

    claims: tuple[Claim, ...] | None = None
    """What NVIDIADrivers say about nodes; None where drivers are the ClusterPolicy's."""
    precompiled: bool = False
    """Whether the ClusterPolicy's drivers are built for one kernel each."""
    stays: bool = False
    """Whether nodes that were placed stay where they are: while it is not known what the ClusterPolicy wants."""
    departing: frozenset[str] = frozenset()
    """NVIDIADrivers that are being deleted, or gone: nodes leave them, and their drivers go, one after the other."""

    def claim(self, name: str) -> Claim | None:
        """Return what the NVIDIADriver of a name says, if there is one."""
        return next((claim for claim in self.claims or () if claim.name == name), None)


class Placement(msgspec.Struct, frozen=True):
    """Say where a node's driver comes from; what is empty has no label."""

    owner: str = ""
    """The NVIDIADriver; empty for the ClusterPolicy, or nobody."""
    os: str = ""
    kernel: str = ""

    @property
    def labels(self) -> dict[str, str | None]:
        """Return the node's labels; None for one that it does not have."""
        said = {names.DRIVER_OWNER: self.owner, names.DRIVER_OS: self.os, names.DRIVER_KERNEL: self.kernel}
        return {key: value or None for key, value in said.items()}

    def __str__(self) -> str:
        """Return it as the record of an upgrade keeps it: no hash of a revision has a slash."""
        return f"{self.owner}/{self.os}/{self.kernel}"


def placement_of(labels: Mapping[str, str]) -> Placement:
    """Return the placement that a node's labels say."""
    return Placement(labels.get(names.DRIVER_OWNER, ""), labels.get(names.DRIVER_OS, ""), labels.get(names.DRIVER_KERNEL, ""))


def wanted_placement(
    node: str, labels: Mapping[str, str], placing: Placing, *, serves: bool = True, runs: str = "", driven: bool = False
) -> Placement:
    """Return where the driver of a GPU node should come from, whose present one `serves` it or not. What nothing says stays, and
    so does the kernel where discovery says another one than its kubelet, by which it `runs`; a node that is `driven` by a driver
    for no kernel in particular has none then.
    """
    current = placement_of(labels)
    system, kernel = system_of(labels), kernel_of(labels) or current.kernel
    contradicted = runs and (current.kernel == runs or not is_kernel(kernel, runs))
    if contradicted and (current.kernel or driven):
        kernel = current.kernel
    if placing.stays and (current.owner or current.kernel):
        return current
    if placing.claims is None:
        # A label that says another operating system for the same kernel changes no driver that works.
        stays = serves and kernel == current.kernel
        system = current.os if current.os and stays else system or current.os
        return Placement(current.owner, system, kernel) if placing.precompiled else Placement(current.owner)
    owner = kept_owner(name_of(owner_of(node, labels, placing.claims), current.owner), labels, placing.claims, placing.departing)
    claim = placing.claim(owner)
    if claim is None or not claim.valid or (owner == current.owner and not claim.able):
        return Placement(owner, current.os, current.kernel)
    return Placement(owner, tag_of(system) or current.os, kernel if claim.precompiled else "")


class Placements:
    """Hold where nodes' drivers should come from, and which DaemonSets would take pods away if labels said so."""

    def __init__(self, snapshot: Snapshot, placing: Placing | None) -> None:
        self.placing = placing
        self._namespace = snapshot.namespace
        # The pods of a DaemonSet that is being deleted go or stay whatever labels say, unless one like it is made again.
        self.selectors = {ds.uid: self._again(ds.node_selector) if ds.deleting else ds.node_selector for ds in snapshot.daemonsets
                          if ds.namespace == snapshot.namespace}
        self._going = {ds.uid for ds in snapshot.daemonsets if ds.deleting}
        self._adopting = [(ds.selector, self.selectors[ds.uid]) for ds in snapshot.daemonsets if ds.uid in self.selectors
                          and ds.selector and not ds.deleting and not ds.node_selector.keys().isdisjoint(names.PLACED_BY)]
        self._hosts = LeftHosts(snapshot, placing.claims if placing is not None else None)
        self._serving = [ds.node_selector for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace and not ds.deleting
                         and not ds.node_selector.keys().isdisjoint(names.PLACED_BY) and ds.uid not in self._hosts.going]
        self._by_kernel = {ds.uid: found for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace
                           and (found := _placement_by_kernel(ds)) is not None} if self._is_by_kernel else {}
        self._serving += [{names.DEPLOY_DRIVER: "true", names.DRIVER_OS: found.os, names.DRIVER_KERNEL: found.kernel}
                          for found in self._by_kernel.values()]

    def free(self, node: NodeView, labels: Mapping[str, str], pods: Iterable[PodView]) -> dict[str, str | None]:
        """Return the change of the labels by which a node is placed, if no driver goes by it; `labels` are as they will be."""
        pods = tuple(pods)
        change = self._change(node, labels, pods)
        if change and self._tears(node, labels, change, pods):
            return self._restored(labels, change, pods)
        return {} if change and (self._strands(labels, change) or self._unhosts(labels, change, pods)) else change

    def is_elsewhere(self, node: NodeView, pods: Sequence[PodView]) -> bool:
        """Tell whether a node's driver should come from somewhere else than it does."""
        return node.gpu_present and bool(self._change(node, node.labels, pods))

    def moving(self, node: NodeView, pods: Iterable[PodView]) -> Placement | None:
        """Return where a node's driver should come from, where the one that it has would be torn away by that."""
        pods = tuple(pods)
        change = self._change(node, node.labels, pods) if node.gpu_present else {}
        if not change or not self._tears(node, node.labels, change, pods):
            return None
        wanted = placement_of(after(node.labels, change))
        claim = self.placing.claim(wanted.owner) if self.placing is not None else None
        able = claim is None or claim.able
        return wanted if able and self._is_served(after(node.labels, change), wanted) else None

    def to_be(self, node: NodeView, pods: Iterable[PodView]) -> tuple[NodeView, ...]:
        """Return a node as it will be once its labels say what they can say at once, and as it will be after a move."""
        pods = tuple(pods)
        if not node.gpu_present or not (change := self._change(node, node.labels, pods)):
            return (node,)
        moved = msgspec.structs.replace(node, labels=after(node.labels, change))
        waits = self._tears(node, node.labels, change, pods) or self._strands(node.labels, change)
        return (node, moved) if waits else (moved,)

    def kept_for(self, node: NodeView, pods: Iterable[PodView]) -> DriverKept | None:
        """Return for which virtual machines a node keeps the driver of its host, which should come from elsewhere or go."""
        pods = tuple(pods)
        change = self._change(node, node.labels, pods) if node.gpu_present else {}
        if not change or self._strands(node.labels, change) or not self._unhosts(node.labels, change, pods):
            return None
        users = [pod.ref for pod in pods if pod.uses_vm_gpu and not pod.finished]
        return DriverKept(min(users), len(users))

    def _strands(self, labels: Mapping[str, str], change: Mapping[str, str | None]) -> bool:
        """Tell whether a node for which a DaemonSet is there would go to where none is, or can be made."""
        changed = after(labels, change)
        wanted = placement_of(changed)
        if not wanted.owner and self._hosts.keep(labels):
            return True
        return self._is_waited_for(labels) and not self._is_served(changed, wanted)

    def _unhosts(self, labels: Mapping[str, str], change: Mapping[str, str | None], pods: Sequence[PodView]) -> bool:
        """Tell whether the driver of a host would be deleted under its virtual machines."""
        used = any(pod.uses_vm_gpu and not pod.finished for pod in pods)
        living = (pod for pod in pods if not (pod.deleting or pod.finished) and is_hosts_driver_pod(pod, self._namespace))
        return used and any(self._loses(pod, labels, after(labels, change)) for pod in living)

    def _is_served(self, labels: Mapping[str, str], wanted: Placement) -> bool:
        """Tell whether a DaemonSet waits for a node with these labels: none is moved to where it would get no driver."""
        if self.placing is not None and self.placing.claims is not None and not wanted.owner:
            return True
        return self._is_waited_for(labels)

    def _is_waited_for(self, labels: Mapping[str, str]) -> bool:
        return any(selector.items() <= labels.items() for selector in self._serving)

    def _change(self, node: NodeView, labels: Mapping[str, str], pods: Sequence[PodView]) -> dict[str, str | None]:
        if self.placing is None:
            return {}
        driven = any(is_driver_pod(pod, self._namespace) and not (pod.deleting or pod.finished) for pod in pods)
        wanted = wanted_placement(node.name, labels, self.placing, runs=node.kernel, driven=driven)
        if self._is_by_kernel and wanted.os != system_of(labels) and not any(self._serves(pod) for pod in pods):
            wanted = wanted_placement(node.name, labels, self.placing, serves=False, runs=node.kernel, driven=driven)
        wanted = self._as_it_was(wanted, pods)
        return {key: value for key, value in wanted.labels.items() if labels.get(key) != value}

    @property
    def _is_by_kernel(self) -> bool:
        """Tell whether the ClusterPolicy's drivers are built for one kernel each."""
        return self.placing is not None and self.placing.precompiled and self.placing.claims is None

    def _as_it_was(self, wanted: Placement, pods: Iterable[PodView]) -> Placement:
        """Return a node's placement, with the operating system of the DaemonSet of its driver pod, where that is for all nodes of
        its kernel: no other DaemonSet takes that pod over, and as long as it is there nobody may change which nodes it is for.
        """
        if not self._by_kernel:
            return wanted
        found = (self._by_kernel.get(owner_uid(pod)) for pod in pods if not (pod.deleting or pod.finished))
        return next((each for each in found if each is not None and each.kernel == wanted.kernel), wanted)

    def _serves(self, pod: PodView) -> bool:
        return pod.ready and not pod.deleting and is_driver_pod(pod, self._namespace)

    def _tears(
        self, node: NodeView, labels: Mapping[str, str], change: Mapping[str, str | None], pods: Iterable[PodView]
    ) -> bool:
        """Tell whether a driver pod that lives would be deleted.

        One that is not ready is no loss where the machine runs the wanted kernel and not the one that the pod's driver was built
        for, as after a new kernel was booted.
        """
        kernel = change.get(names.DRIVER_KERNEL)
        if self.placing is None:
            return False
        rebooted = bool(kernel) and is_kernel(str(kernel), node.kernel) and names.DRIVER_KERNEL in labels
        living = (pod for pod in pods if not (pod.deleting or pod.finished) and is_driver_pod(pod, self._namespace))
        return any(self._loses(pod, labels, after(labels, change)) for pod in living if pod.ready or not rebooted)

    def _restored(
        self, labels: Mapping[str, str], change: Mapping[str, str | None], pods: Iterable[PodView]
    ) -> dict[str, str | None]:
        """Return the labels by which the DaemonSet of a driver pod selects the node again, where somebody has changed them, or
        they went while none of its kind was wanted: only a node that is an NVIDIADriver's can be upgraded within its limits.
        A pod that has ended, and nobody deleted, has no driver to keep; and none is put back at the cost of another one.
        """
        pods = [pod for pod in pods if not pod.finished]
        living = [pod for pod in pods if not pod.deleting and is_driver_pod(pod, self._namespace)]
        for pod in pods:
            selector = self._selected_by(pod)
            if selector is not None and not selector.items() <= labels.items() and not self._goes(selector, change):
                back = {key: selector[key] for key in change if key in selector and labels.get(key) != selector[key]}
                restored = {**labels, **back}
                if selector.items() <= restored.items() and not any(self._loses(one, labels, restored) for one in living):
                    return {**back}
        return {}

    def _goes(self, selector: Mapping[str, str], change: Mapping[str, str | None]) -> bool:
        """Tell whether a driver is to go, and its node gets none from the NVIDIADriver that it is about to be labelled for."""
        claim = self.placing.claim(change.get(names.DRIVER_OWNER) or "") if self.placing is not None else None
        departing = self.placing.departing if self.placing is not None else ()
        return claim is not None and claim.is_for_hosts and selector.get(names.DRIVER_OWNER) in departing

    def _selected_by(self, pod: PodView) -> Mapping[str, str] | None:
        """Return by what the DaemonSet of a driver pod that stays selects nodes; of one without, once that is made again."""
        if pod.deleting:
            return None
        if pod.owner is not None:
            return self.selectors.get(pod.owner.uid)
        return self._again(pod.placed_by) if _may_be_adopted(pod) and is_driver_pod(pod, self._namespace) else None

    def _loses(self, pod: PodView, before: Mapping[str, str], changed: Mapping[str, str]) -> bool:
        """Tell whether a change of its node's labels ends a pod; of a DaemonSet that is not known yet, it may."""
        selectors: list[Mapping[str, str] | None] = [*self._adopters(pod)]
        if pod.owner is not None:
            selectors.append(self.selectors.get(pod.owner.uid))
        return any(selector is None or (_may_select(selector, before, changed) and not selector.items() <= changed.items())
                   for selector in selectors)

    def _adopters(self, pod: PodView) -> list[Mapping[str, str]]:
        """Return by what the DaemonSets select nodes that adopt a pod without one, or whose own goes, now or once they are made
        again; they delete pods on others.
        """
        if pod.owner is not None and pod.owner.uid not in self._going:
            return []
        there = [nodes for selector, nodes in self._adopting if selector.items() <= pod.labels.items()]
        return [*there, self._again(pod.placed_by)] if _may_be_adopted(pod) else there

    def _again(self, selector: Mapping[str, str]) -> Mapping[str, str]:
        """Return what a DaemonSet that is gone, or goes, selects nodes by once it is made again; nothing where none is: its
        NVIDIADriver is gone, or the ClusterPolicy does not want such drivers any more.
        """
        if self.placing is None or selector.keys().isdisjoint(names.PLACED_BY):
            return {}
        owner = selector.get(names.DRIVER_OWNER, "")
        claim = self.placing.claim(owner)
        stays = claim is not None and claim.makes(selector) if owner else self.placing.claims is None and self.placing.precompiled
        return selector if stays else {}


def is_made_anew(selector: Mapping[str, str], placing: Placing | None) -> bool:
    """Tell whether a driver DaemonSet that selects nodes so is made again once it is gone."""
    if owner := selector.get(names.DRIVER_OWNER, ""):
        claim = placing.claim(owner) if placing is not None else None
        return claim is not None and claim.makes(selector)
    if placing is not None and placing.claims is not None:
        return False
    return (names.DRIVER_KERNEL in selector) == (placing is not None and placing.precompiled)


def _placement_by_kernel(ds: DaemonSetView) -> Placement | None:
    """Return for which nodes a DaemonSet of precompiled drivers is to be, as its name says, which selects all of a kernel:
    NVIDIA's operator makes one where several operating systems have that.
    """
    kernel, system = ds.node_selector.get(names.NFD_KERNEL, ""), tag_in(ds.name)
    made = is_policys(ds) and ds.labels.get(names.PRECOMPILED) == "true" and not ds.deleting
    return Placement("", system, kernel) if made and kernel and system and names.DRIVER_OS not in ds.node_selector else None


def _may_be_adopted(pod: PodView) -> bool:
    return pod.orphan and pod.labels.get("app") != names.LEFT_DRIVER_APP


def _may_select(selector: Mapping[str, str], before: Mapping[str, str], changed: Mapping[str, str]) -> bool:
    """Tell whether a DaemonSet selects a node, or will if what is about to be changed is made what it selects by."""
    return all(before.get(key) == value or before.get(key) != changed.get(key) for key, value in selector.items())


def after(labels: Mapping[str, str], change: Mapping[str, str | None]) -> dict[str, str]:
    """Return labels once they are patched."""
    return {key: value for key, value in {**labels, **change}.items() if value is not None}


def placed_nodes(snapshot: Snapshot, placing: Placing | None) -> list[NodeView]:
    """Return the nodes as they will be, one that is to be moved as it is now, too: what is made for nodes is made for that."""
    if placing is None:
        return list(snapshot.nodes.values())
    placements = Placements(snapshot, placing)
    return [view for node in snapshot.nodes.values() for view in placements.to_be(node, snapshot.pods.get(node.name, ()))]
