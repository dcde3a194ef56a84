"""The ReplicaSet controller: as many active pods as asked for; a pod that is being deleted is replaced at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuward.sandbox.sim.objects import (
    Object,
    available_at,
    controller_uid,
    is_active,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    owned_by,
    phase_of,
    uid_of,
)
from gpuward.sandbox.sim.selection import selector_matches
from gpuward.sandbox.store import copy

if TYPE_CHECKING:
    from gpuward.sandbox.sim.world import World
    from gpuward.sandbox.store import Event

QUEUE: Final = "replicaset"
REPLICASETS: Final = "replicasets.apps"


class ReplicaSetController:
    """Keep every ReplicaSet's pods and status as its spec wants them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[str, tuple[str, str]] = {}
        world.queue.register(QUEUE, self.sync)
        world.store.subscribe(self._replicaset_changed, REPLICASETS)
        world.store.subscribe(self._pod_changed, "pods")
        for replicaset in world.store.list(REPLICASETS):
            self._know(replicaset)

    def _know(self, replicaset: Object) -> None:
        self._known[uid_of(replicaset)] = (namespace_of(replicaset), name_of(replicaset))
        self._world.queue.add(QUEUE, uid_of(replicaset))

    def _replicaset_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            self._known.pop(uid_of(event.obj), None)
        else:
            self._know(event.obj)

    def _pod_changed(self, event: Event) -> None:
        uid = controller_uid(event.obj)
        if uid in self._known:
            self._world.queue.add(QUEUE, uid)
        elif not uid and event.type != "DELETED":
            for other, (namespace, _) in self._known.items():
                if namespace == namespace_of(event.obj):
                    self._world.queue.add(QUEUE, other)

    def sync(self, uid: str) -> None:
        """Make or delete pods of one ReplicaSet until the number is right, and tell its status."""
        key = self._known.get(uid)
        if key is None:
            return
        replicaset = self._world.store.get(REPLICASETS, *key)
        if not is_terminating(replicaset):
            self._adopt(replicaset)
            self._scale(replicaset)
        self._tell(replicaset)

    def _adopt(self, replicaset: Object) -> None:
        owner = owned_by(replicaset, self._world.store.resource(REPLICASETS))
        for orphan in list(self._world.pods.orphans(namespace_of(replicaset))):
            if is_active(orphan) and selector_matches(replicaset["spec"]["selector"], labels_of(orphan)):
                self._world.store.modify(
                    "pods", namespace_of(orphan), name_of(orphan),
                    lambda pod: pod["metadata"].update(ownerReferences=[owner]))

    def _scale(self, replicaset: Object) -> None:
        active = [pod for pod in self._world.pods.of(uid_of(replicaset)) if is_active(pod)]
        lacking = replicaset["spec"].get("replicas", 1) - len(active)
        for _ in range(lacking):
            self._create(replicaset)
        if lacking < 0:
            for pod in sorted(active, key=_worth)[:-lacking]:
                self._world.store.delete("pods", namespace_of(pod), name_of(pod), uid=uid_of(pod))

    def _create(self, replicaset: Object) -> None:
        template = replicaset["spec"]["template"]
        meta = {"generateName": name_of(replicaset) + "-", "namespace": namespace_of(replicaset),
                "labels": template["metadata"].get("labels") or {},
                "annotations": template["metadata"].get("annotations") or {},
                "ownerReferences": [owned_by(replicaset, self._world.store.resource(REPLICASETS))]}
        self._world.store.create("pods", {"metadata": meta, "spec": template["spec"]})

    def _tell(self, replicaset: Object) -> None:
        spec, now = replicaset["spec"], self._world.now()
        wait = spec.get("minReadySeconds") or 0
        active = [pod for pod in self._world.pods.of(uid_of(replicaset)) if is_active(pod)]
        ready = [pod for pod in active if is_ready(pod)]
        instants = [available_at(pod, wait) for pod in ready]
        available = sum(instant <= now for instant in instants)
        later = [instant for instant in instants if instant > now]
        if later:
            self._world.queue.add_at(QUEUE, uid_of(replicaset), min(later))
        status = {"replicas": len(active), "observedGeneration": replicaset["metadata"].get("generation", 1)}
        optional = {"fullyLabeledReplicas": len(active), "readyReplicas": len(ready), "availableReplicas": available}
        status.update({key: value for key, value in optional.items() if value})
        if status != replicaset.get("status"):
            self._world.store.patch_status(REPLICASETS, namespace_of(replicaset), name_of(replicaset),
                                           lambda obj: obj.update(status=copy(status)))


def _worth(pod: Object) -> tuple[bool, bool, bool, str]:
    """Order pods from the first to be given up to the last: unbound, pending, not ready, then the youngest first."""
    made = pod["metadata"]["creationTimestamp"]
    youngest_first = "".join(chr(0x10FFFF - ord(letter)) for letter in made)
    return bool(node_of(pod)), phase_of(pod) != "Pending", is_ready(pod), youngest_first
