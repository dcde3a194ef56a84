"""Why no driver DaemonSet is for a node that is to have a driver."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward import names
from gpuward.model.driver_types import selected_for_hosts
from gpuward.model.owners import Claim, OwnedBy, OwnerConflict, name_of, owner_of
from gpuward.model.placement import wanted_placement
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import Record
from gpuward.model.systems import is_kernel, kernel_of
from gpuward.model.unserved import DriverLabelUnknown, DriverRefused, KernelUnknown, NotSelected, Unserved, WrongDriverType
from gpuward.model.views import NodeView, PodView, Ref
from gpuward.upgrade.scope import is_to_have_driver, unknown_value


def unserved(
    node: NodeView, policy: UpgradePolicy, driver: PodView | None, record: Record, validators: Iterable[PodView], *,
    selected: bool
) -> Unserved | None:
    """Return why a node gets no driver pod, now or once the one goes that nobody owns; `selected` by a DaemonSet it gets one.

    None where it is left alone, needs none, or nobody can know: while the ClusterPolicy is gone, or NVIDIADrivers are not listed.
    """
    if (value := unknown_value(node)) and not (policy.absent or policy.off):
        return _unlabelled(node, driver, value)
    claims = policy.placing.claims if policy.placing is not None else None
    if driver is not None and (wrong := of_hosts(node, policy, driver)) is not None:
        return wrong
    if (unknown := _of_kernel(node, policy, driver, selected=selected)) is not None:
        return unknown
    if claims is None or policy.absent or selected or not is_to_have_driver(node):
        return None
    if driver is not None and not driver.orphan:
        return None
    pod = None if driver is None else driver.ref
    if not policy.unowned:
        return _refused(policy, pod)
    if driver is None and (node.labels.get(names.UPGRADE_SKIP) == "true" or _has_own_driver(node, record, validators)):
        return None
    return _unowned(node, claims, pod)


def of_hosts(node: NodeView, policy: UpgradePolicy, driver: PodView | None) -> WrongDriverType | None:
    """Return that a node keeps the driver of an NVIDIADriver that is there, as the one that selects it has none for it; or that
    of a DaemonSet which is to go, and is there yet: an earlier one of the name has left it. Without a pod a driver is loaded from
    which another one is withheld.
    """
    claims = policy.placing.claims if policy.placing is not None else None
    departing = policy.placing.departing if policy.placing is not None else frozenset()
    if claims is None or policy.absent or policy.driver in departing or not is_to_have_driver(node):
        return None
    if driver is not None and driver.deleting:
        return None
    pod = None if driver is None else driver.ref
    if policy.unowned and driver is not None and not driver.orphan:
        name = node.labels.get(names.DRIVER_OWNER, "")
        later = next((claim for claim in claims if claim.name == name and claim.is_for_hosts), None)
        return None if later is None else WrongDriverType(pod, name, later.driver_type, name)
    if not policy.driver:
        return None
    hosts = selected_for_hosts(node.name, node.labels, claims, policy.workloads)
    return None if hosts is None else WrongDriverType(pod, hosts.name, hosts.driver_type, policy.driver)


def _of_kernel(node: NodeView, policy: UpgradePolicy, driver: PodView | None, *, selected: bool) -> KernelUnknown | None:
    """Return that a node should have a precompiled driver, and nothing says for which kernel."""
    placing = policy.placing
    if placing is None or placing.stays or policy.absent or policy.off or not is_to_have_driver(node):
        return None
    said, kept = kernel_of(node.labels), driver is not None and not driver.orphan
    if (said and is_kernel(said, node.kernel)) or (selected and not kept):
        return None
    wanted = wanted_placement(node.name, node.labels, placing, runs=node.kernel, driven=driver is not None)
    claim = placing.claim(wanted.owner) if placing.claims is not None else None
    precompiled = placing.precompiled if placing.claims is None else claim is not None and claim.precompiled and claim.able
    if not precompiled or wanted.kernel or (kept and claim is not None and claim.name == policy.driver):
        return None
    return KernelUnknown(None if driver is None else driver.ref, said, node.kernel, kept)


def _unlabelled(node: NodeView, driver: PodView | None, value: str) -> DriverLabelUnknown | None:
    if driver is None and node.labels.get(names.UPGRADE_SKIP) == "true":
        return None
    return DriverLabelUnknown(None if driver is None or not driver.orphan else driver.ref, value)


def _refused(policy: UpgradePolicy, pod: Ref | None) -> DriverRefused | None:
    claim = policy.placing.claim(policy.driver) if policy.placing is not None else None
    return None if claim is None or claim.able else DriverRefused(pod, policy.driver, claim.conflict)


def _unowned(node: NodeView, claims: tuple[Claim, ...], pod: Ref | None) -> Unserved | None:
    owner = owner_of(node.name, node.labels, claims)
    if isinstance(owner, OwnerConflict):
        return DriverRefused(pod, conflict=owner)
    name = name_of(owner, node.labels.get(names.DRIVER_OWNER, ""))
    hosts = next((claim for claim in claims if claim.name == name and claim.is_for_hosts), None)
    if hosts is not None:
        return WrongDriverType(pod, name, hosts.driver_type)
    return None if isinstance(owner, OwnedBy) else NotSelected(pod, tuple(claim.name for claim in claims if not claim.valid))


def _has_own_driver(node: NodeView, record: Record, validators: Iterable[PodView]) -> bool:
    """Tell whether a driver is there without a driver pod: installed on the host, a validator pod has found it.

    One that stood beside a driver pod has seen that one's driver, and stays ready without it; one from before the Node was
    registered may have, as what was known of it is gone with the earlier Node.
    """
    there = (pod for pod in validators if pod.ready and not pod.deleting and not pod.is_older_than(node))
    return any(pod.uid not in (record.pods or ()) for pod in there)
