"""What the validator tells Prometheus of its node, by the names of NVIDIA's node status exporter."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from gpuward import errors
from gpuward.agents.api import ApiServer
from gpuward.agents.host import Host, HostError
from gpuward.agents.telling import Teller
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.agents.validator.look import driver_facts, gpus
from gpuward.agents.validator.plan import RESOURCES, driver

READY = ("driver", "toolkit", "plugin", "cuda")
FILES_EVERY, DRIVER_EVERY, PLUGIN_EVERY, PCI_EVERY = 30.0, 60.0, 30.0, 60.0


@dataclass(slots=True)
class NodeMetrics:
    """Look at the status files, the driver, the node's resources and the PCI bus, each in its own time."""

    settings: ValidatorSettings
    host: Host
    api: ApiServer
    teller: Teller
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _gauges: dict[str, Gauge] = field(default_factory=dict, init=False)

    def serve(self) -> None:
        """Serve the metrics and keep them true until told to end."""
        start_http_server(self.settings.port, registry=self.registry)
        self._set("metrics_ready_ts_seconds", "When these metrics began.", time.time())
        self.teller.say(f"serving the metrics of {self.settings.node} on port {self.settings.port}")
        next_time = dict.fromkeys((self.files, self.driver, self.plugin, self.pci), 0.0)
        every = {self.files: FILES_EVERY, self.driver: DRIVER_EVERY, self.plugin: PLUGIN_EVERY, self.pci: PCI_EVERY}
        while True:
            now = time.monotonic()
            for look, due in next_time.items():
                if due <= now:
                    next_time[look] = now + every[look]
                    look()
            time.sleep(max(min(next_time.values()) - time.monotonic(), 0.1))

    def files(self) -> None:
        """Look whether the status files are there."""
        for name in READY:
            there = self.host.exists(f"{self.settings.output}/{name}-ready")
            self._set(f"{name}_ready", f"Whether {name}-ready is there.", float(there))

    def driver(self) -> None:
        """Try the driver."""
        try:
            well = not driver(driver_facts(self.host, self.settings, managed=False), self.settings).missing
        except HostError as error:
            self.teller.say(str(error))
            well = False
        self._set("driver_validation", "Whether the driver works: 1, or 0.", float(well))
        if well:
            self._set("driver_validation_last_success_ts_seconds", "When the driver was seen to work last.", time.time())

    def plugin(self) -> None:
        """Count what the device plugin offers."""
        try:
            node = self.api.get(f"/api/v1/nodes/{self.settings.node}")
        except (errors.ApiError, errors.Unreachable) as error:
            self.teller.say(f"the node cannot be read: {error}")
            self._set("device_plugin_devices_total", "Devices that the plugin offers; -1 where that is not known.", -1.0)
            return
        offered = (node.get("status") or {}).get("allocatable") or {}
        count = sum(int(value) for name, value in offered.items() if name.startswith(RESOURCES) and value.isdecimal())
        self._set("device_plugin_devices_total", "Devices that the plugin offers; -1 where that is not known.", float(count))
        if count:
            self._set("device_plugin_validation_last_success_ts_seconds", "When it was seen to offer any last.", time.time())

    def pci(self) -> None:
        """Count the GPUs on the PCI bus."""
        count = float(len(gpus(self.host)))
        self._set("nvidia_pci_devices_total", "NVIDIA's GPUs on the PCI bus.", count, prefix="gpu_operator_")

    def _set(self, name: str, says: str, value: float, prefix: str = "gpu_operator_node_") -> None:
        gauge = self._gauges.get(name)
        if gauge is None:
            gauge = self._gauges[name] = Gauge(prefix + name, says, ["node"], registry=self.registry)
        gauge.labels(self.settings.node).set(value)
