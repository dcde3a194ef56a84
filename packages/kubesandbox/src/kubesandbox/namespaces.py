"""The namespace controller's part in deletions: a namespace that is being deleted is emptied, and goes when it is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubesandbox.store import Event, Store

Object = dict[str, Any]


class Namespaces:
    """Finish the deletion of namespaces."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.subscribe(self._on_change)

    def _on_change(self, event: Event) -> None:
        if event.resource_key == "namespaces":
            if event.type == "MODIFIED" and event.obj["metadata"].get("deletionTimestamp"):
                self._empty(event.obj["metadata"]["name"])
        elif event.type == "DELETED" and event.obj["metadata"].get("namespace"):
            self._finish(event.obj["metadata"]["namespace"])

    def _empty(self, name: str) -> None:
        for key, obj in self._contents(name):
            if not obj["metadata"].get("deletionTimestamp") and self._store.find(key, name, obj["metadata"]["name"]):
                self._store.delete(key, name, obj["metadata"]["name"])
        self._finish(name)

    def _finish(self, name: str) -> None:
        namespace = self._store.find("namespaces", None, name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp") or self._contents(name):
            return
        if namespace.get("spec", {}).get("finalizers"):
            self._store.modify("namespaces", None, name, lambda obj: obj["spec"].update(finalizers=[]))

    def _contents(self, name: str) -> list[tuple[str, Object]]:
        return [(resource.key, obj) for resource in self._store.resources() if resource.namespaced
                for obj in self._store.list(resource.key, name)]
