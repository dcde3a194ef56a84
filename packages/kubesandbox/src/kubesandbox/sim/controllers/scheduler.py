"""The scheduler: binds pods to nodes that can take them, and says why it cannot.

It respects node selectors, required node affinity, cordons and taints, resources (devices as any other), the number of
pods, and required pod anti-affinity by hostname. It does not preempt, and leaves preferences, pod affinity and spread
constraints aside. Like kube-scheduler it looks at a sample of a large cluster, and tries again what did not fit when
something has changed that could help: here, on the nodes that have changed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kubesandbox.sim.controllers.capacity import Capacity
from kubesandbox.sim.demands import Demands, demands_of
from kubesandbox.sim.objects import (
    Object,
    is_finished,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    uid_of,
    with_condition,
)
from kubesandbox.sim.recorder import Recorder
from kubesandbox.sim.selection import BLOCKING_EFFECTS, UNSCHEDULABLE_TAINT, untolerated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

POD_QUEUE: Final = "schedule"
NODE_QUEUE: Final = "schedule-onto"
SCHEDULER: Final = "default-scheduler"
SAMPLE: Final = 16
"""So many nodes that can take a pod are compared; kube-scheduler, too, looks at a part of a large cluster only."""


class Scheduler:
    """Bind every pod that names no node to the least loaded node that can take it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._recorder = Recorder(world, SCHEDULER)
        self._capacity = Capacity(world.store)
        self._nodes: dict[str, None] = {name_of(node): None for node in world.store.list("nodes")}
        self._names: list[str] | None = None
        self._next = 0
        self._demands: dict[str, Demands] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        self._waiting_for: dict[str, dict[str, None]] = {}
        self._group_of: dict[str, str] = {}
        self._refusals: dict[str, str] = {}
        """Why the waiting pods of each group fit nowhere."""
        world.queue.register(POD_QUEUE, self._schedule)
        world.queue.register(NODE_QUEUE, self._retry)
        world.store.subscribe(self._pod_changed, "pods")
        world.store.subscribe(self._node_changed, "nodes")
        for pod in world.store.list("pods"):
            self._consider(pod)

    # What has changed.

    def _pod_changed(self, event: Event) -> None:
        pod = event.obj
        if event.type == "ADDED":
            self._consider(pod)
        elif event.type == "DELETED" or (is_finished(pod) and event.old is not None and not is_finished(event.old)):
            self._stop_waiting(uid_of(pod))
            self._demands.pop(uid_of(pod), None)
            if node_of(pod):
                self._world.queue.add(NODE_QUEUE, node_of(pod))
        elif event.old is not None and not node_of(pod) and event.old["spec"] != pod["spec"]:
            self._stop_waiting(uid_of(pod))
            self._demands.pop(uid_of(pod), None)
            self._consider(pod)

    def _consider(self, pod: Object) -> None:
        if not node_of(pod) and not is_terminating(pod) and pod["spec"].get("schedulerName", SCHEDULER) == SCHEDULER:
            self._world.queue.add(POD_QUEUE, uid_of(pod))

    def _node_changed(self, event: Event) -> None:
        name = name_of(event.obj)
        if event.type == "DELETED":
            self._nodes.pop(name, None)
            self._names = None
        elif event.type == "ADDED":
            self._nodes[name] = None
            self._names = None
            self._world.queue.add(NODE_QUEUE, name)
        elif event.old is not None and _matters(event.old, event.obj):
            self._world.queue.add(NODE_QUEUE, name)

    # Deciding.

    def _schedule(self, uid: str) -> None:
        pod = self._world.pods.by_uid.get(uid)
        if pod is None or node_of(pod) or is_terminating(pod) or is_finished(pod) or pod["spec"].get("schedulingGates"):
            return
        demands = self._demands_of(pod)
        if self._waiting and not demands.target and (group := demands.signature()) in self._waiting:
            # Equal pods wait already: what fits nowhere for them does not for this one, and changed nodes are tried anyway.
            self._wait(pod, demands, self._refusals[group])
            return
        reasons: Counter[str] = Counter()
        names = self._candidates(demands)
        feasible: list[tuple[float, str]] = []
        looked = 0
        for name in self._from_next(names):
            looked += 1
            why = self._why_not(name, demands)
            if why:
                reasons.update(why)
                continue
            feasible.append((self._capacity.rooms[name].load(demands.requests), name))
            if len(feasible) >= SAMPLE:
                break
        self._next += looked if not demands.target else 0
        if feasible:
            least = min(load for load, _ in feasible)
            self._bind(pod, self._world.random.choice([name for load, name in feasible if load == least]))
        else:
            self._give_up(pod, demands, reasons)

    def _candidates(self, demands: Demands) -> list[str]:
        if demands.target:
            return [demands.target] if demands.target in self._nodes else []
        if self._names is None:
            self._names = list(self._nodes)
        return self._names

    def _from_next(self, names: list[str]) -> Iterator[str]:
        start = self._next % len(names) if names else 0
        for place in range(len(names)):
            yield names[(start + place) % len(names)]

    def _why_not(self, name: str, demands: Demands) -> list[str]:
        """Return what speaks against a node, in kube-scheduler's words; nothing when the node can take the pod."""
        node = self._world.store.get("nodes", None, name)
        if not demands.fits_labels(node):
            return ["node(s) didn't match Pod's node affinity/selector"]
        taint = untolerated(node, demands.tolerations, BLOCKING_EFFECTS)
        if taint is not None:
            if taint["key"] == UNSCHEDULABLE_TAINT:
                return ["node(s) were unschedulable"]
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value') or ''}}}"]
        if lacking := self._capacity.rooms[name].lacking(demands.requests):
            return ["Too many pods" if lack == "pods" else f"Insufficient {lack}" for lack in lacking]
        others = self._world.pods.on_node(name) if demands.repelled_by else self._capacity.repellers.get(name, {}).values()
        if demands.is_kept_off_by(pod for pod in others if not is_finished(pod)):
            return ["node(s) didn't match pod anti-affinity rules"]
        return []

    def _demands_of(self, pod: Object) -> Demands:
        found = self._demands.get(uid_of(pod))
        if found is None:
            found = self._demands[uid_of(pod)] = demands_of(pod)
        return found

    def _bind(self, pod: Object, node: str) -> None:
        self._stop_waiting(uid_of(pod))
        self._demands.pop(uid_of(pod), None)
        self._world.store.bind(pod, node)

    # What does not fit.

    def _give_up(self, pod: Object, demands: Demands, reasons: Counter[str]) -> None:
        missing = len(self._nodes) - sum(reasons.values())
        if demands.target and missing > 0:
            reasons["node(s) didn't satisfy plugin(s) [NodeAffinity]"] = missing
        listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        self._wait(pod, demands, f"0/{len(self._nodes)} nodes are available: {listed}." if listed
                   else "no nodes available to schedule pods")

    def _wait(self, pod: Object, demands: Demands, message: str) -> None:
        """Put a pod among those that wait for a node to change, and say why it does."""
        uid = uid_of(pod)
        if demands.target:
            self._waiting_for.setdefault(demands.target, {})[uid] = None
        else:
            group = self._group_of[uid] = demands.signature()
            self._waiting.setdefault(group, {})[uid] = None
            self._refusals[group] = message
        verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                   "lastProbeTime": None}

        def change(obj: Object) -> None:
            obj["status"]["conditions"] = with_condition(obj["status"].get("conditions") or [], verdict, self._world.now())
        self._world.store.patch_status("pods", namespace_of(pod), name_of(pod), change)
        self._recorder.warn(pod, "FailedScheduling", message)

    def _stop_waiting(self, uid: str) -> None:
        group = self._group_of.pop(uid, None)
        if group is not None:
            self._waiting[group].pop(uid, None)
            if not self._waiting[group]:
                del self._waiting[group], self._refusals[group]
        demands = self._demands.get(uid)
        if demands is not None and demands.target:
            self._waiting_for.get(demands.target, {}).pop(uid, None)

    def _retry(self, node: str) -> None:
        """Try the waiting pods on a node that has changed: of equal pods one after another until one does not fit."""
        if node not in self._nodes:
            return
        for uid in list(self._waiting_for.get(node, {})):
            self._try_on(uid, node)
        for group in list(self._waiting):
            for uid in list(self._waiting.get(group, {})):
                if not self._try_on(uid, node):
                    break

    def _try_on(self, uid: str, node: str) -> bool:
        pod = self._world.pods.by_uid.get(uid)
        if pod is None or node_of(pod) or is_terminating(pod):
            self._stop_waiting(uid)
            return True
        if self._why_not(node, self._demands_of(pod)):
            return False
        self._bind(pod, node)
        return True


def _matters(old: Object, new: Object) -> bool:
    return (labels_of(old) != labels_of(new) or old["spec"] != new["spec"]
            or (old.get("status") or {}).get("allocatable") != (new.get("status") or {}).get("allocatable"))
