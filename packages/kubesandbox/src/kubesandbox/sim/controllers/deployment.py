"""The Deployment controller: a ReplicaSet for each template, and a rolling change from the old one to the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubesandbox.sim.controllers.replicaset import REPLICASETS
from kubesandbox.sim.controllers.revisions import template_hash
from kubesandbox.sim.objects import (
    Object,
    annotations_of,
    condition,
    controller_uid,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    owned_by,
    share,
    stamp,
    uid_of,
    with_condition,
)
from kubesandbox.store import copy

if TYPE_CHECKING:
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

QUEUE: Final = "deployment"
DEPLOYMENTS: Final = "deployments.apps"
HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"


class DeploymentController:
    """Keep every Deployment's ReplicaSets and status as its spec wants them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[str, tuple[str, str]] = {}
        self._sets: dict[str, dict[str, None]] = {}
        self._owner_of_set: dict[str, str] = {}
        world.queue.register(QUEUE, self.sync)
        world.store.subscribe(self._deployment_changed, DEPLOYMENTS)
        world.store.subscribe(self._replicaset_changed, REPLICASETS)
        world.store.subscribe(self._pod_changed, "pods")
        for deployment in world.store.list(DEPLOYMENTS):
            self._know(deployment)
        for replicaset in world.store.list(REPLICASETS):
            self._sets.setdefault(controller_uid(replicaset), {})[name_of(replicaset)] = None
            self._owner_of_set[uid_of(replicaset)] = controller_uid(replicaset)

    def _know(self, deployment: Object) -> None:
        self._known[uid_of(deployment)] = (namespace_of(deployment), name_of(deployment))
        self._world.queue.add(QUEUE, uid_of(deployment))

    def _deployment_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            self._known.pop(uid_of(event.obj), None)
        else:
            self._know(event.obj)

    def _replicaset_changed(self, event: Event) -> None:
        owner = controller_uid(event.obj)
        if event.type == "DELETED":
            self._sets.get(owner, {}).pop(name_of(event.obj), None)
            self._owner_of_set.pop(uid_of(event.obj), None)
        else:
            self._sets.setdefault(owner, {})[name_of(event.obj)] = None
            self._owner_of_set[uid_of(event.obj)] = owner
        if owner in self._known:
            self._world.queue.add(QUEUE, owner)

    def _pod_changed(self, event: Event) -> None:
        """Look again when a pod is gone: Recreate waits for the last one."""
        owner = self._owner_of_set.get(controller_uid(event.obj)) if event.type == "DELETED" else None
        if owner in self._known:
            self._world.queue.add(QUEUE, owner or "")

    def sync(self, uid: str) -> None:
        """Move the ReplicaSets of one Deployment one step towards its spec, and tell its status."""
        key = self._known.get(uid)
        if key is None:
            return
        deployment = self._world.store.get(DEPLOYMENTS, *key)
        if is_terminating(deployment):
            return
        sets = self._sets_of(deployment)
        new = self._current(deployment, sets)
        old = [found for found in sets if uid_of(found) != uid_of(new)]
        if not deployment["spec"].get("paused"):
            if (deployment["spec"].get("strategy") or {}).get("type") == "Recreate":
                self._recreate(deployment, new, old)
            else:
                self._roll(deployment, new, old)
        self._tell(deployment, uid_of(new))

    def _sets_of(self, deployment: Object) -> list[Object]:
        found = (self._world.store.find(REPLICASETS, namespace_of(deployment), name)
                 for name in self._sets.get(uid_of(deployment), {}))
        return [replicaset for replicaset in found if replicaset is not None]

    def _current(self, deployment: Object, sets: list[Object]) -> Object:
        digest = template_hash(deployment["spec"]["template"])
        newest = max((int(annotations_of(found).get(REVISION, "0")) for found in sets), default=0)
        for found in sets:
            if labels_of(found).get(HASH_LABEL) == digest:
                if int(annotations_of(found).get(REVISION, "0")) < newest:
                    return self._world.store.modify(REPLICASETS, namespace_of(found), name_of(found), lambda obj: obj[
                        "metadata"].setdefault("annotations", {}).update({REVISION: str(newest + 1)}))
                return found
        return self._create(deployment, digest, newest + 1)

    def _create(self, deployment: Object, digest: str, revision: int) -> Object:
        spec, mark = deployment["spec"], {HASH_LABEL: digest}
        template = copy(spec["template"])
        template["metadata"]["labels"] = {**(template["metadata"].get("labels") or {}), **mark}
        selector = copy(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **mark}
        first = revision == 1
        return self._world.store.create(REPLICASETS, {
            "metadata": {
                "name": f"{name_of(deployment)}-{digest}", "namespace": namespace_of(deployment),
                "labels": template["metadata"]["labels"], "annotations": {REVISION: str(revision)},
                "ownerReferences": [owned_by(deployment, self._world.store.resource(DEPLOYMENTS))]},
            "spec": {"replicas": spec.get("replicas", 1) if first else 0, "selector": selector, "template": template,
                     "minReadySeconds": spec.get("minReadySeconds") or 0}})

    def _recreate(self, deployment: Object, new: Object, old: list[Object]) -> None:
        for replicaset in old:
            self._resize(replicaset, 0)
        gone = not any(self._world.pods.of(uid_of(replicaset)) for replicaset in old)
        if gone:
            self._resize(new, deployment["spec"].get("replicas", 1))

    def _roll(self, deployment: Object, new: Object, old: list[Object]) -> None:
        wanted = deployment["spec"].get("replicas", 1)
        rules = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
        surge = share(rules.get("maxSurge", "25%"), wanted, round_up=True)
        missing = share(rules.get("maxUnavailable", "25%"), wanted, round_up=False) or (0 if surge else 1)
        size, rest = new["spec"]["replicas"], sum(replicaset["spec"]["replicas"] for replicaset in old)
        if size > wanted or not rest:
            self._resize(new, wanted)
        elif size < wanted:
            self._resize(new, min(wanted, size + max(0, wanted + surge - size - rest)))
        self._shrink(new, old, wanted - missing)

    def _shrink(self, new: Object, old: list[Object], least: int) -> None:
        """Take pods from the old sets as far as `least` stay available; broken ones first, they cost nothing.

        Statuses lag behind sizes, so the sizes bound it too: every new pod that is not known to be available may be missing.
        """
        new = self._world.store.get(REPLICASETS, namespace_of(new), name_of(new))
        size = sum(found["spec"]["replicas"] for found in (new, *old))
        room = size - least - (new["spec"]["replicas"] - _available(new))
        spare = sum(_available(found) for found in (new, *old)) - least
        for replicaset in sorted(old, key=name_of):
            here = replicaset["spec"]["replicas"]
            broken = max(0, here - _available(replicaset))
            step = max(0, min(here, room, broken + max(0, spare)))
            room -= step
            spare -= max(0, step - broken)
            self._resize(replicaset, here - step)

    def _resize(self, replicaset: Object, replicas: int) -> None:
        if replicaset["spec"]["replicas"] != replicas:
            self._world.store.modify(REPLICASETS, namespace_of(replicaset), name_of(replicaset),
                                     lambda obj: obj["spec"].update(replicas=replicas))

    def _tell(self, deployment: Object, current: str) -> None:
        sets, wanted, now = self._sets_of(deployment), deployment["spec"].get("replicas", 1), self._world.now()

        def total(field: str, only: str = "") -> int:
            return sum((found.get("status") or {}).get(field, 0) for found in sets if not only or uid_of(found) == only)

        available = total("availableReplicas")
        status = {"observedGeneration": deployment["metadata"].get("generation", 1)}
        optional = {"replicas": total("replicas"), "updatedReplicas": total("replicas", current),
                    "readyReplicas": total("readyReplicas"), "availableReplicas": available,
                    "unavailableReplicas": max(0, wanted - available)}
        status.update({key: value for key, value in optional.items() if value})
        rules = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
        enough = available >= wanted - share(rules.get("maxUnavailable", "25%"), wanted, round_up=False)
        told = (deployment.get("status") or {}).get("conditions") or []
        verdict = {"type": "Available", "status": str(enough), "lastUpdateTime": stamp(now),
                   "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
                   "message": f"Deployment {'has' if enough else 'does not have'} minimum availability."}
        known = condition(deployment, "Available")
        if known is None or known["status"] != verdict["status"]:
            told = with_condition(told, verdict, now)
        full = {**status, "conditions": told}
        if full != deployment.get("status"):
            self._world.store.patch_status(DEPLOYMENTS, namespace_of(deployment), name_of(deployment),
                                           lambda obj: obj.update(status=copy(full)))


def _available(replicaset: Object) -> int:
    number: int = (replicaset.get("status") or {}).get("availableReplicas") or 0
    return number
