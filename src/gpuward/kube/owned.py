"""Objects that a ClusterPolicy or an NVIDIADriver owns: the kinds that the operands have, and what a cache keeps of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from gpuward import names
from gpuward.kube import resources
from gpuward.kube.cache import Cache
from gpuward.kube.projection import BY_PLACE, Identity, Projection
from gpuward.kube.resources import GVR
from gpuward.model.views import DaemonSetView, OwnedView
from gpuward.wire.daemonsets import owned_view

OWNED_KINDS: Final[dict[str, GVR]] = {
    "ServiceAccount": resources.SERVICE_ACCOUNTS,
    "Role": resources.ROLES,
    "RoleBinding": resources.ROLE_BINDINGS,
    "ClusterRole": resources.CLUSTER_ROLES,
    "ClusterRoleBinding": resources.CLUSTER_ROLE_BINDINGS,
    "ConfigMap": resources.CONFIG_MAPS,
    "Service": resources.SERVICES,
    "RuntimeClass": resources.RUNTIME_CLASSES,
}
"""Kinds, besides DaemonSets, of which the operands have objects on every cluster."""


def owned_cache(kind: str) -> Cache[tuple[str, str], OwnedView]:
    """Return a cache of the objects of one kind that have an owner; of service accounts all."""
    return Cache(Projection(BY_PLACE, partial(_owned, kind=kind), _place, OwnedView.__eq__))


def owned_views(
    caches: Mapping[str, Cache[tuple[str, str], OwnedView]], daemonsets: Iterable[DaemonSetView]
) -> dict[tuple[str, str, str], OwnedView]:
    """Return what the caches hold, and the DaemonSets that belong to it, by kind, namespace and name."""
    views = {(kind, view.namespace, view.name): view for kind, cache in caches.items() for view in cache.values()}
    for ds in daemonsets:
        if ds.owner is not None and ds.owner.kind in names.OWNER_KINDS:
            views["DaemonSet", ds.namespace, ds.name] = OwnedView(
                "DaemonSet", ds.namespace, ds.name, ds.uid, ds.version, ds.generation, ds.owner.uid, ds.applied_hash, ds.deleting)
    return views


def _owned(raw: bytes, kind: str) -> OwnedView | None:
    view = owned_view(raw, kind)
    return view if view.owner_uid or kind == "ServiceAccount" else None  # somebody else's account is left alone


def _place(view: OwnedView) -> Identity:
    return Identity(view.namespace, view.name, view.uid, view.version)
