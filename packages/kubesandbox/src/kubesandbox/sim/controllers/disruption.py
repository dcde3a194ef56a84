"""The disruption controller: how many pods of a PodDisruptionBudget may be evicted right now.

Facts from the Kubernetes disruption controller: a pod is healthy when it is Ready and not on its way out; a percentage
counts against the scale that the pods' controllers ask for; an eviction that was granted, and whose pod is not yet seen
going, takes part in the sum for two minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubesandbox.errors import InputError
from kubesandbox.sim.objects import (
    Object,
    controller_of,
    is_finished,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    seconds,
    share,
    uid_of,
    with_condition,
)
from kubesandbox.sim.selection import selector_matches
from kubesandbox.store import copy

if TYPE_CHECKING:
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

QUEUE: Final = "disruption"
BUDGETS: Final = "poddisruptionbudgets.policy"
GRANTED_SECONDS: Final = 120.0
_SCALED: Final = {"ReplicaSet": "replicasets.apps", "StatefulSet": "statefulsets.apps",
                  "Deployment": "deployments.apps"}


class _Budget:
    """Hold the pods of one budget, and which of them are healthy."""

    def __init__(self, budget: Object) -> None:
        self.key = (namespace_of(budget), name_of(budget))
        self.selector = budget["spec"].get("selector")
        self.members: dict[str, Object] = {}
        self.healthy: dict[str, str] = {}
        self.controllers: dict[str, tuple[Object | None, int]] = {}

    def put(self, pod: Object, *, gone: bool) -> bool:
        """Take in a pod's change; tell whether it concerns this budget."""
        uid = uid_of(pod)
        known = self.members.pop(uid, None)
        self.healthy.pop(uid, None)
        if known is not None:
            self._count(known, -1)
        if gone or not selector_matches(self.selector, labels_of(pod)):
            return known is not None
        self.members[uid] = pod
        self._count(pod, 1)
        if is_ready(pod) and not is_terminating(pod):
            self.healthy[uid] = name_of(pod)
        return True

    def _count(self, pod: Object, step: int) -> None:
        if is_finished(pod):
            return
        owner = controller_of(pod)
        uid = owner["uid"] if owner else uid_of(pod)
        _, count = self.controllers.get(uid, (owner, 0))
        if count + step:
            self.controllers[uid] = (owner, count + step)
        else:
            self.controllers.pop(uid, None)

    @property
    def pods(self) -> int:
        """Return how many pods that have not ended the budget selects."""
        return sum(count for _, count in self.controllers.values())


