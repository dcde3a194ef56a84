"""The DaemonSet controller: one pod on each node that the template admits, replaced by the update strategy.

Facts from the Kubernetes DaemonSet controller. A node's pods are looked at again only when that node, one of those pods
or the template has changed; the status is kept as sums of what each node contributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuward.names import REVISION_HASH
from gpuward.sandbox.sim.controllers import revisions
from gpuward.sandbox.sim.controllers.daemonnode import (
    DAEMON_TOLERATIONS,
    DaemonFacts,
    NodeShare,
    Standing,
    daemon_pod,
    judge,
)
from gpuward.sandbox.sim.demands import demands_of, target_node
from gpuward.sandbox.sim.objects import (
    Object,
    controller_uid,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    owned_by,
    share,
    uid_of,
)
from gpuward.sandbox.sim.selection import selector_matches
from gpuward.sandbox.store import copy

if TYPE_CHECKING:
    from gpuward.sandbox.sim.world import World
    from gpuward.sandbox.store import Event

QUEUE: Final = "daemonset"
DAEMONSETS: Final = revisions.DAEMONSETS
FIRST_BACKOFF_SECONDS: Final = 1.0
LAST_BACKOFF_SECONDS: Final = 900.0


class _Daemon:
    """Hold what is known of one DaemonSet between two looks at it."""

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.facts: DaemonFacts | None = None
        self.pods: dict[str, dict[str, Object]] = {}
        self.shares: dict[str, NodeShare] = {}
        self.totals = [0] * len(NodeShare().counts)
        self.standing: dict[Standing, dict[str, None]] = {standing: {} for standing in Standing}
        self.dirty: dict[str, None] = {}
        self.failures: dict[str, tuple[int, float]] = {}

    def put_share(self, node: str, new: NodeShare | None) -> None:
        """Replace what a node contributes to the status."""
        old = self.shares.pop(node, None)
        if old is not None:
            self.totals = [total - part for total, part in zip(self.totals, old.counts, strict=True)]
            self.standing[old.standing].pop(node, None)
        if new is not None:
            self.shares[node] = new
            self.totals = [total + part for total, part in zip(self.totals, new.counts, strict=True)]
            self.standing[new.standing][node] = None


class DaemonSetController:
    """Keep every DaemonSet's pods and status as its spec wants them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._daemons: dict[str, _Daemon] = {}
        world.queue.register(QUEUE, self.sync)
        store = world.store
        store.subscribe(self._daemonset_changed, DAEMONSETS)
        store.subscribe(self._node_changed, "nodes")
        store.subscribe(self._pod_changed, "pods")
        for daemonset in store.list(DAEMONSETS):
            self._know(daemonset)
        for pod in store.list("pods"):
            self._note(pod, gone=False)

    # What has changed.

    def _know(self, daemonset: Object) -> None:
        uid = uid_of(daemonset)
        self._daemons.setdefault(uid, _Daemon((namespace_of(daemonset), name_of(daemonset))))
        self._world.queue.add(QUEUE, uid)

    def _daemonset_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            self._daemons.pop(uid_of(event.obj), None)
        elif event.old is None or event.old["metadata"] != event.obj["metadata"] or event.old["spec"] != event.obj["spec"]:
            self._know(event.obj)

    def _node_changed(self, event: Event) -> None:
        new, old = event.obj, event.old
        if event.type == "MODIFIED" and old is not None and labels_of(old) == labels_of(new) and all(
                old["spec"].get(field) == new["spec"].get(field) for field in ("taints", "unschedulable")):
            return
        for uid, daemon in self._daemons.items():
            daemon.dirty[name_of(new)] = None
            self._world.queue.add(QUEUE, uid)

    def _pod_changed(self, event: Event) -> None:
        if event.old is not None and controller_uid(event.old) != controller_uid(event.obj):
            self._note(event.old, gone=True)
        self._note(event.obj, gone=event.type == "DELETED")

    def _note(self, pod: Object, *, gone: bool) -> None:
        uid = controller_uid(pod)
        daemon = self._daemons.get(uid)
        if daemon is None:
            if not uid and not gone:
                self._offer(pod)
            return
        node = target_node(pod)
        if gone:
            there = daemon.pods.get(node, {})
            there.pop(uid_of(pod), None)
            if not there:
                daemon.pods.pop(node, None)
        else:
            daemon.pods.setdefault(node, {})[uid_of(pod)] = pod
        daemon.dirty[node] = None
        self._world.queue.add(QUEUE, uid)

    def _offer(self, orphan: Object) -> None:
        for uid, daemon in self._daemons.items():
            if daemon.key[0] == namespace_of(orphan):
                self._world.queue.add(QUEUE, uid)

    # One look at a DaemonSet.

    def sync(self, uid: str) -> None:
        """Bring the pods of one DaemonSet closer to what its spec wants, and tell its status."""
        daemon = self._daemons.get(uid)
        if daemon is None:
            return
        daemonset = self._world.store.get(DAEMONSETS, *daemon.key)
        if not is_terminating(daemonset):
            self._refresh(daemon, daemonset)
        facts = daemon.facts
        if facts is None:
            return
        dirty, daemon.dirty = daemon.dirty, {}
        for node in dirty:
            self._look_at(daemon, daemonset, facts, node)
        if not is_terminating(daemonset):
            self._roll(daemon, daemonset, facts)
        self._tell(daemon, daemonset, facts)

    def _refresh(self, daemon: _Daemon, daemonset: Object) -> None:
        generation = daemonset["metadata"].get("generation", 1)
        self._adopt(daemon, daemonset)
        if daemon.facts is not None and daemon.facts.generation == generation:
            return
        revision, collisions = revisions.current_revision(self._world.store, daemonset)
        template = daemonset["spec"]["template"]
        pod = {"metadata": {**template["metadata"], "namespace": namespace_of(daemonset)},
               "spec": {**template["spec"], "tolerations": [*(template["spec"].get("tolerations") or ()),
                                                            *DAEMON_TOLERATIONS]}}
        daemon.dirty.update(dict.fromkeys(name_of(node) for node in self._world.store.list("nodes")))
        daemon.dirty.update(dict.fromkeys(daemon.pods))
        daemon.facts = DaemonFacts(
            generation=generation, digest=labels_of(revision)[REVISION_HASH], number=revision["revision"],
            collisions=collisions, demands=demands_of(pod),
            min_ready_seconds=daemonset["spec"].get("minReadySeconds") or 0)
        live = {labels_of(found).get(REVISION_HASH, "") for found in self._world.pods.of(uid_of(daemonset))}
        revisions.trim_history(self._world.store, daemonset, live)

    def _adopt(self, daemon: _Daemon, daemonset: Object) -> None:
        owner = owned_by(daemonset, self._world.store.resource(DAEMONSETS))
        for orphan in list(self._world.pods.orphans(daemon.key[0])):
            if selector_matches(daemonset["spec"]["selector"], labels_of(orphan)):
                self._world.store.modify("pods", namespace_of(orphan), name_of(orphan), lambda pod: pod["metadata"].update(
                    ownerReferences=[*(pod["metadata"].get("ownerReferences") or ()), owner]))

    def _look_at(self, daemon: _Daemon, daemonset: Object, facts: DaemonFacts, name: str) -> None:
        node = self._world.store.find("nodes", None, name)
        pods = list(daemon.pods.get(name, {}).values())
        if node is None:
            # The pods of a node that is gone are the pod garbage collector's.
            daemon.put_share(name, None)
            daemon.failures.pop(name, None)
            return
        now = self._world.now()
        verdict = judge(node, pods, facts, now)
        daemon.put_share(name, verdict.share)
        if verdict.wake is not None:
            self._wake(daemonset, daemon, name, verdict.wake)
        if is_terminating(daemonset):
            return
        for pod in verdict.failed:
            self._remove_failed(daemon, daemonset, name, pod)
        for pod in verdict.surplus:
            self._delete(pod)
        if verdict.missing:
            self._world.store.create("pods", daemon_pod(daemonset, facts, name, self._world.store.resource(DAEMONSETS)))

    def _remove_failed(self, daemon: _Daemon, daemonset: Object, node: str, pod: Object) -> None:
        now = self._world.now()
        tries, allowed_at = daemon.failures.get(node, (0, 0.0))
        if now < allowed_at:
            self._wake(daemonset, daemon, node, allowed_at)
            return
        delay = min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** tries)
        daemon.failures[node] = (tries + 1, now + delay)
        self._delete(pod)

    def _wake(self, daemonset: Object, daemon: _Daemon, node: str, instant: float) -> None:
        daemon.dirty[node] = None
        self._world.queue.add_at(QUEUE, uid_of(daemonset), instant)

    def _delete(self, pod: Object) -> None:
        self._world.store.delete("pods", namespace_of(pod), name_of(pod), uid=uid_of(pod), propagation="Background")

    def _roll(self, daemon: _Daemon, daemonset: Object, facts: DaemonFacts) -> None:
        strategy = daemonset["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        limit = share((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), daemon.totals[0], round_up=True)
        free = limit - len(daemon.standing[Standing.GAP]) - len(daemon.standing[Standing.NEW_UNAVAILABLE])
        chosen = list(daemon.standing[Standing.OLD_UNAVAILABLE])
        candidates = list(daemon.standing[Standing.OLD])
        # An old pod that is not available costs nothing to replace, so it does not need a place.
        chosen += self._world.random.sample(candidates, min(max(0, free), len(candidates)))
        for node in chosen:
            for pod in list(daemon.pods.get(node, {}).values()):
                if not is_terminating(pod) and labels_of(pod).get(REVISION_HASH) != facts.digest:
                    self._delete(pod)

    def _tell(self, daemon: _Daemon, daemonset: Object, facts: DaemonFacts) -> None:
        desired, current, misscheduled, ready, available, updated = daemon.totals
        wanted = {"currentNumberScheduled": current, "numberMisscheduled": misscheduled,
                  "desiredNumberScheduled": desired, "numberReady": ready, "observedGeneration": facts.generation,
                  "updatedNumberScheduled": updated, "numberAvailable": available,
                  "numberUnavailable": desired - available}
        # The API leaves out zeros of the fields that are optional.
        status = {key: value for key, value in wanted.items()
                  if value or key in ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")}
        if facts.collisions:
            status["collisionCount"] = facts.collisions
        if status != daemonset.get("status"):
            self._world.store.patch_status(DAEMONSETS, *daemon.key, lambda obj: obj.update(status=copy(status)))
