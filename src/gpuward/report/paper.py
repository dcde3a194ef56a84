"""Play on paper what gpuward would write: the same decisions, on facts that each write changes as the API server would.

Statuses and gpuward's notes on custom resources are left out, and so is what an upgrade does to nodes: it takes its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.errors import PolicyError
from gpuward.labels.decide import decide_labels
from gpuward.labels.policy import label_policy, remembered_policy
from gpuward.model.actions import Action, ApplyObject, DeleteObject, DeletePod, PatchLabels, PatchNode, ReleasePod, SetOwner
from gpuward.model.owned import OwnedView
from gpuward.model.snapshot import Applied, Snapshot
from gpuward.model.views import DaemonSetView, NodeView
from gpuward.operands.decide import OperandMemory, decide
from gpuward.operands.nvidiadriver.decide import DriverMemory, decide_drivers
from gpuward.operands.status import Verdict
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from gpuward.wire.daemonsets import daemonset_view

ROUNDS: Final = 20
"""Passes after which nothing new is expected: objects come in a few, each after those that it needs."""
_VERSION: Final = "on paper"


class Node(msgspec.Struct, frozen=True):
    """Hold what would change about a node."""

    name: str
    labels: Mapping[str, str | None] = {}
    annotations: Mapping[str, str | None] = {}


class Written(msgspec.Struct, frozen=True):
    """Hold what would be written, and why some of it cannot be."""

    snapshot: Snapshot
    """The facts as they would be then."""
    objects: tuple[ApplyObject, ...] = ()
    """As they would be in the end, in the order in which they would be written."""
    deleted: tuple[DeleteObject, ...] = ()
    pods: tuple[DeletePod | ReleasePod, ...] = ()
    nodes: tuple[Node, ...] = ()
    place: Mapping[str, str] = {}
    """Labels of the operator's namespace."""
    problems: tuple[str, ...] = ()
    """What is wrong with the policies: of whose, and field, value and fix."""


def play(snapshot: Snapshot, images: Mapping[str, str], now: float) -> Written:
    """Return what gpuward would write to a cluster whose facts these are."""
    reader, paper = PolicyReader(), _Paper(snapshot)
    policies, memory, drivers = reader.read(snapshot), OperandMemory(), DriverMemory()
    for _ in range(ROUNDS):
        policies = reader.read(paper.snapshot)
        decided = decide(paper.snapshot, policies.policy, None, images, now, memory)
        driving = decide_drivers(paper.snapshot, policies, images, now, drivers)
        verdicts = {f"ClusterPolicy {policies.policy.view.name}" if policies.policy.view else "": decided.verdict,
                    **{f"NVIDIADriver {name}": verdict for name, verdict in driving.verdicts.items()}}
        if not paper.take([*_labels(paper.snapshot, policies, now), *decided.actions, *driving.actions]):
            break
    problems = [*_problems(policies, memory, drivers), *_refused(verdicts)]
    return paper.written(tuple(dict.fromkeys(problems)))


def _labels(snapshot: Snapshot, policies: PoliciesInForce, now: float) -> Sequence[PatchNode]:
    active = policies.policy
    if policies.in_force and not policies.known:
        return ()
    if active.valid is not None:
        policy = label_policy(active.valid, policies.claims, settings=active.upgrades.rollout)
    elif active.last_labels is not None:
        policy = remembered_policy(active.last_labels, policies.claims, settings=active.upgrades.rollout)
    else:
        return ()
    return decide_labels(snapshot, policy, now).patches


def _problems(policies: PoliciesInForce, memory: OperandMemory, drivers: DriverMemory) -> Iterable[str]:
    view = policies.policy.view
    if view is not None:
        states = memory.rendered[1] if memory.rendered is not None else ()
        errors = [*policies.policy.problems, *(state.error for state in states if state.error is not None)]
        yield from (_told(f"ClusterPolicy {view.name}", error) for error in errors)
    rollout = policies.policy.rollout
    yield from (_told(rollout.title, error) for error in rollout.problems)
    for each in policies.active if policies.in_force else ():
        made = drivers.rendered.get(each.view.name)
        errors = [*each.problems, *([made[1].state.error] if made is not None and made[1].state.error is not None else [])]
        yield from (_told(f"NVIDIADriver {each.view.name}", error) for error in errors)
        if (conflict := policies.conflicts.get(each.view.name) or policies.overlaps.get(each.view.name)) is not None:
            yield f"NVIDIADriver {each.view.name}: {conflict}"


def _told(whose: str, error: PolicyError) -> str:
    return f"{whose}: {error}"


def _refused(verdicts: Mapping[str, Verdict | None]) -> Iterable[str]:
    """Yield what only a verdict says: policies that contradict themselves, kinds that cannot be listed."""
    for whose, verdict in verdicts.items():
        if verdict is not None and not verdict.ready and "cannot be listed" in verdict.message:
            yield f"{whose}: {verdict.message}"


