"""The namespace controller: empties a namespace that is being deleted, and lets it go when nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuward.sandbox.sim.objects import is_terminating, name_of

if TYPE_CHECKING:
    from gpuward.sandbox.sim.world import World
    from gpuward.sandbox.store import Event

QUEUE: Final = "namespace"
FINALIZER: Final = "kubernetes"


class NamespaceController:
    """Finish the deletion of namespaces."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ending: set[str] = set()
        world.queue.register(QUEUE, self.sync)
        world.store.subscribe(self._changed)
        for namespace in world.store.list("namespaces"):
            if is_terminating(namespace):
                self._ending.add(name_of(namespace))
                world.queue.add(QUEUE, name_of(namespace))

    def _changed(self, event: Event) -> None:
        if event.resource_key == "namespaces":
            name = name_of(event.obj)
            if event.type == "DELETED":
                self._ending.discard(name)
            elif is_terminating(event.obj):
                self._ending.add(name)
                self._world.queue.add(QUEUE, name)
        elif event.type == "DELETED" and event.obj["metadata"].get("namespace") in self._ending:
            self._world.queue.add(QUEUE, event.obj["metadata"]["namespace"])

    def sync(self, name: str) -> None:
        """Delete what is in one namespace; take the namespace's own finalizer when nothing is."""
        if name not in self._ending:
            return
        store, left = self._world.store, 0
        for resource in store.resources():
            if not resource.namespaced:
                continue
            for obj in store.list(resource.key, name):
                if not is_terminating(obj):
                    store.delete(resource.key, name, name_of(obj), propagation="Background")
            left += len(store.list(resource.key, name))
        if not left:
            store.modify("namespaces", None, name, lambda obj: obj["spec"].update(
                finalizers=[kept for kept in obj["spec"].get("finalizers") or () if kept != FINALIZER]))
