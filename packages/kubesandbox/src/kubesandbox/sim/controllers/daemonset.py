"""The DaemonSet controller: one pod on each node that the template admits, replaced by the update strategy.

Facts from the Kubernetes DaemonSet controller. A node's pods are looked at again only when that node, one of those pods
or the template has changed; the status is kept as sums of what each node contributes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kubesandbox.sim.controllers import revisions
from kubesandbox.sim.controllers.daemonnode import (
    DAEMON_TOLERATIONS,
    DaemonFacts,
    NodeShare,
    Standing,
    daemon_pod,
    is_updated,
    judge,
)
from kubesandbox.sim.controllers.podmaking import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, PodMaker
from kubesandbox.sim.controllers.revisions import REVISION_HASH
from kubesandbox.sim.demands import demands_of, target_node
from kubesandbox.sim.objects import (
    Object,
    annotations_of,
    controller_uid,
    disown,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    owned_by,
    share,
    uid_of,
)
from kubesandbox.sim.recorder import Recorder
from kubesandbox.sim.selection import selector_matches
from kubesandbox.store import copy
from kubesandbox.strategies import TEMPLATE_GENERATION

if TYPE_CHECKING:
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

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
        world.queue.register(QUEUE, self.sync, (FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS))
        store = world.store
        self._recorder = Recorder(world, "daemonset-controller", DAEMONSETS)
        self._maker = PodMaker(store, self._recorder)
        store.subscribe(self._daemonset_changed, DAEMONSETS)
        store.subscribe(self._node_changed, "nodes")
        store.subscribe(self._pod_changed, "pods")
        store.subscribe(self._revision_changed, revisions.REVISIONS)
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
            # That a node is gone wakes nobody: it is noticed when something else happens, such as the end of its pods.
            if event.type != "DELETED":
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
        """Tell of a pod without an owner those who select it; who of them comes first is left to chance."""
        suitors = []
        for uid, daemon in self._daemons.items():
            daemonset = self._world.store.find(DAEMONSETS, *daemon.key) if daemon.key[0] == namespace_of(orphan) else None
            if daemonset is not None and selector_matches(daemonset["spec"]["selector"], labels_of(orphan)):
                suitors.append(uid)
        for uid in self._world.random.sample(suitors, len(suitors)) if len(suitors) > 1 else suitors:
            self._world.queue.add(QUEUE, uid)

    def _revision_changed(self, event: Event) -> None:
        place = namespace_of(event.obj)
        if event.type == "DELETED":
            for uid, daemon in self._daemons.items():
                if daemon.facts is not None and (daemon.key[0], daemon.facts.revision) == (place, name_of(event.obj)):
                    daemon.facts = None
                    self._world.queue.add(QUEUE, uid)
        elif not controller_uid(event.obj) and (event.old is None or labels_of(event.old) != labels_of(event.obj)
                                                or controller_uid(event.old)):
            for uid, daemon in self._daemons.items():
                daemonset = self._world.store.find(DAEMONSETS, *daemon.key) if daemon.key[0] == place else None
                if daemonset is not None and selector_matches(daemonset["spec"]["selector"], labels_of(event.obj)):
                    daemon.facts = None
                    self._world.queue.add(QUEUE, uid)

    # One look at a DaemonSet.

    def sync(self, uid: str) -> None:
        """Bring the pods of one DaemonSet closer to what its spec wants, and tell its status."""
        daemon = self._daemons.get(uid)
        if daemon is None:
            return
        daemonset = self._world.store.get(DAEMONSETS, *daemon.key)
        if is_terminating(daemonset):
            # While it waits for its dependents, or for their release, nobody knows which of its revisions are still there.
            return
        facts = self._refresh(daemon, daemonset)
        dirty, daemon.dirty = daemon.dirty, {}
        missing = [node for node in dirty if self._look_at(daemon, daemonset, facts, node)]
        resource = self._world.store.resource(DAEMONSETS)
        made, refused = self._maker.make(daemonset, [partial(daemon_pod, daemonset, facts, node, resource) for node in missing])
        if made < len(missing):
            daemon.dirty.update(dict.fromkeys(missing))
        if refused is None:
            self._roll(daemon, daemonset, facts)
        self._tell(daemon, daemonset, facts)
        if refused is not None:
            raise refused

    def _refresh(self, daemon: _Daemon, daemonset: Object) -> DaemonFacts:
        generation = daemonset["metadata"].get("generation", 1)
        self._adopt(daemon, daemonset)
        if daemon.facts is not None and daemon.facts.generation == generation:
            return daemon.facts
        store, pods = self._world.store, self._world.pods.of(uid_of(daemonset))
        revision, collisions = revisions.current_revision(store, daemonset, pods)
        template = daemonset["spec"]["template"]
        pod = {"metadata": {**template["metadata"], "namespace": namespace_of(daemonset)},
               "spec": {**template["spec"], "tolerations": [*(template["spec"].get("tolerations") or ()),
                                                            *DAEMON_TOLERATIONS]}}
        daemon.dirty.update(dict.fromkeys(name_of(node) for node in store.list("nodes")))
        daemon.dirty.update(dict.fromkeys(daemon.pods))
        daemon.failures.clear()
        daemon.facts = facts = DaemonFacts(
            generation=generation, revision=name_of(revision), digest=labels_of(revision)[REVISION_HASH],
            template=annotations_of(daemonset)[TEMPLATE_GENERATION], collisions=collisions, demands=demands_of(pod),
            min_ready_seconds=daemonset["spec"].get("minReadySeconds") or 0)
        revisions.trim_history(store, daemonset, facts.revision, {labels_of(found).get(REVISION_HASH, "") for found in pods})
        return facts

    def _adopt(self, daemon: _Daemon, daemonset: Object) -> None:
        owner = owned_by(daemonset, self._world.store.resource(DAEMONSETS))
        for orphan in list(self._world.pods.orphans(daemon.key[0])):
            if selector_matches(daemonset["spec"]["selector"], labels_of(orphan)):
                self._world.store.modify("pods", namespace_of(orphan), name_of(orphan), lambda pod: pod["metadata"].update(
                    ownerReferences=[*(pod["metadata"].get("ownerReferences") or ()), owner]))

    def _keeps(self, daemonset: Object, pod: Object) -> bool:
        """Tell whether a pod is still selected; set it free otherwise."""
        if selector_matches(daemonset["spec"]["selector"], labels_of(pod)):
            return True
        disown(self._world.store, "pods", pod, uid_of(daemonset))
        return False

    def _look_at(self, daemon: _Daemon, daemonset: Object, facts: DaemonFacts, name: str) -> bool:
        """Settle one node as far as deletions do; tell whether it lacks a pod."""
        node = self._world.store.find("nodes", None, name)
        pods = [pod for pod in list(daemon.pods.get(name, {}).values()) if self._keeps(daemonset, pod)]
        if node is None:
            daemon.put_share(name, None)
            daemon.failures.pop(name, None)
            for pod in pods:
                # Those that were bound are the pod garbage collector's.
                if not node_of(pod):
                    self._delete(pod)
            return False
        now = self._world.now()
        verdict = judge(node, pods, facts, now)
        daemon.put_share(name, verdict.share)
        if verdict.wake is not None:
            self._wake(daemonset, daemon, name, verdict.wake)
        for pod in verdict.failed:
            self._remove_failed(daemon, daemonset, name, pod)
        for pod in verdict.surplus:
            self._delete(pod)
        return verdict.missing

    def _remove_failed(self, daemon: _Daemon, daemonset: Object, node: str, pod: Object) -> None:
        now = self._world.now()
        tries, allowed_at = daemon.failures.get(node, (0, 0.0))
        if now < allowed_at:
            self._wake(daemonset, daemon, node, allowed_at)
            return
        delay = min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** tries)
        daemon.failures[node] = (tries + 1, now + delay)
        self._recorder.warn(daemonset, "FailedDaemonPod", f"Found failed daemon pod {namespace_of(pod)}/{name_of(pod)} "
                            f"on node {node}, will try to kill it")
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
                if not is_terminating(pod) and not is_updated(pod, facts):
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
