"""What the validator tells Prometheus of its node, by the names of NVIDIA's node status exporter."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app

from gpuward import errors
from gpuward.agents.api import ApiServer
from gpuward.agents.host import Host, HostError
from gpuward.agents.telling import Teller
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.agents.validator.look import driver_facts, gpus
from gpuward.agents.validator.managed import is_managed
from gpuward.agents.validator.plan import RESOURCES, count, driver
from gpuward.kube.http.listening import on_all_addresses

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

READY = ("driver", "toolkit", "plugin", "cuda")
FILES_EVERY, DRIVER_EVERY, PLUGIN_EVERY, PCI_EVERY = 30.0, 60.0, 30.0, 60.0
OVERDUE = 150.0
"""Seconds after which a look that lasts counts as one that failed. The host's nvidia-smi and the container's have 60 each."""
CHECK_EVERY = 5.0
CLIENT_SECONDS = 10.0
"""Seconds of silence after which a client is left."""
MOST_CLIENTS: Final = 30
"""Clients at once: with each more the one that came first is left. Metrics are read in a moment, and some who read none send a
byte now and then.
"""
NODE, PCI = "gpu_operator_node_", "gpu_operator_"
GAUGES: Final = {
    f"{NODE}metrics_ready_ts_seconds": "When these metrics began.",
    **{f"{NODE}{name}_ready": f"Whether {name}-ready is there." for name in READY},
    f"{NODE}driver_validation": "Whether the driver works: 1, or 0.",
    f"{NODE}driver_validation_last_success_ts_seconds": "When the driver was seen to work last; 0 for never.",
    f"{NODE}device_plugin_devices_total": "Devices that the plugin offers; -1 where that is not known.",
    f"{NODE}device_plugin_validation_last_success_ts_seconds": "When it was seen to offer any last; 0 for never.",
    f"{PCI}nvidia_pci_devices_total": "NVIDIA's GPUs on the PCI bus; -1 where that is not known.",
}

Readings = Mapping[str, float]


@dataclass(slots=True)
class Look:
    """Hold a look that is made again and again, and what is told where it fails or does not end."""

    take: Callable[[], Readings]
    every: float
    failed: Readings
    begun: float | None = None
    """When it began, while it lasts."""


@dataclass(slots=True)
class NodeMetrics:
    """Look at the status files, the driver, the node's resources and the PCI bus, each in its own time."""

    settings: ValidatorSettings
    host: Host
    api: ApiServer
    teller: Teller
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set by who has seen enough."""
    _gauges: dict[str, Gauge] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _asking: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Held by the look that asks the API server, which one at a time may."""

    def serve(self) -> None:
        """Serve the metrics and keep them true until told to end.

        Raises:
            HostError: the port is taken, or one of the looks has ended for good.
        """
        server = _server(self.settings.port, self.registry)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            self._serve()
        finally:
            self.ended.set()
            server.shutdown()
            server.server_close()

    def _serve(self) -> None:
        # What was never well says so, as NVIDIA's does: an alert of how long ago that was hears nothing of what is not there.
        self._set({f"{NODE}metrics_ready_ts_seconds": time.time(), f"{NODE}driver_validation_last_success_ts_seconds": 0.0,
                   f"{NODE}device_plugin_validation_last_success_ts_seconds": 0.0})
        self.teller.say(f"serving the metrics of {self.settings.node} on port {self.settings.port}")
        looks = (
            Look(self.files, FILES_EVERY, {f"{NODE}{name}_ready": 0.0 for name in READY}),
            Look(self.driver, DRIVER_EVERY, {f"{NODE}driver_validation": 0.0}),
            Look(self.plugin, PLUGIN_EVERY, {f"{NODE}device_plugin_devices_total": -1.0}),
            Look(self.pci, PCI_EVERY, {f"{PCI}nvidia_pci_devices_total": -1.0}))
        threads = {look.take.__name__: threading.Thread(target=self._keep, args=(look,), daemon=True) for look in looks}
        for thread in threads.values():
            thread.start()
        while not self.ended.wait(CHECK_EVERY):
            for look in looks:
                self._check(look)
            if ended := [name for name, thread in threads.items() if not thread.is_alive()]:
                raise HostError(f"nobody looks at {', '.join(ended)} any more: see the traceback above")

    def files(self) -> Readings:
        """Look whether the status files are there."""
        return {f"{NODE}{name}_ready": float(self.host.exists(f"{self.settings.output}/{name}-ready")) for name in READY}

    def driver(self) -> Readings:
        """Try the driver, with what the driver's container is to bring besides where the operator brings it."""
        well = self._is_driver_well()
        return {f"{NODE}driver_validation": float(well),
                **({f"{NODE}driver_validation_last_success_ts_seconds": time.time()} if well else {})}

    def _is_driver_well(self) -> bool:
        facts = driver_facts(self.host, self.settings, is_managed=lambda: True)
        if not driver(facts, self.settings).missing:
            return True
        if facts.container_ready is None:
            facts = driver_facts(self.host, self.settings, is_managed=lambda: False)
        # Whose driver it is is asked where that alone decides.
        if driver(replace(facts, managed=False), self.settings).missing:
            return False
        with self._asking:
            return not is_managed(self.api, self.settings.namespace)

    def plugin(self) -> Readings:
        """Count what the device plugin offers."""
        with self._asking:
            node = self.api.get(f"/api/v1/nodes/{self.settings.node}")
        offered = (node.get("status") or {}).get("capacity") or {}
        there = sum(count(value) for name, value in offered.items() if name.startswith(RESOURCES))
        return {f"{NODE}device_plugin_devices_total": float(there),
                **({f"{NODE}device_plugin_validation_last_success_ts_seconds": time.time()} if there else {})}

    def pci(self) -> Readings:
        """Count the GPUs on the PCI bus."""
        return {f"{PCI}nvidia_pci_devices_total": float(len(gpus(self.host)))}

    def _keep(self, look: Look) -> None:
        while not self.ended.is_set():
            begun = look.begun = time.monotonic()
            try:
                found = look.take()
            except errors.GpuwardError as error:
                self.teller.say(f"{look.take.__name__}: {error}")
                found = look.failed
            with self._lock:
                look.begun = None
                self._set(found)
            self.ended.wait(max(begun + look.every - time.monotonic(), 0.1))

    def _check(self, look: Look) -> None:
        with self._lock:
            overdue = look.begun is not None and time.monotonic() - look.begun > OVERDUE
            if overdue:
                self._set(look.failed)
        if overdue:
            self.teller.say(f"{look.take.__name__}: no answer for {OVERDUE:g} s")

    def _set(self, readings: Readings) -> None:
        for name, value in readings.items():
            if name not in self._gauges:
                self._gauges[name] = Gauge(name, GAUGES[name], ["node"], registry=self.registry)
            self._gauges[name].labels(self.settings.node).set(value)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._clients: dict[socket.socket, None] = {}
        """In the order in which they came."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client by a thread of its own, and leave the first one where there are too many."""
        self._clients[request] = None
        for first in list(self._clients)[:-MOST_CLIENTS]:
            self._clients.pop(first, None)
            with contextlib.suppress(OSError):  # its thread sees the end of it, and ends
                first.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection to a client."""
        self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that are silent, or have gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Silent(WSGIRequestHandler):
    def setup(self) -> None:
        """Wait for nobody for ever."""
        self.request.settimeout(CLIENT_SECONDS)
        super().setup()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests."""


def _with_heads(app: WSGIApplication) -> WSGIApplication:
    """Return an application that answers HEAD as it does GET, without the body: probes of networks ask so."""
    def answered(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "HEAD":
            return app(environ, start)
        app({**environ, "REQUEST_METHOD": "GET"}, start)
        return []

    return answered


def _server(port: int, registry: CollectorRegistry) -> WSGIServer:
    """Return a server that listens. Raises HostError where it cannot."""
    server = _Server(("", port), _Silent, bind_and_activate=False)
    server.socket.close()
    try:
        server.socket = on_all_addresses(port)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise HostError(f"METRICS_PORT: cannot listen on port {port}: {why}") from error
    server.server_name, server.server_port = "", port
    server.setup_environ()
    server.set_app(_with_heads(make_wsgi_app(registry)))
    return server
