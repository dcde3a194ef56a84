"""Warning events about pods, as kubectl shows them: what a scheduler or a kubelet complains about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuward.errors import ApiError
from gpuward.sandbox.sim.objects import Object, name_of, namespace_of, stamp, uid_of

if TYPE_CHECKING:
    from gpuward.sandbox.sim.world import World
    from gpuward.sandbox.store import Event


class Recorder:
    """Write events of one component; a complaint that is repeated counts up its event instead of making another."""

    def __init__(self, world: World, component: str) -> None:
        self._world = world
        self._component = component
        self._events: dict[str, dict[tuple[str, str], tuple[str, str]]] = {}
        world.store.subscribe(self._forget, "pods")

    def _forget(self, event: Event) -> None:
        if event.type == "DELETED" and uid_of(event.obj) in self._events:
            del self._events[uid_of(event.obj)]

    def warn(self, pod: Object, reason: str, message: str, node: str = "") -> None:
        """Tell of something that is wrong with a pod."""
        now, store = stamp(self._world.now()), self._world.store
        told = self._events.setdefault(uid_of(pod), {})
        known = told.get((reason, message))
        if known is not None and store.find("events", *known) is not None:
            store.modify("events", *known, lambda obj: obj.update(count=obj.get("count", 1) + 1, lastTimestamp=now))
            return
        involved = {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "namespace": namespace_of(pod),
                    "uid": uid_of(pod), "resourceVersion": pod["metadata"]["resourceVersion"]}
        source = {"component": self._component, **({"host": node} if node else {})}
        try:
            made = store.create("events", {
                "metadata": {"generateName": name_of(pod)[:50] + ".", "namespace": namespace_of(pod)}, "involvedObject": involved,
                "reason": reason, "message": message, "type": "Warning", "source": source, "count": 1,
                "firstTimestamp": now, "lastTimestamp": now, "reportingComponent": self._component,
                "reportingInstance": node})
        except ApiError:
            # A namespace that is going away takes no events; nobody will ask for them.
            return
        told[reason, message] = (namespace_of(made), name_of(made))
