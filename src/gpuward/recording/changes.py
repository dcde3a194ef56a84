"""What changed between two snapshots, of all that a decision about upgrades or operands reads and of nothing else.

Custom resources get in without what may be secret in them (`redacted`). Of a node's annotations only those of NVIDIA's and ours
get in, as anything may be in the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from gpuward.model.analysis import Measured
from gpuward.model.budgets import BudgetView
from gpuward.model.driver_images import DriverImages
from gpuward.model.maintenance import MaintenanceView
from gpuward.model.owned import OwnedView
from gpuward.model.place import PlaceView
from gpuward.model.snapshot import Applied, Edit, Evicted, References, Refusal, Snapshot, Untaken
from gpuward.model.views import DaemonSetView, NodeView, PodView, PolicyView, RevisionView
from gpuward.recording.redacted import recorded_annotations, redacted

MERGED: Final = frozenset({"labels", "annotations"})
"""Fields of which only the keys that differ are kept; None says that a key is gone."""
MOST: Final = 1000
"""Views in one part, so that encoding one takes a few milliseconds at most."""

View = NodeView | PodView | DaemonSetView | RevisionView | BudgetView | PolicyView | OwnedView | Applied
V = TypeVar("V", NodeView, PodView, DaemonSetView, RevisionView, BudgetView, PolicyView, OwnedView, Applied)
K = TypeVar("K", PodView, DaemonSetView, RevisionView, BudgetView, PolicyView)
H = TypeVar("H", OwnedView, Applied)
L = TypeVar("L", DaemonSetView, RevisionView, BudgetView, PolicyView)


class Table(msgspec.Struct, Generic[V], frozen=True, omit_defaults=True):
    """Hold what changed about views of one kind, by namespace and name."""

    new: Mapping[str, V] = {}
    changed: Mapping[str, Mapping[str, object]] = {}
    """Only the fields that differ."""
    gone: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    """All keys in their order, where it is another one than that of the views before with the new ones after them."""


class Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold what changed between two snapshots. Small things are given whole, if they changed."""

    namespace: str | UnsetType = UNSET
    nodes: Table[NodeView] = Table()
    pods: Table[PodView] = Table()
    daemonsets: Table[DaemonSetView] = Table()
    revisions: Table[RevisionView] = Table()
    budgets: Table[BudgetView] = Table()
    refusals: Mapping[str, Refusal] | UnsetType = UNSET
    evicted: Mapping[str, Mapping[str, Evicted]] | UnsetType = UNSET
    refused_writes: Mapping[str, Refusal] | UnsetType = UNSET
    edits: Mapping[str, Edit] | UnsetType = UNSET
    untaken: Mapping[str, Untaken] | UnsetType = UNSET
    unsettled: frozenset[str] | UnsetType = UNSET
    unanswered: Mapping[str, float] | UnsetType = UNSET
    ledger_refused: Refusal | UnsetType | None = UNSET
    inherited: frozenset[str] | UnsetType = UNSET
    watched_since: float | UnsetType = UNSET
    grants: Mapping[str, str] | UnsetType | None = UNSET
    policies: Table[PolicyView] = Table()
    rollout_policies: Table[PolicyView] = Table()
    drivers: Table[PolicyView] = Table()
    departed: Table[PolicyView] = Table()
    owned: Table[OwnedView] = Table()
    applied: Table[Applied] = Table()
    references: References | UnsetType = UNSET
    images: DriverImages | UnsetType | None = UNSET
    measured: Mapping[str, Measured] | UnsetType = UNSET
    maintenances: Mapping[str, MaintenanceView] | UnsetType | None = UNSET
    unrequested: Mapping[str, str] | UnsetType = UNSET
    place: PlaceView | UnsetType | None = UNSET
    unlisted: Mapping[str, str] | UnsetType = UNSET
    forbidden: frozenset[str] | UnsetType = UNSET


NOTHING: Final = Snapshot("")
"""What a recording begins from."""


def changes_between(before: Snapshot, after: Snapshot) -> Changes:
    """Return what changed. Views that are the same objects are not looked into."""
    return Changes(
        namespace=_whole(before.namespace, after.namespace),
        nodes=_table(before.nodes, after.nodes),
        pods=_pods(before, after),
        daemonsets=_listed(before.daemonsets, after.daemonsets),
        revisions=_listed(before.revisions, after.revisions),
        budgets=_listed(before.budgets, after.budgets),
        refusals=_whole(before.refusals, after.refusals),
        evicted=_whole(before.evicted, after.evicted),
        refused_writes=_whole(before.refused_writes, after.refused_writes),
        edits=_whole(before.edits, after.edits),
        untaken=_whole(before.untaken, after.untaken),
        unsettled=_whole(before.unsettled, after.unsettled),
        unanswered=_whole(before.unanswered, after.unanswered),
        ledger_refused=_whole(before.ledger_refused, after.ledger_refused),
        inherited=_whole(before.inherited, after.inherited),
        watched_since=_whole(before.watched_since, after.watched_since),
        grants=_whole(before.grants, after.grants),
        policies=_policies(before.policies, after.policies),
        rollout_policies=_policies(before.rollout_policies, after.rollout_policies),
        drivers=_policies(before.drivers, after.drivers),
        departed=_policies(before.departed, after.departed),
        owned=_table(_joined(before.owned), _joined(after.owned)),
        applied=_table(_joined(before.applied), _joined(after.applied)),
        references=_whole(before.references, after.references),
        images=_whole(before.images, after.images),
        measured=_whole(before.measured, after.measured),
        maintenances=_whole(before.maintenances, after.maintenances),
        unrequested=_whole(before.unrequested, after.unrequested),
        place=_whole(before.place, after.place),
        unlisted=_whole(before.unlisted, after.unlisted),
        forbidden=_whole(before.forbidden, after.forbidden),
    )


