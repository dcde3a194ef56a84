"""What every node can still take: allocatable minus the requests of the pods that are bound to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kubesandbox.sim.demands import quantity, repels, requests_of
from kubesandbox.sim.objects import Object, is_finished, name_of, node_of, uid_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubesandbox.store import Event, Store

PODS: Final = "pods"


@dataclass(slots=True)
class Room:
    """Hold one node's allocatable resources and how much of them is taken."""

    allocatable: dict[str, float] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)

    def lacking(self, requests: Mapping[str, float]) -> list[str]:
        """Return the resources of which the node has too little left; `pods` counts pods."""
        lacks = [] if self.taken.get(PODS, 0.0) + 1 <= self.allocatable.get(PODS, 0.0) else [PODS]
        for name, wanted in requests.items():
            if wanted and self.taken.get(name, 0.0) + wanted > self.allocatable.get(name, 0.0) + 1e-9:
                lacks.append(name)
        return lacks

    def load(self, requests: Mapping[str, float]) -> float:
        """Return how full the node is in what a pod asks for, as the mean of the fractions taken."""
        names = [name for name in requests if self.allocatable.get(name)] or [PODS]
        return sum(self.taken.get(name, 0.0) / (self.allocatable.get(name) or 1.0) for name in names) / len(names)

    def take(self, requests: Mapping[str, float], sign: int) -> None:
        """Count a pod in (+1) or out (-1)."""
        self.taken[PODS] = self.taken.get(PODS, 0.0) + sign
        for name, wanted in requests.items():
            self.taken[name] = self.taken.get(name, 0.0) + sign * wanted


class Capacity:
    """Keep the room on every node up to date with every change."""

    def __init__(self, store: Store) -> None:
        self.rooms: dict[str, Room] = {}
        self.repellers: dict[str, dict[str, Object]] = {}
        """The pods of each node that keep others off it by anti-affinity."""
        self._counted: dict[str, tuple[str, dict[str, float]]] = {}
        for node in store.list("nodes"):
            self._measure(node)
        for pod in store.list(PODS):
            self._count(pod)
        store.subscribe(self._node_changed, "nodes")
        store.subscribe(self._pod_changed, PODS)

    def _node_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            self.rooms[name_of(event.obj)].allocatable = {}
        else:
            self._measure(event.obj)

    def _measure(self, node: Object) -> None:
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        self.rooms.setdefault(name_of(node), Room()).allocatable = {
            name: quantity(value) for name, value in allocatable.items()}

    def _pod_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            self._discount(event.obj)
        else:
            self._count(event.obj)

    def _count(self, pod: Object) -> None:
        if is_finished(pod):
            self._discount(pod)
        elif node_of(pod) and uid_of(pod) not in self._counted:
            requests = requests_of(pod["spec"])
            self._counted[uid_of(pod)] = (node_of(pod), requests)
            self.rooms.setdefault(node_of(pod), Room()).take(requests, 1)
            if repels(pod):
                self.repellers.setdefault(node_of(pod), {})[uid_of(pod)] = pod

    def _discount(self, pod: Object) -> None:
        counted = self._counted.pop(uid_of(pod), None)
        if counted is not None:
            node, requests = counted
            self.rooms[node].take(requests, -1)
            self.repellers.get(node, {}).pop(uid_of(pod), None)
