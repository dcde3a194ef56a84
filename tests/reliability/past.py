"""A process that begins with an old view: what it lists first is of an earlier version, and its watches bring the rest later.

It is so with one that stood by, and whose watches lag when it comes to lead, and with a server whose cache lags. Whatever the
process reads later than its first lists is of a quorum, as the API promises; so are the answers to its writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from gpuward.wire.budgets import budget_view
from gpuward.wire.daemonsets import daemonset_view, revision_view
from gpuward.wire.nodes import node_view
from gpuward.wire.pods import pod_view
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.reading import Reader
from kubesandbox.store import Event, Store
from tests.journeys.stage import Proceed
from tests.reliability.scene import AWAY_SECONDS, Scene
from tests.reliability.setups import NVIDIA_DRIVERS, POLICIES

LAG_SECONDS = 2.0
"""How long the new process sees nothing newer."""
UNFOLLOWED = ("events", "namespaces", "deployments.apps", "replicasets.apps", "jobs.batch")
VIEWS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "nodes": node_view, "pods": pod_view, "daemonsets.apps": daemonset_view, "controllerrevisions.apps": revision_view,
    "poddisruptionbudgets.policy": budget_view,
}
"""What the operator sees of an object; of those of other kinds it sees all that the sandbox changes."""

Object = dict[str, Any]


class Past:
    """Show a store as it was at a version, as far as lists go."""

    def __init__(self, store: Store, version: int) -> None:
        self._store = store
        self.version = version
        self.encoded = store.encoded

    def list(self, resource_key: str, namespace: str | None = None) -> list[Object]:
        """Return the objects that there were, in order."""
        there = {_key(obj): obj for obj in self._store.list(resource_key)}
        for event in reversed(self._store.events_since(resource_key, self.version)):
            if event.old is None:
                del there[_key(event.obj)]
            else:
                there[_key(event.obj)] = event.old
        return [obj for key, obj in sorted(there.items()) if namespace in (None, key[0])]


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class OldCache:
    """Stand between one operator process and the server; play the old cache until `until`."""

    def __init__(self, scene: Scene, version: int) -> None:
        self._scene = scene
        self._until = scene.clock.now() + AWAY_SECONDS + LAG_SECONDS
        scene.disturb(AWAY_SECONDS + LAG_SECONDS)
        self._reader = Reader(cast(Store, Past(scene.sandbox.store, version)), lambda _: 0.0)
        self._listed: set[str] = set()
        usual = scene.sandbox.api.watch_delay
        scene.sandbox.api.watch_delay = lambda key: max(usual(key), self._until - scene.clock.now())

    def __call__(self, request: Request, proceed: Proceed) -> Answer | Stream:
        """Answer the first list of a resource from the cache, and anything else as usual."""
        catalog = self._scene.sandbox.api.catalog
        if self._scene.clock.now() >= self._until or request.flag("watch") or not catalog.knows(request.path):
            return proceed()
        if request.path in self._listed or "fieldSelector" in request.query:
            return proceed()
        self._listed.add(request.path)
        target = catalog.target(request.path)
        return proceed() if target.name is not None else self._reader.listing(target, request)


class Followed:
    """Know at which versions something changed that the operator sees: any other version would be the same case again."""

    def __init__(self, scene: Scene) -> None:
        self.versions: list[int] = []
        self.edits: list[int] = []
        """The versions at which people changed what a policy asks for."""
        scene.sandbox.store.subscribe(self._note)

    def _note(self, event: Event) -> None:
        if event.resource_key not in UNFOLLOWED and changes_a_view(event):
            self.versions.append(event.version)
        if event.resource_key in (POLICIES, NVIDIA_DRIVERS) and event.old is not None and event.old["spec"] != event.obj["spec"]:
            self.edits.append(event.version)

    def ago(self, changes: int) -> int:
        """Return the version before so many of the last changes."""
        return self.versions[-changes] - 1

    def edited_since(self, version: int) -> bool:
        """Tell whether people changed a policy after a version."""
        return bool(self.edits) and self.edits[-1] > version


def changes_a_view(event: Event) -> bool:
    """Tell whether the operator sees any difference between the object before and after; another version alone is none."""
    view = VIEWS.get(event.resource_key)
    if view is None or event.type != "MODIFIED" or event.old is None:
        return True
    old, new = (view(msgspec.json.encode(obj)) for obj in (event.old, event.obj))
    return bool(msgspec.structs.replace(old, version=new.version) != new)