class _Paper:
    """Keep the facts, and what was written so far."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._seen: set[tuple[Any, ...]] = set()
        self._objects: dict[tuple[str, str, str], ApplyObject] = {}
        self._deleted: dict[tuple[str, str, str], DeleteObject] = {}
        self._pods: dict[str, DeletePod | ReleasePod] = {}
        self._nodes: dict[str, Node] = {}
        self._place: dict[str, str] = {}

    def take(self, actions: Iterable[Action]) -> bool:
        """Take actions over that are new; tell whether there were any."""
        news = [action for action in actions if (key := _key(action)) is not None and key not in self._seen]
        for action in news:
            self._seen.add(_key(action) or ())
            match action:
                case ApplyObject():
                    self._apply(action)
                case DeleteObject():
                    self._delete(action)
                case PatchNode():
                    self._patch(action)
                case SetOwner():
                    self._own(action)
                case PatchLabels():
                    self._place |= action.labels
                case DeletePod() | ReleasePod():
                    self._pods[str(action.pod)] = action
        return bool(news)

    def written(self, problems: tuple[str, ...]) -> Written:
        """Return all of it."""
        return Written(self.snapshot, tuple(self._objects.values()), tuple(self._deleted.values()), tuple(self._pods.values()),
                       tuple(self._nodes[name] for name in sorted(self._nodes)), self._place, problems)

    def _apply(self, action: ApplyObject) -> None:
        key = action.kind, action.ref.namespace, action.ref.name
        self._objects[key] = action
        self._deleted.pop(key, None)
        owner = next((ref["uid"] for ref in action.body["metadata"].get("ownerReferences", ()) if ref.get("controller")), "")
        sets, digest, had = self.snapshot.daemonsets, "", self.snapshot.owned.get(key)
        generation = had.generation if had is not None else 1
        if action.kind == "DaemonSet":
            view = _view(action, next((ds for ds in sets if (ds.namespace, ds.name) == key[1:]), None))
            digest, generation = view.metadata_digest, view.generation
            sets = (*(ds for ds in sets if (ds.namespace, ds.name) != key[1:]), view)
        owned = OwnedView(*key, action.ref.uid or _VERSION, _VERSION, generation, owner, action.hash)
        self.snapshot = msgspec.structs.replace(
            self.snapshot, daemonsets=sets, owned={**self.snapshot.owned, key: owned},
            applied={**self.snapshot.applied, key: Applied(action.hash, _VERSION, generation, digest)})

    def _delete(self, action: DeleteObject) -> None:
        key = action.kind, action.ref.namespace, action.ref.name
        if key in self._objects and not self._objects[key].version:
            del self._objects[key]
        self._deleted[key] = action
        self.snapshot = msgspec.structs.replace(
            self.snapshot,
            daemonsets=tuple(ds for ds in self.snapshot.daemonsets if ds.uid != action.ref.uid or action.kind != "DaemonSet"),
            owned={other: view for other, view in self.snapshot.owned.items() if other != key})

    def _own(self, action: SetOwner) -> None:
        policies = (action.policy.uid,) if action.policy is not None else ()
        self.snapshot = msgspec.structs.replace(self.snapshot, daemonsets=tuple(
            msgspec.structs.replace(ds, policies=policies,
                                    upgrade_policy=action.annotations.get(names.VALID_UPGRADE_POLICY, ds.upgrade_policy) or "")
            if ds.uid == action.ref.uid else ds for ds in self.snapshot.daemonsets))

    def _patch(self, action: PatchNode) -> None:
        name = action.node.name
        node, known = self.snapshot.nodes[name], self._nodes.get(name, Node(name))
        changed = _changed(node, action)
        self._nodes[name] = Node(name, {**known.labels, **action.labels}, {**known.annotations, **action.annotations})
        self.snapshot = msgspec.structs.replace(self.snapshot, nodes={**self.snapshot.nodes, name: changed})


def _key(action: Action) -> tuple[Any, ...] | None:
    """Return by what an action is known that was taken over; None for what is left out."""
    match action:
        case ApplyObject():
            return "apply", action.lane, action.hash
        case DeleteObject():
            return "delete", action.lane, action.ref.uid
        case PatchNode():
            return "node", action.lane, tuple(sorted(action.labels.items())), tuple(sorted(action.annotations.items()))
        case SetOwner():
            return "owner", action.lane, action.policy, tuple(sorted(action.annotations))
        case PatchLabels():
            return "labels", action.lane
        case DeletePod() | ReleasePod():
            return "pod", str(action.pod), action.pod.uid
    return None


def _changed(node: NodeView, action: PatchNode) -> NodeView:
    labels = {key: value for key, value in {**node.labels, **action.labels}.items() if value is not None}
    notes = {key: value for key, value in {**node.annotations, **action.annotations}.items() if value is not None}
    return msgspec.structs.replace(node, labels=labels, annotations=notes, has_annotations=bool(notes) or node.has_annotations)


def _view(action: ApplyObject, there: DaemonSetView | None) -> DaemonSetView:
    view = daemonset_view(msgspec.json.encode(action.body))
    generation = there.generation + 1 if there is not None else 1
    counts = {field: getattr(there, field) for field in ("desired", "updated", "available", "misscheduled")} if there else {}
    return msgspec.structs.replace(view, uid=there.uid if there is not None else f"{_VERSION}/{view.name}", version=_VERSION,
                                   generation=generation, observed_generation=generation, **counts)

