"""Objects that a ClusterPolicy or an NVIDIADriver owns, and what a cache keeps of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpuward import names
from gpuward.kube.cache.cache import Cache
from gpuward.model.owned import OwnedView
from gpuward.model.views import DaemonSetView
from gpuward.wire.daemonsets import owned_view

_WITHOUT_OWNER: Final = frozenset({"ServiceAccount", "Role"})
"""Somebody else's account is left alone, and a role without an owner tells of an NVIDIADriver that left its drivers behind."""


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


def owned_by_operator(raw: bytes, kind: str) -> OwnedView | None:
    """Return the view of an object that has an owner; of service accounts and roles all."""
    view = owned_view(raw, kind)
    return view if view.owner_uid or kind in _WITHOUT_OWNER else None
