"""What every namespace gets by itself: the service account `default`, and the certificate of the API server's authority.

Facts from kube-controller-manager's service account controller and its publisher of `kube-root-ca.crt`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubesandbox.sim.objects import Object, is_terminating, name_of, namespace_of

if TYPE_CHECKING:
    from kubesandbox.sim.world import World
    from kubesandbox.store import Event

QUEUE: Final = "accounts"
ACCOUNTS: Final = "serviceaccounts"
CONFIG_MAPS: Final = "configmaps"
ROOT_CA: Final = "kube-root-ca.crt"
GIVEN: Final[tuple[tuple[str, Object], ...]] = (
    (ACCOUNTS, {"metadata": {"name": "default"}}),
    (CONFIG_MAPS, {"metadata": {"name": ROOT_CA, "annotations": {
        "kubernetes.io/description": "The sandbox serves without encryption, so there is no authority to trust."}},
        "data": {"ca.crt": ""}}),
)


class AccountsController:
    """Put into each namespace what belongs there, again when somebody has deleted it."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.queue.register(QUEUE, self.sync)
        world.store.subscribe(self._namespace_changed, "namespaces")
        for resource, _ in GIVEN:
            world.store.subscribe(self._content_changed, resource)
        for namespace in world.store.list("namespaces"):
            world.queue.add(QUEUE, name_of(namespace))

    def _namespace_changed(self, event: Event) -> None:
        if event.type == "ADDED":
            self._world.queue.add(QUEUE, name_of(event.obj))

    def _content_changed(self, event: Event) -> None:
        if event.type == "DELETED" and name_of(event.obj) in ("default", ROOT_CA):
            self._world.queue.add(QUEUE, namespace_of(event.obj))

    def sync(self, name: str) -> None:
        """Complete one namespace."""
        store = self._world.store
        namespace = store.find("namespaces", None, name)
        if namespace is None or is_terminating(namespace):
            return
        for resource, obj in GIVEN:
            if store.find(resource, name, obj["metadata"]["name"]) is None:
                store.create(resource, {**obj, "metadata": {**obj["metadata"], "namespace": name}})
