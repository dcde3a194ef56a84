"""The resources that are followed, each once: what is kept of their objects, where these are, and what waits for them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from gpuward.kube import resources
from gpuward.kube.cache.cache import Cache
from gpuward.kube.cache.owned import owned_by_operator
from gpuward.kube.cache.projection import BY_NAME, BY_PLACE, Identity, Keys, Projection
from gpuward.kube.http.client import Selection
from gpuward.kube.resources import GVR
from gpuward.model.budgets import BudgetView
from gpuward.model.claims import ClaimView
from gpuward.model.maintenance import KIND as NODE_MAINTENANCE
from gpuward.model.maintenance import MaintenanceView
from gpuward.model.owned import OwnedView
from gpuward.model.place import PlaceView
from gpuward.model.views import DaemonSetView, NodeView, PodView, PolicyView, RevisionView
from gpuward.wire.budgets import budget_view
from gpuward.wire.claims import claim_view
from gpuward.wire.daemonsets import daemonset_view, revision_view
from gpuward.wire.maintenances import maintenance_view
from gpuward.wire.nodes import node_view
from gpuward.wire.places import place_view
from gpuward.wire.pods import pod_view
from gpuward.wire.policies import policy_view

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=msgspec.Struct)
Place = tuple[str, str]
Indexes = Mapping[str, Callable[[V], Iterable[Hashable]]]


def same_but_version(old: msgspec.Struct, new: Any) -> bool:
    """Tell whether two views of an object differ in its version at most."""
    return bool(msgspec.structs.replace(old, version=new.version) == new)


@dataclass(frozen=True, slots=True)
class Followed(Generic[K, V]):
    """Say how one resource is followed."""

    kind: str
    resource: GVR
    view: Callable[[bytes], V | None]
    keys: Keys[K]
    same: Callable[[V, V], bool] = same_but_version
    own_namespace: bool = False
    """Whether only the objects in the operator's namespace are."""
    required: bool = False
    """Whether nothing at all is decided before they were listed once."""
    awaited: bool = True
    """Whether that is waited for also with the others, where it is not refused."""
    acted_on: bool = False
    """Whether nothing is decided about objects of the kind for as long as they are not listed: the snapshot says so."""
    only_denied: bool = False
    """Whether only a denial counts as refused: a server that fails to list them does not say that there are no such settings."""
    wakes: bool = True
    """Whether each change of an object is news."""
    of_fleet: bool = False
    """Whether it is of nodes, or of what runs there: no policy says another thing for a change of one."""
    is_place: bool = False
    """Whether it is the operator's namespace itself."""

    def cache(self, view: Callable[[bytes], V | None] | None = None, indexes: Indexes[V] | None = None) -> Cache[K, V]:
        """Return a cache of the objects; `view` may keep fewer of them."""
        identity = _named if self.keys is BY_NAME else _placed
        return Cache(Projection(self.keys, view or self.view, identity, self.same), indexes)

    def selection(self, namespace: str) -> Selection:
        """Return what is listed, by an operator in that namespace."""
        if self.is_place:
            return Selection(self.resource, fields=f"metadata.name={namespace}")
        return Selection(self.resource, namespace if self.own_namespace else "")


def _named(view: Any) -> Identity:
    return Identity("", view.name, view.uid, view.version)


def _placed(view: Any) -> Identity:
    return Identity(view.namespace, view.name, view.uid, view.version)


def _owned(kind: str, resource: GVR, *, awaited: bool = True) -> Followed[Place, OwnedView]:
    view = partial(owned_by_operator, kind=kind)
    return Followed(kind, resource, view, BY_PLACE, operator.eq, resource.namespaced, acted_on=True, awaited=awaited)


NODES: Final[Followed[str, NodeView]] = Followed("Node", resources.NODES, node_view, BY_NAME, required=True, of_fleet=True)
PODS: Final[Followed[Place, PodView]] = Followed("Pod", resources.PODS, pod_view, BY_PLACE, required=True, of_fleet=True)
DAEMON_SETS: Final[Followed[Place, DaemonSetView]] = Followed(
    # A new version of a DaemonSet is news even if nothing else is: it is the precondition of the next replacement.
    "DaemonSet", resources.DAEMON_SETS, daemonset_view, BY_PLACE, operator.eq, own_namespace=True, required=True)
REVISIONS: Final[Followed[Place, RevisionView]] = Followed(
    "ControllerRevision", resources.CONTROLLER_REVISIONS, revision_view, BY_PLACE, own_namespace=True, required=True)
POLICIES: Final[Followed[str, PolicyView]] = Followed(
    "ClusterPolicy", resources.CLUSTER_POLICIES, policy_view, BY_NAME, required=True)
ROLLOUT_POLICIES: Final[Followed[str, PolicyView]] = Followed(
    "RolloutPolicy", resources.ROLLOUT_POLICIES, policy_view, BY_NAME, only_denied=True)
DRIVERS: Final[Followed[str, PolicyView]] = Followed(
    "NVIDIADriver", resources.NVIDIA_DRIVERS, policy_view, BY_NAME, acted_on=True, only_denied=True)
BUDGETS: Final[Followed[Place, BudgetView]] = Followed(
    "PodDisruptionBudget", resources.POD_DISRUPTION_BUDGETS, budget_view, BY_PLACE, of_fleet=True)
CLAIMS: Final[Followed[Place, ClaimView]] = Followed(
    "ResourceClaim", resources.RESOURCE_CLAIMS, claim_view, BY_PLACE, wakes=False)
OWNED: Final = (
    _owned("ServiceAccount", resources.SERVICE_ACCOUNTS),
    _owned("Role", resources.ROLES),
    _owned("RoleBinding", resources.ROLE_BINDINGS),
    _owned("ClusterRole", resources.CLUSTER_ROLES),
    _owned("ClusterRoleBinding", resources.CLUSTER_ROLE_BINDINGS),
    _owned("ConfigMap", resources.CONFIG_MAPS),
    _owned("Service", resources.SERVICES),
    _owned("RuntimeClass", resources.RUNTIME_CLASSES),
)
"""Kinds, besides DaemonSets, of which the operands have objects on every cluster."""
MONITORS: Final = _owned("ServiceMonitor", resources.SERVICE_MONITORS, awaited=False)
"""Only clusters with the Prometheus operator have them."""
MAINTENANCES: Final[Followed[Place, MaintenanceView]] = Followed(
    NODE_MAINTENANCE, resources.NODE_MAINTENANCES, maintenance_view, BY_PLACE, own_namespace=True)
"""They matter only where a RolloutPolicy asks for some, see `gpuward.kube.maintenances`."""
PLACE: Final[Followed[str, PlaceView]] = Followed(
    # Its version is the precondition of a change of its labels.
    "Namespace", resources.NAMESPACES, place_view, BY_NAME, operator.eq, awaited=False, is_place=True)
"""It matters only where a policy asks for its labels."""
