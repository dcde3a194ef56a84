"""Which nodes and driver DaemonSets are a matter of which upgrade policy: no node is one of two, and none of nobody's."""

from __future__ import annotations

from gpuward import names
from gpuward.model.driver import is_policys
from gpuward.model.owners import OwnedBy, owner_of
from gpuward.model.policy import UpgradePolicy
from gpuward.model.views import DaemonSetView, NodeView


def concerns(policy: UpgradePolicy, node: NodeView) -> bool:
    """Tell whether a node's driver is a matter of a policy. One whose NVIDIADriver is gone, or brings no driver for containers,
    is as good as one without an owner.
    """
    owner = node.labels.get(names.DRIVER_OWNER, "")
    if policy.driver:
        return owner == policy.driver and not is_for_hosts(owner, policy)
    return not policy.unowned or not owner or _brings_none(owner, policy)


def is_for_hosts(owner: str, policy: UpgradePolicy) -> bool:
    """Tell whether an NVIDIADriver brings the drivers of hosts of vGPUs, and none to nodes with containers."""
    claim = policy.placing.claim(owner) if policy.placing is not None else None
    return claim is not None and claim.is_for_hosts


def _brings_none(owner: str, policy: UpgradePolicy) -> bool:
    return _is_gone(owner, policy) or is_for_hosts(owner, policy)


def _is_gone(owner: str, policy: UpgradePolicy) -> bool:
    placing = policy.placing
    if placing is None or placing.claims is None or owner in placing.departing:
        return False
    return placing.claim(owner) is None


def is_expected(node: NodeView, policy: UpgradePolicy) -> bool:
    """Tell whether a node is to have a driver although the DaemonSet for it may have yet to be made: each NVIDIADriver, and each
    kernel of precompiled drivers, has one of its own.
    """
    placing = policy.placing
    by_kernel = placing is not None and placing.claims is None and placing.precompiled
    return (bool(policy.driver) or by_kernel or _is_about_to_be_owned(node, policy)) and is_to_have_driver(node)


def is_to_have_policys(node: NodeView, policy: UpgradePolicy) -> bool:
    """Tell whether a node is to have the ClusterPolicy's driver, whose DaemonSet somebody may have deleted: it is made again."""
    makes = not (policy.driver or policy.unowned or policy.absent or policy.off)
    return makes and is_to_have_driver(node)


def is_to_have_driver(node: NodeView) -> bool:
    """Tell whether a node's labels ask for a driver: one that is installed on the host has another value there."""
    return node.gpu_present and node.labels.get(names.DEPLOY_DRIVER) == "true"


def unknown_value(node: NodeView) -> str:
    """Return the value of the label that asks for a driver if it is none of NVIDIA's; empty where it is, or asks for none."""
    value = node.labels.get(names.DEPLOY_DRIVER, "")
    operands = node.gpu_present and node.labels.get(names.DEPLOY_OPERANDS) != "false"
    return value if operands and value not in ("", "true", "false", names.PRE_INSTALLED) else ""


def is_unlabelled(node: NodeView, policy: UpgradePolicy) -> bool:
    """Tell whether discovery saw a GPU on a node that nobody has labelled for it, though it may be a matter of the policy."""
    seen = not node.gpu_present and any(node.labels.get(label) == "true" for label in names.NFD_GPU_LABELS)
    return seen and not (policy.absent or policy.off)


def _is_about_to_be_owned(node: NodeView, policy: UpgradePolicy) -> bool:
    """Tell whether nobody owns a node that an NVIDIADriver selects, of which it gets a driver."""
    claims = policy.placing.claims if policy.placing is not None and policy.unowned and not policy.absent else None
    owner = owner_of(node.name, node.labels, claims) if claims is not None else None
    return isinstance(owner, OwnedBy) and not is_for_hosts(owner.name, policy)


def drives(ds: DaemonSetView, policy: UpgradePolicy) -> bool:
    """Tell whether a DaemonSet holds drivers that are a matter of a policy. Those that an NVIDIADriver for hosts finds under its
    name are nobody's.
    """
    if policy.driver and is_for_hosts(policy.driver, policy):
        return False
    owner = ds.owner if ds.owner is not None and ds.owner.kind == "NVIDIADriver" else None
    if policy.unowned and (left := ds.node_selector.get(names.DRIVER_OWNER)):
        return _brings_none(left, policy)
    if policy.gone:
        return ds.owner is None and ds.node_selector.get(names.DRIVER_OWNER) == policy.driver
    if policy.driver and ds.owner is None and policy.driver == ds.node_selector.get(names.DRIVER_OWNER):
        # An earlier one of the name left it, and this one has yet to take it over.
        return policy.placing is not None and policy.placing.claim(policy.driver) is not None
    if policy.driver or owner:
        return owner is not None and owner.name == policy.driver
    return is_policys(ds)
