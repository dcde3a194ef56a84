"""Make snapshots of changes again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec
from msgspec import UNSET

from gpuward.model.budgets import BudgetView
from gpuward.model.owned import OwnedView
from gpuward.model.snapshot import Applied, Snapshot
from gpuward.model.views import DaemonSetView, NodeView, PodView, PolicyView, RevisionView
from gpuward.recording.changes import MERGED, NOTHING, Changes, Table, V

_WHOLE = ("namespace", "refusals", "evicted", "refused_writes", "edits", "unsettled", "inherited", "grants", "references",
          "images", "measured", "maintenances", "unrequested", "place", "unlisted", "forbidden", "ledger_refused", "unanswered",
          "untaken", "watched_since")
"""What changes hold whole."""


class Facts:
    """Hold the facts as of the last change. Views that did not change stay the same objects."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeView] = {}
        self._pods: dict[str, PodView] = {}
        self._on_node: dict[str, dict[str, PodView]] = {}
        self._grouped: dict[str, tuple[PodView, ...]] = {}
        self._daemonsets: dict[str, DaemonSetView] = {}
        self._revisions: dict[str, RevisionView] = {}
        self._budgets: dict[str, BudgetView] = {}
        self._policies: dict[str, PolicyView] = {}
        self._rollout_policies: dict[str, PolicyView] = {}
        self._drivers: dict[str, PolicyView] = {}
        self._departed: dict[str, PolicyView] = {}
        self._owned: dict[str, OwnedView] = {}
        self._applied: dict[str, Applied] = {}
        self._rest = NOTHING

    def apply(self, changes: Changes) -> None:
        """Take changes over.

        Raises:
            ValueError: they are not about these facts.
        """
        _apply(self._nodes, changes.nodes)
        self._regroup(changes.pods)
        self._daemonsets = _ordered(_apply(self._daemonsets, changes.daemonsets), changes.daemonsets)
        self._revisions = _ordered(_apply(self._revisions, changes.revisions), changes.revisions)
        self._budgets = _ordered(_apply(self._budgets, changes.budgets), changes.budgets)
        self._policies = _ordered(_apply(self._policies, changes.policies), changes.policies)
        self._rollout_policies = _ordered(_apply(self._rollout_policies, changes.rollout_policies), changes.rollout_policies)
        self._drivers = _ordered(_apply(self._drivers, changes.drivers), changes.drivers)
        self._departed = _ordered(_apply(self._departed, changes.departed), changes.departed)
        _apply(self._owned, changes.owned)
        _apply(self._applied, changes.applied)
        whole = {field: value for field in _WHOLE if (value := getattr(changes, field)) is not UNSET}
        self._rest = msgspec.structs.replace(self._rest, **whole)

    def snapshot(self) -> Snapshot:
        """Return the facts, frozen."""
        return msgspec.structs.replace(
            self._rest,
            nodes=dict(self._nodes),
            pods=dict(self._grouped),
            daemonsets=tuple(self._daemonsets.values()),
            revisions=tuple(self._revisions.values()),
            budgets=tuple(self._budgets.values()),
            policies=tuple(self._policies.values()),
            rollout_policies=tuple(self._rollout_policies.values()),
            drivers=tuple(self._drivers.values()),
            departed=tuple(self._departed.values()),
            owned={_split(key): view for key, view in self._owned.items()},
            applied={_split(key): view for key, view in self._applied.items()},
        )

    def _regroup(self, table: Table[PodView]) -> None:
        touched = [*table.new, *table.changed, *table.gone]
        before = {key: self._pods[key].node for key in touched if key in self._pods}
        _apply(self._pods, table)
        groups = set(before.values())
        for key in touched:
            pod = self._pods.get(key)
            if key in before and (pod is None or pod.node != before[key]):
                del self._on_node[before[key]][key]
            if pod is not None:
                self._on_node.setdefault(pod.node, {})[key] = pod
                groups.add(pod.node)
        for node in groups:
            if pods := self._on_node[node]:
                self._grouped[node] = tuple(pods.values())
            else:
                self._grouped.pop(node, None)


def _split(key: str) -> tuple[str, str, str]:
    """Return an object's kind, namespace and name; in a recording that somebody made up they may be anything."""
    kind, namespace, name, *_ = (*key.split("/"), "", "")
    return kind, namespace, name


def _apply(views: dict[str, V], table: Table[V]) -> dict[str, V]:
    for key in table.gone:
        if views.pop(key, None) is None:
            raise ValueError(f"{key} goes and was not there")
    for key, fields in table.changed.items():
        if key not in views:
            raise ValueError(f"{key} changes and was not there")
        views[key] = _changed(views[key], fields)
    views.update(table.new)
    return views


def _changed(view: V, fields: Mapping[str, object]) -> V:
    types = _types(type(view))
    values = {
        field: _merged(getattr(view, field), value) if field in MERGED else msgspec.convert(value, types[field])
        for field, value in fields.items() if field in types
    }
    return msgspec.structs.replace(view, **values)


def _merged(before: Mapping[str, str], changes: object) -> dict[str, str]:
    changed = msgspec.convert(changes, dict[str, str | None])
    return {key: value for key, value in {**before, **changed}.items() if value is not None}


def _ordered(views: dict[str, V], table: Table[V]) -> dict[str, V]:
    return {key: views[key] for key in table.order} if table.order else views


@cache
def _types(view: type[msgspec.Struct]) -> dict[str, object]:
    return {field.name: field.type for field in msgspec.structs.fields(view)}
