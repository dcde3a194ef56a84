"""The ReplicaSet controller: as many active pods as asked for; a pod that is being deleted is replaced at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kubesandbox.sim.controllers.podmaking import FAILED_CREATE, FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, PodMaker
from kubesandbox.sim.objects import (
    Object,
    available_at,
    condition,
    controller_uid,
    disown,
    is_active,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    owned_by,
    phase_of,
    seconds,
    uid_of,
    with_condition,
)
from kubesandbox.sim.recorder import Recorder
from kubesandbox.sim.selection import selector_matches
from kubesandbox.store import copy

if TYPE_CHECKING:
    from kubesandbox.errors import ApiError
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

QUEUE: Final = "replicaset"
REPLICASETS: Final = "replicasets.apps"


class ReplicaSetController:
    """Keep every ReplicaSet's pods and status as its spec wants them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[str, tuple[str, str]] = {}
        world.queue.register(QUEUE, self.sync, (FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS))
        self._maker = PodMaker(world.store, Recorder(world, "replicaset-controller", REPLICASETS))
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
        refused = None
        if not is_terminating(replicaset):
            self._claim(replicaset)
            refused = self._scale(replicaset)
        self._tell(replicaset, refused)
        if refused is not None:
            raise refused

    def _claim(self, replicaset: Object) -> None:
        for pod in list(self._world.pods.of(uid_of(replicaset))):
            if not selector_matches(replicaset["spec"]["selector"], labels_of(pod)):
                disown(self._world.store, "pods", pod, uid_of(replicaset))
        owner = owned_by(replicaset, self._world.store.resource(REPLICASETS))
        for orphan in list(self._world.pods.orphans(namespace_of(replicaset))):
            if is_active(orphan) and selector_matches(replicaset["spec"]["selector"], labels_of(orphan)):
                self._world.store.modify(
                    "pods", namespace_of(orphan), name_of(orphan),
                    lambda pod: pod["metadata"].update(ownerReferences=[owner]))

    def _scale(self, replicaset: Object) -> ApiError | None:
        active = [pod for pod in self._world.pods.of(uid_of(replicaset)) if is_active(pod)]
        lacking = replicaset["spec"].get("replicas", 1) - len(active)
        if lacking < 0:
            for pod in sorted(active, key=_worth)[:-lacking]:
                self._world.store.delete("pods", namespace_of(pod), name_of(pod), uid=uid_of(pod))
        return self._maker.make(replicaset, [partial(self._pod, replicaset)] * lacking)[1]

    def _pod(self, replicaset: Object) -> Object:
        template = replicaset["spec"]["template"]
        meta = {"generateName": name_of(replicaset) + "-", "namespace": namespace_of(replicaset),
                "labels": template["metadata"].get("labels") or {},
                "annotations": template["metadata"].get("annotations") or {},
                "ownerReferences": [owned_by(replicaset, self._world.store.resource(REPLICASETS))]}
        return {"metadata": meta, "spec": template["spec"]}

    def _tell(self, replicaset: Object, refused: ApiError | None) -> None:
        spec, now = replicaset["spec"], self._world.now()
        wait = spec.get("minReadySeconds") or 0
        active = [pod for pod in self._world.pods.of(uid_of(replicaset)) if is_active(pod)]
        ready = [pod for pod in active if is_ready(pod)]
        instants = [available_at(pod, wait) for pod in ready]
        available = sum(instant <= now for instant in instants)
        later = [instant for instant in instants if instant > now]
        if later:
            self._world.queue.add_at(QUEUE, uid_of(replicaset), min(later))
        status: Object = {"replicas": len(active), "observedGeneration": replicaset["metadata"].get("generation", 1)}
        if refused is not None:
            status["conditions"] = with_condition((), {"type": "ReplicaFailure", "status": "True", "reason": FAILED_CREATE,
                                                       "message": refused.message}, _since(replicaset, now))
        optional = {"fullyLabeledReplicas": len(active), "readyReplicas": len(ready), "availableReplicas": available}
        status.update({key: value for key, value in optional.items() if value})
        if status != replicaset.get("status"):
            self._world.store.patch_status(REPLICASETS, namespace_of(replicaset), name_of(replicaset),
                                           lambda obj: obj.update(status=copy(status)))


def _since(replicaset: Object, now: float) -> float:
    """Return since when pods have been refused without a break."""
    known = condition(replicaset, "ReplicaFailure")
    return seconds(known["lastTransitionTime"]) if known is not None else now


def _worth(pod: Object) -> tuple[bool, bool, bool, str]:
    """Order pods from the first to be given up to the last: unbound, pending, not ready, then the youngest first."""
    made = pod["metadata"]["creationTimestamp"]
    youngest_first = "".join(chr(0x10FFFF - ord(letter)) for letter in made)
    return bool(node_of(pod)), phase_of(pod) != "Pending", is_ready(pod), youngest_first
