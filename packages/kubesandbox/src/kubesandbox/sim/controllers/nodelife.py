"""The node lifecycle controller: taints for what nodes report, silence, and pods that must leave or have lost their node.

Facts from Kubernetes: a cordon becomes the taint `unschedulable`; a kubelet that is silent for the grace period turns the
node's conditions to Unknown; not-ready and unreachable are taints with both effects; pods without a toleration of their
own stay 300 seconds (the default that the API server's admission adds); the pods of a node that no longer exists are
removed by the pod garbage collector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubesandbox.sim.objects import (
    KUBELET_CONDITIONS,
    Object,
    condition,
    is_finished,
    is_terminating,
    is_true,
    name_of,
    namespace_of,
    node_of,
    stamp,
    uid_of,
    with_condition,
)
from kubesandbox.sim.selection import NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT, covers

if TYPE_CHECKING:
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

QUEUE: Final = "node"
LOST_QUEUE: Final = "lost-node"
SILENCE_QUEUE: Final = "silent-node"
DEFAULT_STAY_SECONDS: Final = 300.0
_OURS: Final = (UNSCHEDULABLE_TAINT, NOT_READY_TAINT, UNREACHABLE_TAINT)


class NodeLifecycle:
    """Turn what nodes report, or no longer report, into taints and departures of pods."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._silent: dict[str, float] = {}
        self._lost: dict[str, float] = {}
        """When each node that was deleted was deleted last."""
        self._driven_since: dict[str, float] = {}
        """When a pod was first seen under a taint that it does not tolerate for ever, by its uid."""
        world.queue.register(QUEUE, self.sync)
        world.queue.register(LOST_QUEUE, self._collect)
        world.queue.register(SILENCE_QUEUE, self._presume_dead)
        world.store.subscribe(self._node_changed, "nodes")
        world.store.subscribe(self._pod_changed, "pods")
        for node in world.store.list("nodes"):
            world.queue.add(QUEUE, name_of(node))

    def fall_silent(self, node: str) -> None:
        """Note that a node's kubelet has stopped to report."""
        self._silent.setdefault(node, self._world.now())
        self._world.queue.add_at(SILENCE_QUEUE, node, self._silent[node] + self._world.delays.node_grace_seconds)

    def speak_again(self, node: str) -> None:
        """Note that a node's kubelet reports again."""
        self._silent.pop(node, None)
        self._world.queue.add(QUEUE, node)

    def _node_changed(self, event: Event) -> None:
        name = name_of(event.obj)
        if event.type == "DELETED":
            self._silent.pop(name, None)
            self._lost[name] = self._world.now()
            self._world.queue.add_at(LOST_QUEUE, name, self._world.now() + self._world.delays.pod_gc_seconds)
        elif event.old is None or event.old["spec"] != event.obj["spec"] or _readiness(event.old) != _readiness(event.obj):
            self._world.queue.add(QUEUE, name)

    def _pod_changed(self, event: Event) -> None:
        node = node_of(event.obj)
        if event.type == "DELETED":
            self._driven_since.pop(uid_of(event.obj), None)
        if event.type == "DELETED" or not node or (event.old is not None and node_of(event.old) == node):
            return
        found = self._world.store.find("nodes", None, node)
        if found is None:
            self._world.queue.add_at(LOST_QUEUE, node, self._world.now() + self._world.delays.pod_gc_seconds)
        elif any(taint["effect"] == "NoExecute" for taint in found["spec"].get("taints") or ()):
            self._world.queue.add(QUEUE, node)

    def sync(self, name: str) -> None:
        """Give one node the taints that its state asks for, and send away the pods that must not stay."""
        node = self._world.store.find("nodes", None, name)
        if node is None:
            return
        self._taint(node)
        node = self._world.store.get("nodes", None, name)
        if not is_true(node, "Ready"):
            self._mark_pods_not_ready(name)
        driving = [taint for taint in node["spec"].get("taints") or () if taint["effect"] == "NoExecute"]
        for pod in list(self._world.pods.on_node(name)):
            if driving:
                self._send_away(pod, driving)
            else:
                self._driven_since.pop(uid_of(pod), None)

    def _taint(self, node: Object) -> None:
        wanted = []
        if node["spec"].get("unschedulable"):
            wanted.append((UNSCHEDULABLE_TAINT, "NoSchedule"))
        state = _readiness(node)
        if state != "True":
            key = NOT_READY_TAINT if state == "False" else UNREACHABLE_TAINT
            wanted += [(key, "NoSchedule"), (key, "NoExecute")]
        old = node["spec"].get("taints") or []
        taints = [taint for taint in old if taint["key"] not in _OURS or (taint["key"], taint["effect"]) in wanted]
        known = {(taint["key"], taint["effect"]) for taint in taints}
        now = stamp(self._world.now())
        taints += [{"key": key, "effect": effect, "timeAdded": now}
                   for key, effect in wanted if (key, effect) not in known]
        if taints != old:
            self._world.store.modify("nodes", None, name_of(node), lambda obj: _set_taints(obj, taints))

    def _send_away(self, pod: Object, taints: list[Object]) -> None:
        if is_terminating(pod) or is_finished(pod):
            return
        now = self._world.now()
        stay = min(_stay(pod, taint) for taint in taints)
        leave_at = self._driven_since.setdefault(uid_of(pod), now) + stay
        if leave_at <= now:
            self._world.store.patch_status("pods", namespace_of(pod), name_of(pod), lambda obj: _mark_disrupted(obj, now))
            self._world.store.delete("pods", namespace_of(pod), name_of(pod), uid=uid_of(pod))
        elif leave_at < float("inf"):
            self._world.queue.add_at(QUEUE, node_of(pod), leave_at)

    def _mark_pods_not_ready(self, node: str) -> None:
        now = self._world.now()
        for pod in list(self._world.pods.on_node(node)):
            if is_true(pod, "Ready"):
                self._world.store.patch_status("pods", namespace_of(pod), name_of(pod), lambda obj: obj["status"].update(
                    conditions=with_condition(obj["status"]["conditions"], {
                        "type": "Ready", "status": "False", "reason": "NodeNotReady", "lastProbeTime": None}, now)))

    def _presume_dead(self, name: str) -> None:
        since = self._silent.get(name)
        node = self._world.store.find("nodes", None, name)
        if since is None or node is None or since + self._world.delays.node_grace_seconds > self._world.now():
            return
        def change(obj: Object) -> None:
            for kind in KUBELET_CONDITIONS:
                if condition(obj, kind) is not None:
                    obj["status"]["conditions"] = with_condition(obj["status"]["conditions"], {
                        **(condition(obj, kind) or {}), "status": "Unknown", "reason": "NodeStatusUnknown",
                        "message": "Kubelet stopped posting node status."}, self._world.now())
        self._world.store.patch_status("nodes", None, name, change)

    def _collect(self, name: str) -> None:
        if self._world.store.find("nodes", None, name) is not None:
            return
        now = self._world.now()
        # The queue rounds instants: what it calls a hair too early has come.
        if now < (until := self._lost.get(name, 0.0) + self._world.delays.pod_gc_seconds) - 0.001:
            # It came back for a while, and the wait begins anew.
            self._world.queue.add_at(LOST_QUEUE, name, until)
            return
        for pod in list(self._world.pods.on_node(name)):
            if not is_finished(pod):
                self._world.store.patch_status("pods", namespace_of(pod), name_of(pod), lambda obj: _mark_lost(obj, now))
            self._world.store.delete("pods", namespace_of(pod), name_of(pod), uid=uid_of(pod), grace_seconds=0)


def _readiness(node: Object) -> str:
    found = condition(node, "Ready")
    return found["status"] if found else "Unknown"


def _set_taints(node: Object, taints: list[Object]) -> None:
    node["spec"].pop("taints", None)
    if taints:
        node["spec"]["taints"] = taints


def _stay(pod: Object, taint: Object) -> float:
    """Return how many seconds a pod may stay under a taint."""
    covering = [found for found in pod["spec"].get("tolerations") or () if covers(found, taint)]
    if not covering:
        return DEFAULT_STAY_SECONDS if taint["key"] in _OURS else 0.0
    stays = [found["tolerationSeconds"] for found in covering if found.get("tolerationSeconds") is not None]
    return float(min(stays)) if stays else float("inf")


def _mark_lost(pod: Object, now: float) -> None:
    pod["status"]["phase"] = "Failed"
    pod["status"]["conditions"] = with_condition(pod["status"].get("conditions") or [], {
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists"}, now)


def _mark_disrupted(pod: Object, now: float) -> None:
    pod["status"]["conditions"] = with_condition(pod["status"].get("conditions") or [], {
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint"}, now)