class DisruptionController:
    """Keep the status of every PodDisruptionBudget."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._budgets: dict[str, dict[str, _Budget]] = {}
        world.queue.register(QUEUE, self.sync)
        world.store.subscribe(self._budget_changed, BUDGETS)
        world.store.subscribe(self._pod_changed, "pods")
        for kind in _SCALED.values():
            world.store.subscribe(self._scale_changed, kind)
        for budget in world.store.list(BUDGETS):
            self._know(budget)

    def _know(self, obj: Object) -> None:
        budget = _Budget(obj)
        for pod in self._world.store.list("pods", budget.key[0]):
            budget.put(pod, gone=False)
        self._budgets.setdefault(budget.key[0], {})[budget.key[1]] = budget
        self._enqueue(budget)

    def _enqueue(self, budget: _Budget) -> None:
        self._world.queue.add(QUEUE, "/".join(budget.key))

    def _budget_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            self._budgets.get(namespace_of(event.obj), {}).pop(name_of(event.obj), None)
        elif event.old is None or event.old["spec"] != event.obj["spec"]:
            self._know(event.obj)
        else:
            self._world.queue.add(QUEUE, f"{namespace_of(event.obj)}/{name_of(event.obj)}")

    def _pod_changed(self, event: Event) -> None:
        for budget in self._budgets.get(namespace_of(event.obj), {}).values():
            if budget.put(event.obj, gone=event.type == "DELETED"):
                self._enqueue(budget)

    def _scale_changed(self, event: Event) -> None:
        if event.old is None or event.old["spec"].get("replicas") != event.obj["spec"].get("replicas"):
            for budget in self._budgets.get(namespace_of(event.obj), {}).values():
                self._enqueue(budget)

    def sync(self, key: str) -> None:
        """Work out and tell how many evictions one budget allows."""
        namespace, name = key.split("/")
        budget = self._budgets.get(namespace, {}).get(name)
        if budget is None:
            return
        obj = self._world.store.get(BUDGETS, namespace, name)
        old = obj.get("status") or {}
        try:
            expected, desired = self._wanted(budget, obj["spec"])
        except InputError as error:
            self._fail_safe(key, old, str(error))
            return
        granted = self._granted(budget, obj)
        healthy = len(budget.healthy) - sum(pod in granted for pod in budget.healthy.values())
        allowed = max(0, healthy - desired) if expected else 0
        status = {"currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected,
                  "disruptionsAllowed": allowed, "observedGeneration": obj["metadata"].get("generation", 1)}
        if granted:
            status["disruptedPods"] = granted
        verdict = {"type": "DisruptionAllowed", "status": str(allowed > 0), "message": "",
                   "reason": "SufficientPods" if allowed else "InsufficientPods",
                   "observedGeneration": status["observedGeneration"]}
        status["conditions"] = with_condition(old.get("conditions") or [], verdict, self._world.now())
        if status != old:
            self._world.store.patch_status(BUDGETS, namespace, name, lambda found: found.update(status=copy(status)))

    def _fail_safe(self, key: str, old: Object, why: str) -> None:
        """Allow nothing while the sum cannot be done, and say why."""
        verdict = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": why}
        conditions = with_condition(old.get("conditions") or [], verdict, self._world.now())
        status = {**old, "disruptionsAllowed": 0, "conditions": conditions}
        namespace, name = key.split("/")
        self._world.store.patch_status(BUDGETS, namespace, name, lambda found: found.update(status=copy(status)))

    def _granted(self, budget: _Budget, obj: Object) -> dict[str, str]:
        """Return the evictions that were granted and whose pods are not yet seen going."""
        now = self._world.now()
        waiting = {name_of(pod) for pod in budget.members.values() if not is_terminating(pod)}
        granted = {name: since for name, since in ((obj.get("status") or {}).get("disruptedPods") or {}).items()
                   if name in waiting and seconds(since) + GRANTED_SECONDS > now}
        if granted:
            oldest = min(seconds(since) for since in granted.values())
            self._world.queue.add_at(QUEUE, "/".join(budget.key), oldest + GRANTED_SECONDS)
        return granted

    def _wanted(self, budget: _Budget, spec: Object) -> tuple[int, int]:
        if "maxUnavailable" in spec:
            expected = self._scale(budget)
            return expected, max(0, expected - share(spec["maxUnavailable"], expected, round_up=True))
        least = spec.get("minAvailable", 1)
        if isinstance(least, str) and least.endswith("%"):
            expected = self._scale(budget)
            return expected, share(least, expected, round_up=True)
        return budget.pods, int(least)

    def _scale(self, budget: _Budget) -> int:
        """Return how many pods the controllers of the budget's pods ask for together, each controller once.

        Pods without a controller do not count, and a controller without a scale makes the sum impossible.
        """
        counted: dict[str, int] = {}
        for owner, _ in budget.controllers.values():
            if owner is None:
                continue
            scaled = self._top(budget.key[0], owner)
            if scaled is None:
                raise InputError("spec.selector", f"{owner['kind']} {owner['name']}",
                                 "its controller has no scale; write minAvailable as a number instead")
            counted[uid_of(scaled)] = scaled["spec"].get("replicas", 1)
        return sum(counted.values())

    def _top(self, namespace: str, owner: Object | None) -> Object | None:
        """Return the object whose scale decides: a ReplicaSet's Deployment, or the controller itself."""
        found: Object | None = None
        while owner is not None and (kind := _SCALED.get(owner["kind"])):
            above = self._world.store.find(kind, namespace, owner["name"])
            if above is None:
                break
            found, owner = above, controller_of(above)
        return found
