"""Warning events about pods and those who make them, as kubectl shows them: what a component complains about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubesandbox.errors import ApiError
from kubesandbox.sim.objects import Object, name_of, namespace_of, stamp, uid_of

if TYPE_CHECKING:
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

SIMILAR: Final = 10
"""So many complaints that differ only in their message get events of their own; the others share one, as with client-go."""


class Recorder:
    """Write events of one component; a complaint that is repeated counts up its event instead of making another."""

    def __init__(self, world: World, component: str, about: str = "pods") -> None:
        self._world = world
        self._component = component
        self._events: dict[str, dict[tuple[str, str], tuple[str, str]]] = {}
        world.store.subscribe(self._forget, about)

    def _forget(self, event: Event) -> None:
        if event.type == "DELETED" and uid_of(event.obj) in self._events:
            del self._events[uid_of(event.obj)]

    def warn(self, about: Object, reason: str, message: str, node: str = "") -> None:
        """Tell of something that is wrong with an object."""
        now, store = stamp(self._world.now()), self._world.store
        told = self._events.setdefault(uid_of(about), {})
        if (reason, message) not in told and sum(other == reason for other, _ in told) >= SIMILAR:
            self._combine(told, reason, message, now)
            return
        known = told.get((reason, message))
        if known is not None and store.find("events", *known) is not None:
            store.modify("events", *known, lambda obj: obj.update(count=obj.get("count", 1) + 1, lastTimestamp=now))
            return
        involved = {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": name_of(about),
                    "namespace": namespace_of(about), "uid": uid_of(about),
                    "resourceVersion": about["metadata"]["resourceVersion"]}
        source = {"component": self._component, **({"host": node} if node else {})}
        try:
            made = store.create("events", {
                "metadata": {"generateName": name_of(about)[:50] + ".", "namespace": namespace_of(about)},
                "involvedObject": involved, "reason": reason, "message": message, "type": "Warning", "source": source, "count": 1,
                "firstTimestamp": now, "lastTimestamp": now, "reportingComponent": self._component,
                "reportingInstance": node})
        except ApiError:
            # A namespace that is going away takes no events; nobody will ask for them.
            return
        told[reason, message] = (namespace_of(made), name_of(made))

    def _combine(self, told: dict[tuple[str, str], tuple[str, str]], reason: str, message: str, now: str) -> None:
        newest = [key for other, key in told.items() if other[0] == reason][-1]
        if self._world.store.find("events", *newest) is not None:
            text = f"(combined from similar events): {message}"
            self._world.store.modify("events", *newest, lambda obj: obj.update(
                count=obj.get("count", 1) + 1, lastTimestamp=now, message=text))
