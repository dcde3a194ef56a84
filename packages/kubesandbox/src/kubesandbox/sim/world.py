"""What every controller, kubelet and machine of one sandbox shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubesandbox.sim.faults import Faults
from kubesandbox.sim.hardware import Hardware, PlainHardware
from kubesandbox.sim.objects import Object, controller_uid, is_terminating, namespace_of, node_of, uid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from random import Random

    from kubesandbox.sim.queue import WorkQueue
    from kubesandbox.store import Event, Store


@dataclass(slots=True)
class Delays:
    """Say how long things take in the sandbox, in seconds of its own time."""

    reaction_seconds: float = 0.02
    """From a change to the moment at which a controller acts on it."""
    pod_start_seconds: float = 1.0
    """From binding to the first container's start: image, volumes, network."""
    init_seconds: float = 0.5
    """How long an init container of no particular kind runs."""
    ready_seconds: float = 1.0
    """From the start of a container to the first success of its probe, where it has one."""
    termination_seconds: float = 2.0
    """From SIGTERM to the end of a container that obeys it."""
    plugin_seconds: float = 1.0
    """What a device plugin takes to offer its devices to the kubelet, anew after that one was restarted."""
    poll_seconds: float = 1.0
    """How often a waiting init container looks for the file that it waits for."""
    nfd_seconds: float = 60.0
    """From the registration of a node, or its machine's boot, to the labels of node feature discovery."""
    heartbeat_seconds: float = 300.0
    """How often a kubelet reports its node although nothing has changed, which moves the node's resourceVersion; 0 is never."""
    node_grace_seconds: float = 50.0
    """How long a silent kubelet is believed to be alive (kube-controller-manager's node-monitor-grace-period)."""
    garbage_seconds: float = 0.5
    """How long the garbage collector takes over each step: to notice that an owner is gone, and to act on it."""
    pod_gc_seconds: float = 40.0
    """How long the pods of a node that no longer exists are kept (the pod garbage collector's quarantine)."""


class PodIndex:
    """Keep the pods findable by node and by controller, up to date with every change."""

    def __init__(self, store: Store) -> None:
        self.by_uid: dict[str, Object] = {}
        self._by_node: dict[str, dict[str, Object]] = {}
        self._by_controller: dict[str, dict[str, Object]] = {}
        self._orphans: dict[str, dict[str, Object]] = {}
        for pod in store.list("pods"):
            self._put(pod)
        store.subscribe(self._changed, "pods")

    def on_node(self, node: str) -> Collection[Object]:
        """Return the pods bound to a node, finished ones too."""
        return self._by_node.get(node, {}).values()

    def of(self, controller: str) -> Collection[Object]:
        """Return the pods of a controller, by its uid."""
        return self._by_controller.get(controller, {}).values()

    def orphans(self, namespace: str) -> Collection[Object]:
        """Return the pods of a namespace that have no controller and are not being deleted."""
        return self._orphans.get(namespace, {}).values()

    def _changed(self, event: Event) -> None:
        if event.old is not None:
            self._drop(event.old)
        if event.type != "DELETED":
            self._put(event.obj)

    def _places(self, pod: Object) -> list[dict[str, Object]]:
        places = [self.by_uid]
        if node := node_of(pod):
            places.append(self._by_node.setdefault(node, {}))
        if owner := controller_uid(pod):
            places.append(self._by_controller.setdefault(owner, {}))
        elif not is_terminating(pod):
            places.append(self._orphans.setdefault(namespace_of(pod), {}))
        return places

    def _put(self, pod: Object) -> None:
        for place in self._places(pod):
            place[uid_of(pod)] = pod

    def _drop(self, pod: Object) -> None:
        for place in self._places(pod):
            place.pop(uid_of(pod), None)


@dataclass(slots=True)
class World:
    """Hold the store, the queue, the settings and the indexes of one sandbox."""

    store: Store
    queue: WorkQueue
    random: Random
    delays: Delays = field(default_factory=Delays)
    faults: Faults = field(default_factory=Faults)
    pods: PodIndex = field(init=False)
    hardware: Hardware = field(default_factory=PlainHardware)
    evictor: Callable[[str, str], object] | None = None
    """What carries out an eviction as the API server's subresource does; set by whoever builds the API server."""

    has_image: Callable[[str], bool] = lambda image: True
    """Tells whether an image can be pulled from somewhere."""

    pull_seconds: Callable[[str], float] = lambda image: 0.0
    """Tells how long pulling an image takes that is not on a machine yet."""

    def __post_init__(self) -> None:
        self.pods = PodIndex(self.store)

    def evict(self, namespace: str, name: str) -> None:
        """Evict a pod; raises errors.TooManyRequests while a budget protects it."""
        if self.evictor is None:
            self.store.delete("pods", namespace, name)
        else:
            self.evictor(namespace, name)

    def now(self) -> float:
        """Return the sandbox's unix seconds."""
        return self.store.now()
