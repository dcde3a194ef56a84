"""Rights that gpuward can do without, as under the roles of NVIDIA's chart: what is lost, and how a person gives them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from shlex import quote
from typing import Final

from gpuward import names

LEASES: Final = "Lease"
"""Those of all namespaces; the one in the operator's own is needed."""
BUDGETS: Final = "PodDisruptionBudget"
NODE_CONDITIONS: Final = "NodeConditions"
"""Stands for what is patched, and not listed: the conditions of nodes, where a RolloutPolicy wants some."""
WITHOUT: Final[Mapping[str, tuple[str, str]]] = {
    BUDGETS: ("poddisruptionbudgets.policy", "a disruption budget shows only when an eviction is refused"),
    "RolloutPolicy": ("rolloutpolicies.gpuward.io", "RolloutPolicies are not followed, but for the last one that was seen"),
    "ResourceClaim": ("resourceclaims.resource.k8s.io", "each pod with a claim counts as one that uses a GPU"),
    LEASES: ("leases.coordination.k8s.io in all namespaces", "operators in other namespaces are not seen"),
    "NodeMaintenance": ("nodemaintenances.maintenance.nvidia.com", "no node starts where interop.nodeMaintenance asks for one"),
    NODE_CONDITIONS: ("nodes/status", "nodes do not get the conditions that interop.nodeConditions asks for, nor lose them"),
}
"""From a kind to what may not be listed, or patched, and what follows from that."""
REMEDY: Final = ". To allow it: "
"""Between what is missing and the command that helps."""
MANIFEST: Final = "deploy/nvidia-chart-rights.yaml"


def missing_rights(forbidden: Collection[str], namespace: str) -> str:
    """Name what an operator in a namespace may not do, with what follows and the command that helps; empty if it may all."""
    told = {kind: f"{what}: {then}" for kind, (what, then) in WITHOUT.items() if kind in forbidden}
    if not told:
        return ""
    patched = [f"patch {told.pop(NODE_CONDITIONS)}"] if NODE_CONDITIONS in told else []
    listed = [f"list {'; '.join(told.values())}"] if told else []
    return f"the operator may not {'; nor '.join([*listed, *patched])}{REMEDY}{grant(namespace)}"


def grant(namespace: str) -> str:
    """Return the command that gives the rights to an operator in a namespace."""
    if namespace == names.DEFAULT_NAMESPACE:
        return f"kubectl apply -f {MANIFEST}"
    edit = quote(f"s/namespace: {names.DEFAULT_NAMESPACE}/namespace: {namespace}/")
    return f"sed {edit} {MANIFEST} | kubectl apply -f -"
