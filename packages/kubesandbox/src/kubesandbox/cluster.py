"""The sandbox as one thing: a store, its API server, and the simulation behind it."""

from __future__ import annotations

import asyncio
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import eviction, preconditions
from kubesandbox.api import ApiServer
from kubesandbox.errors import AlreadyExists, InputError, NotFound
from kubesandbox.messages import Request
from kubesandbox.server import HttpServer
from kubesandbox.sim.simulation import Simulation
from kubesandbox.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubesandbox.sim.faults import Faults
    from kubesandbox.sim.hardware import Hardware
    from kubesandbox.sim.machine import Machine
    from kubesandbox.sim.world import Delays

Object = dict[str, Any]

WATCH_LAG_SECONDS: Final = (0.005, 0.1)
"""Between these lies the time by which the watch of a resource lags behind the writes; each resource has its own."""


class Sandbox:
    """Be a Kubernetes cluster in this process, on the running event loop's time.

    Make it on a loop of `kubesandbox.timeloop`. `seed` decides everything that is left to chance; `delays` says how
    long things take; `watch_delay` gives the seconds by which each resource's watch lags, by the resource's key; `hardware`
    is what the machines are, plain ones if it is left out. What `fill` puts into the store was there before the cluster lives:
    pods that say that they run are believed.
    """

    def __init__(self, *, seed: int = 0, delays: Delays | None = None, watch_delay: Callable[[str], float] | None = None,
                 hardware: Hardware | None = None, fill: Callable[[Store], None] | None = None) -> None:
        self.store = Store(asyncio.get_running_loop().time, seed)
        self.api = ApiServer(self.store, watch_delay or _own_lag(seed))
        if fill is not None:
            fill(self.store)
        self.simulation = Simulation(self.store, Random(seed), delays, hardware)
        self.simulation.world.evictor = self._evict
        self.api.logs.otherwise = self._log
        self.api.logs.previous = _last_words
        self._http: HttpServer | None = None

    @property
    def delays(self) -> Delays:
        """Return how long things take; may be changed at any time."""
        return self.simulation.world.delays

    @property
    def faults(self) -> Faults:
        """Return the faults of pods; add to them to make something go wrong."""
        return self.simulation.faults

    @property
    def has_image(self) -> Callable[[str], bool]:
        """Return what tells whether an image exists; set it to make some, or all but some, missing. All exist by default."""
        return self.simulation.world.has_image

    @has_image.setter
    def has_image(self, found: Callable[[str], bool]) -> None:
        self.simulation.world.has_image = found

    @property
    def pull_seconds(self) -> Callable[[str], float]:
        """Return what tells how long pulling an image takes that is not on a machine yet; none takes time by default."""
        return self.simulation.world.pull_seconds

    @pull_seconds.setter
    def pull_seconds(self, told: Callable[[str], float]) -> None:
        self.simulation.world.pull_seconds = told

    async def start(self) -> None:
        """Let the cluster live."""
        self.simulation.start()

    async def stop(self) -> None:
        """Stop the cluster and whatever serves it; raises what the simulation itself has failed with, if it has."""
        self.simulation.stop()
        if self._http is not None:
            await self._http.stop()
        if self.simulation.queue.crash is not None:
            raise self.simulation.queue.crash

    async def serve(self, port: int = 0, namespace: str = "default") -> str:
        """Serve the API over HTTP on 127.0.0.1, on a free port when `port` is 0; return a kubeconfig for it."""
        if self._http is None:
            self._http = HttpServer(self.api)
            await self._http.start(port)
        return self._http.kubeconfig(namespace)

    # What is in the cluster.

    def add_node(self, node: Object) -> Object:
        """Add a node, as `kubesandbox.builders` makes them; return it as stored."""
        return self.store.create("nodes", node)

    def remove_node(self, name: str) -> None:
        """Take a node away, machine and all; raises NotFound when there is none of that name."""
        self.store.delete("nodes", None, name)
        self.simulation.kubelets.remove(name)

    def register_node(self, name: str) -> Object:
        """Let a machine whose Node was deleted through the API make it again, as its kubelet does when it is restarted.

        The Node has another uid, only the labels of the kubelet, and no cordon; discovery's labels come after `nfd_seconds`. What
        runs on the machine goes on. Raises AlreadyExists while the Node is there, NotFound when there is no such machine.
        """
        return self.simulation.kubelets.register_node(self.machine(name).node)

    def reboot(self, name: str, kernel: str = "") -> None:
        """Boot a machine anew, into another kernel if one is named: nothing is loaded, and its pods start again.

        Running pods with devices fail, since the kubelet has none to give at that moment.
        """
        self.simulation.kubelets.reboot(self.machine(name).node, kernel)

    def evict_for_shortage(self, namespace: str, pod: str) -> None:
        """Let the kubelet evict a running pod because its node is low on disk: it fails, and no budget is asked."""
        self.simulation.kubelets.evict(self.store.get("pods", namespace, pod))

    def apply(self, obj: Object) -> Object:
        """Create an object, or replace the one of that name; return it as stored.

        Raises InputError for a kind that the cluster does not know, and what the API server would refuse it with.
        """
        key = self._resource_key(obj)
        try:
            return self.store.create(key, obj)
        except AlreadyExists:
            return self.store.update(key, obj)

    def machine(self, node: str) -> Machine:
        """Return the machine under a node, and what is true of it; raises NotFound when there is none of that name.

        A machine outlives its Node, where that is deleted through the API.
        """
        try:
            return self.simulation.machine(node)
        except KeyError:
            raise preconditions.not_found(self.store.resource("nodes"), node) from None

    def set_node_ready(self, node: str, ready: bool) -> None:
        """Let a node's kubelet report that the node is ready, or that it is not."""
        self.simulation.set_node_ready(node, ready)

    def disconnect(self, node: str) -> None:
        """Stop a node's kubelet: Unknown after the grace period, and its pods hang as they are."""
        self.simulation.disconnect(node)

    def reconnect(self, node: str) -> None:
        """Let a stopped kubelet go on."""
        self.simulation.reconnect(node)

    async def until(self, holds: Callable[[], object], timeout: float = 600.0) -> None:
        """Return once something holds in the store, looked at after each burst of changes.

        Raises TimeoutError after `timeout` seconds of the sandbox's time, and what the simulation fails with.
        """
        changed = asyncio.Event()
        stop = self.store.subscribe(lambda _event: changed.set())
        try:
            async with asyncio.timeout(timeout):
                while not holds():
                    if self.simulation.queue.crash is not None:
                        raise self.simulation.queue.crash
                    await changed.wait()
                    changed.clear()
                    await asyncio.sleep(self.delays.reaction_seconds)
        finally:
            stop()

    def _resource_key(self, obj: Object) -> str:
        api_version, kind = obj.get("apiVersion"), obj.get("kind")
        for resource in self.store.resources():
            if resource.kind == kind and resource.api_version == api_version:
                return resource.key
        raise InputError("kind", f"{api_version} {kind}", "use a built-in kind, or create its CustomResourceDefinition first")

    def _log(self, pod: Object, container: str) -> str:
        lines = self.simulation.kubelets.log(pod["metadata"]["uid"], container)
        return "".join(f"{line}\n" for line in lines) or _last_words(pod, container)

    def _evict(self, namespace: str, name: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        try:
            eviction.evict(self.store, self.api.catalog.target(path), Request("POST", path, body=b"{}"))
        except NotFound:
            return


def _last_words(pod: Object, container: str) -> str:
    """Return the log of a container without a log of its own: why it ended last, if it did with a word."""
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in pod["status"].get(field) or ():
            for state in (status["state"], status.get("lastState") or {}):
                if status["name"] == container and (message := (state.get("terminated") or {}).get("message")):
                    return f"{message}\n"
    return ""


def _own_lag(seed: int) -> Callable[[str], float]:
    @cache
    def lag(resource_key: str) -> float:
        return Random(f"{seed}/{resource_key}").uniform(*WATCH_LAG_SECONDS)
    return lag