def in_parts(changes: Changes) -> Iterator[Changes]:
    """Return the new nodes and pods in parts of a size that nobody waits for, and at last all the rest."""
    nodes, pods = changes.nodes.new, changes.pods.new
    if len(nodes) + len(pods) > MOST:
        for part in _split(nodes):
            yield Changes(nodes=Table(new=part))
        for few in _split(pods):
            yield Changes(pods=Table(new=few))
        rest_of_nodes = msgspec.structs.replace(changes.nodes, new={})
        rest_of_pods = msgspec.structs.replace(changes.pods, new={})
        changes = msgspec.structs.replace(changes, nodes=rest_of_nodes, pods=rest_of_pods)
    yield changes


def key_of(view: PodView | DaemonSetView | RevisionView | BudgetView | PolicyView) -> str:
    """Return by what a view is known in its table."""
    return view.name if isinstance(view, PolicyView) else f"{view.namespace}/{view.name}"


T = TypeVar("T")


def _whole(before: T, after: T) -> T | UnsetType:
    return UNSET if before is after or before == after else after


def _split(views: Mapping[str, V]) -> Iterator[dict[str, V]]:
    keys = list(views)
    for start in range(0, len(keys), MOST):
        yield {key: views[key] for key in keys[start:start + MOST]}


def _pods(before: Snapshot, after: Snapshot) -> Table[PodView]:
    """Return what changed about pods; those of a node of which none changed are the same tuple."""
    old: dict[str, PodView] = {}
    new: dict[str, PodView] = {}
    for node, pods in after.pods.items():
        was = before.pods.get(node, ())
        if was is not pods:
            old.update(_keyed(was))
            new.update(_keyed(pods))
    for node, was in before.pods.items():
        if node not in after.pods:
            old.update(_keyed(was))
    return _table(old, new)


def _policies(before: tuple[PolicyView, ...], after: tuple[PolicyView, ...]) -> Table[PolicyView]:
    """Return what changed about custom resources, of what is recorded of them."""
    if before == after:
        return Table()
    return _listed(tuple(map(redacted, before)), tuple(map(redacted, after)))


def _listed(before: tuple[L, ...], after: tuple[L, ...]) -> Table[L]:
    """Return what changed about views whose order may matter."""
    old: dict[str, L] = _keyed(before)
    new: dict[str, L] = _keyed(after)
    table: Table[L] = _table(old, new)
    expected = (*(key for key in old if key in new), *table.new)
    order = () if expected == tuple(new) else tuple(new)
    return Table(table.new, table.changed, table.gone, order)


def _keyed(views: Iterable[K]) -> dict[str, K]:
    return {key_of(view): view for view in views}


def _joined(views: Mapping[tuple[str, str, str], H]) -> dict[str, H]:
    """Return objects by kind, namespace and name in one text: none of the three has a slash in it."""
    return {"/".join(key): view for key, view in views.items()}


def _table(old: Mapping[str, V], new: Mapping[str, V]) -> Table[V]:
    added: dict[str, V] = {}
    changed: dict[str, Mapping[str, object]] = {}
    for key, view in new.items():
        was = old.get(key)
        if was is view:
            continue
        if was is None:
            added[key] = _scrubbed(view)
        elif fields := _fields(_scrubbed(was), _scrubbed(view)):
            changed[key] = fields
    gone = tuple(key for key in old if key not in new)
    return Table(added, changed, gone)


def _scrubbed(view: V) -> V:
    """Return a view without what is not recorded."""
    if isinstance(view, NodeView):
        kept = recorded_annotations(view.annotations)
        if len(kept) < len(view.annotations):
            return msgspec.structs.replace(view, annotations=kept)
    return view


def _fields(old: View, new: View) -> dict[str, object]:
    changed: dict[str, object] = {}
    for field in new.__struct_fields__:
        was, now = getattr(old, field), getattr(new, field)
        if was is not now and was != now:
            changed[field] = _keys(was, now) if field in MERGED else now
    return changed


def _keys(was: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    changed: dict[str, str | None] = {key: value for key, value in now.items() if was.get(key) != value}
    return changed | {key: None for key in was if key not in now}
