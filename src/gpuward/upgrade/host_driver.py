"""Say of a host of vGPUs what is wrong with its driver: nobody is for it any more, or there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpuward import names
from gpuward.model.driver import has_hosts_driver_labels, is_hosts_driver_pod
from gpuward.model.hosts import former_pods, kept_away_by, machines_on_hosts, outdated_on_hosts
from gpuward.model.orphans import is_hosts_orphan
from gpuward.model.owners import FOR_HOSTS, Claim, KeepsOwner, NodeOwner, OwnerConflict, name_of, owner_of
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView
from gpuward.model.workloads import Workload, workload_of

WHAT_TO_DO: Final = f"let one with driverType: {FOR_HOSTS} select it"


def told_of_host(node: NodeView, snapshot: Snapshot, policy: UpgradePolicy, *, managed: bool | None) -> str:
    """Return what a person has to know of the driver of a node whose GPUs serve virtual machines; `managed` says whether the vGPU
    manager is to bring it, None where nobody knows, or NVIDIADrivers do.
    """
    there = [pod for pod in snapshot.pods.get(node.name, ()) if not pod.finished and pod.namespace == snapshot.namespace]
    claims = policy.placing.claims if policy.placing is not None else None
    return "".join(f"; {told}" for told in _told(node, there, snapshot, claims, managed=managed) if told)


def _told(node: NodeView, there: Sequence[PodView], snapshot: Snapshot, claims: tuple[Claim, ...] | None, *,
          managed: bool | None) -> Iterator[str]:
    drivers = [pod for pod in there if has_hosts_driver_labels(pod.labels)]
    if (orphan := next((pod for pod in drivers if is_hosts_orphan(pod, snapshot.namespace)), None)) is not None:
        yield (f"driver pod {orphan.name} of this host belongs to no DaemonSet: it goes when another driver comes and nothing "
               "uses it")
    theirs = any(is_hosts_driver_pod(pod, snapshot.namespace) for pod in drivers)
    if managed and theirs and (used := machines_on_hosts(snapshot)) is not None:
        yield f"it keeps the driver of NVIDIADrivers, as all such hosts do, {used}"
    managers = [ds for ds in snapshot.daemonsets if ds.name == names.VGPU_MANAGER_APP and ds.namespace == snapshot.namespace]
    former = {pod.uid for ds in managers for pod, _ in former_pods(ds, snapshot)}
    if (old := next((pod for pod in drivers if pod.uid in former), None)) is not None:
        kept = next((taint for ds in managers if (taint := kept_away_by(ds, node)) is not None), None)
        until = "goes once no pod uses the GPUs" if kept is None else f"stays while taint {kept} keeps the next one away"
        yield f"driver pod {old.name} of this host has an older template: it {until}"
    if claims is not None and (outdated := outdated_on_hosts(snapshot).get(node.name)) is not None:
        yield (f"driver pod {outdated.name} of this host has an older template, and nobody replaces it: once no pod uses the "
               f"GPUs, `kubectl delete pod {outdated.name} -n {outdated.namespace}` does")
    if claims is not None and theirs:
        yield _kept(node, claims)
    if workload_of(node.labels) is Workload.VM_VGPU and not any(pod.ready for pod in drivers):
        why = _none_yet(drivers) or _lacking(node, claims, managed=managed)
        yield f"it has no driver{' but one of its own' if _may_have_own(there) else ''}: {why}" if why else ""


def _may_have_own(there: Sequence[PodView]) -> bool:
    """Tell whether the validator of hosts has found a driver: that which a pod has taken along since, or one that was installed
    on the host itself.
    """
    return any(pod.ready and not pod.deleting and pod.labels.get("app") == names.SANDBOX_VALIDATOR_APP for pod in there)


def _kept(node: NodeView, claims: tuple[Claim, ...]) -> str:
    """Say of a host that the NVIDIADriver whose driver it has is not for it any more, and why no other comes."""
    has, owner = node.labels.get(names.DRIVER_OWNER, ""), owner_of(node.name, node.labels, claims)
    claim, why = _claim(has, claims), _none_comes(owner, claims)
    if not (has and why) or isinstance(owner, KeepsOwner):
        return ""
    if claim is None:
        return f"it keeps the driver of NVIDIADriver {has}, which is gone: {why}"
    if name_of(owner, has) != has:
        return f"it keeps the driver of NVIDIADriver {has}, which does not select it any more: {why}"
    return f"it keeps the driver of an earlier NVIDIADriver {has}: {why}" if claim.is_for_containers else ""


def _none_yet(drivers: Sequence[PodView]) -> str:
    return f"driver pod {drivers[0].name} is not ready" if drivers else ""


def _lacking(node: NodeView, claims: tuple[Claim, ...] | None, *, managed: bool | None) -> str:
    """Say why a host has no driver pod; nothing where that is not known."""
    if claims is not None:
        owner = owner_of(node.name, node.labels, claims)
        if isinstance(owner, KeepsOwner):
            return f"NVIDIADriver {node.labels.get(names.DRIVER_OWNER)} cannot be followed, see its condition"
        return _none_comes(owner, claims) or "its NVIDIADriver has made no driver pod here yet"
    if managed is None:
        return ""
    return "the vGPU manager has made no pod here yet" if managed else "vgpuManager.enabled is not true in the ClusterPolicy"


def _none_comes(owner: NodeOwner, claims: tuple[Claim, ...]) -> str:
    """Say why a host gets no driver, and what to do about that; nothing where one is to come."""
    if isinstance(owner, OwnerConflict):
        return str(owner)
    claim = _claim(name_of(owner, ""), claims)
    if claim is None:
        return f"no NVIDIADriver selects it, {WHAT_TO_DO}"
    if claim.is_for_containers:
        return f"NVIDIADriver {claim.name} selects it and is of type {claim.driver_type}, {WHAT_TO_DO}"
    return "" if claim.able else f"NVIDIADriver {claim.name} selects it and cannot be followed, see its condition"


def _claim(name: str, claims: tuple[Claim, ...]) -> Claim | None:
    return next((claim for claim in claims if claim.name == name), None)
