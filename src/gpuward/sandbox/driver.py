"""The driver pod: k8s-driver-manager, which makes room for a driver, and the driver container, which loads it.

Facts from NVIDIA's k8s-driver-manager and driver container; the order of the steps is theirs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gpuward.model.systems import is_kernel
from gpuward.names import DEPLOY_DRIVER, DEPLOY_PREFIX, DRIVER_CONFIG_DIGEST, UPGRADE_ENABLED
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.gpus import gpus_wanted
from gpuward.sandbox.images import built_for_kernel
from gpuward.sandbox.machine import DRIVER_CONTAINER_READY
from gpuward.sandbox.programs import GpuProgram
from kubesandbox.errors import NotFound, TooManyRequests
from kubesandbox.sim.objects import Object, annotations_of, is_terminating, labels_of, name_of, namespace_of, stamp
from kubesandbox.sim.programs import Pause, Pausing, Waits, Watch
from kubesandbox.store import Store, copy

if TYPE_CHECKING:
    from collections.abc import Callable

FIELD_MANAGER: Final = "driver-manager"
PAUSED: Final = "paused-for-driver-upgrade"
ALWAYS_PAUSED: Final = (
    "operator-validator", "container-toolkit", "device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm",
    "sandbox-validator", "sandbox-device-plugin", "vgpu-device-manager", "dra-validator", "dcgm-dra",
    "dcgm-exporter-dra")
PAUSED_IF_SET: Final = ("mig-manager", "client")
WAITED_FOR: Final = (
    "nvidia-operator-validator", "nvidia-container-toolkit-daemonset", "nvidia-device-plugin-daemonset",
    "gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-dcgm", "nvidia-dcgm-exporter-dra", "nvidia-dcgm-dra",
    "nvidia-mig-manager", "nvidia-sandbox-validator", "nvidia-sandbox-device-plugin-daemonset",
    "nvidia-vgpu-device-manager")
GONE_WITHIN_SECONDS: Final = 300.0
HOST_DRIVER_REST_SECONDS: Final = 60.0
EVICTION_RETRY_SECONDS: Final = 5.0


def driver_version(image: str) -> str:
    """Return the driver version in an image name: `driver:550.90.07-ubuntu22.04` is 550.90.07."""
    tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
    return tag.split("-")[0] or "unknown"


class DriverManagerProgram(GpuProgram):
    """Be the init container k8s-driver-manager: pause the operands, empty the GPUs, unload the old driver.

    Like NVIDIA's it puts the operands' labels back when it ends by itself, and leaves them paused when it is killed.
    """

    def run(self, now: float) -> Waits:
        now = yield Pause(now + self.delays.manager_seconds)
        if self.machine.host_driver:
            self._label(lambda labels: labels.update({DEPLOY_DRIVER: "pre-installed"}))
            yield Pause(now + HOST_DRIVER_REST_SECONDS)
            return self._fail("a driver is installed on the host")
        evicts = self._evicts()
        if not self.machine.driver:
            self.say("no driver is loaded: there is nothing to make room for")
            if evicts:
                self._cordon(False)
            self._resume()
            return 0
        self.say(f"driver {self.machine.driver} is loaded: pausing the operands that use it ({DEPLOY_PREFIX}*={PAUSED})")
        self._pause()
        deadline = now + GONE_WITHIN_SECONDS
        while remaining := self._operands():
            self._once("waiting for operands to go: " + ", ".join(remaining))
            if now >= deadline:
                self._resume()
                return self._fail("operands did not go: " + ", ".join(remaining))
            now = yield Watch(deadline)
        self.say("the operands have gone")
        if self.machine.digest and self.machine.digest == self.place.env(DRIVER_CONFIG_DIGEST):
            self.say("the loaded driver is the wanted one: it stays")
            self._resume()
            return 0
        return (yield from self._replace(now, evicts))

    def _replace(self, now: float, evicts: bool) -> Waits:
        if evicts:
            self.say("cordoning the node and evicting its GPU pods")
            self._cordon(True)
            now = yield from self._evict_gpu_pods(now)
        yield Pause(now + self.delays.manager_seconds)
        before, why = self.machine.driver, self.machine.unload(self.place.who)
        if not why:
            self.say(f"driver {before} is unloaded")
        if evicts:
            self._cordon(False)
        self._resume()
        return self._fail(why) if why else 0

    def _once(self, line: str) -> None:
        if line not in self.lines:
            self.say(line)

    def _fail(self, why: str) -> int:
        self.message = why
        return 1

    def _evicts(self) -> bool:
        """Tell whether evicting GPU pods is this container's task, not the upgrade controller's."""
        enabled = annotations_of(self._node()).get(UPGRADE_ENABLED) == "true"
        return not enabled and self.place.env("ENABLE_GPU_POD_EVICTION") == "true"

    def _node(self) -> Object:
        return self.world.store.find("nodes", None, self.machine.node) or {"metadata": {}, "spec": {}}

    def _label(self, change: Callable[[dict[str, str]], None]) -> None:
        if self.world.store.find("nodes", None, self.machine.node) is not None:
            self.world.store.modify("nodes", None, self.machine.node,
                                    lambda node: change(node["metadata"].setdefault("labels", {})))

    def _pause(self) -> None:
        def change(labels: dict[str, str]) -> None:
            names = [*ALWAYS_PAUSED, *(name for name in PAUSED_IF_SET if labels.get(DEPLOY_PREFIX + name))]
            for name in names:
                labels[DEPLOY_PREFIX + name] = _paused(labels.get(DEPLOY_PREFIX + name, ""))
        self._label(change)

    def _resume(self) -> None:
        def change(labels: dict[str, str]) -> None:
            for name in (*ALWAYS_PAUSED, *PAUSED_IF_SET):
                if PAUSED in labels.get(DEPLOY_PREFIX + name, ""):
                    labels[DEPLOY_PREFIX + name] = _resumed(labels[DEPLOY_PREFIX + name])
        self._label(change)

    def _operands(self) -> list[str]:
        own = namespace_of(self.place.pod)
        return sorted(name_of(pod) for pod in self.world.pods.on_node(self.machine.node)
                      if namespace_of(pod) == own and labels_of(pod).get("app") in WAITED_FOR)

    def _cordon(self, wanted: bool) -> None:
        """Cordon the node, or lift any cordon."""
        set_cordon(self.world.store, self.machine.node, wanted, FIELD_MANAGER)

    def _evict_gpu_pods(self, now: float) -> Pausing:
        while pods := [pod for pod in self.world.pods.on_node(self.machine.node) if gpus_wanted(pod["spec"])]:
            self._once("waiting for GPU pods to go: " + ", ".join(f"{namespace_of(pod)}/{name_of(pod)}" for pod in pods))
            for pod in pods:
                if not is_terminating(pod):
                    try:
                        self.world.evict(namespace_of(pod), name_of(pod))
                    except (TooManyRequests, NotFound) as error:
                        self._once(f"pod {namespace_of(pod)}/{name_of(pod)} is not evicted: {error}")
            now = yield Watch(now + EVICTION_RETRY_SECONDS)
        return now


class DriverContainer(GpuProgram):
    """Be the container nvidia-driver-ctr: install, load, serve until told to stop, then unload if nobody uses it."""

    def run(self, now: float) -> Waits:
        delays, image = self.delays, self.place.container.get("image") or ""
        version, digest = driver_version(image), self.place.env(DRIVER_CONFIG_DIGEST)
        if not self.machine.gpus:
            yield Pause(now + delays.init_seconds)
            return self._fail("no NVIDIA GPU device is present")
        reused = bool(self.machine.driver) and bool(digest) and self.machine.digest == digest
        if self.machine.driver and not reused and (why := self.machine.unload(self.place.who)):
            yield Pause(now + delays.init_seconds)
            return self._fail(why)
        self.say(f"driver {self.machine.driver} is loaded already and the wanted one: installing libraries only" if reused
                 else f"installing driver {version}: building its kernel modules")
        now = yield Pause(now + (delays.driver_reuse_seconds if reused else delays.driver_seconds))
        if self._hit(FaultKind.DRIVER_CRASH, image):
            return self._fail("could not build the kernel modules")
        runs, built_for = self._kernel(), built_for_kernel(image)
        if built_for and runs and not reused and not is_kernel(built_for, runs):
            return self._fail(f"the modules of this image are for kernel {built_for}, and {runs} runs here")
        if self._hit(FaultKind.DRIVER_NEVER_READY, image):
            self.say(f"nvidia-smi: no answer from driver {version}: GPU 0 is not accessible")
        while self._hit(FaultKind.DRIVER_NEVER_READY, image):
            now = yield Watch()
        # With the digest of what is loaded only libraries and daemons are installed, whatever version the image has.
        if not (reused and self.machine.driver) and (why := self.machine.load(version, digest, self.place.who)):
            return self._fail(why)
        self.machine.write(DRIVER_CONTAINER_READY)
        self.machine.serve(self.place.who)
        self.say(f"driver {self.machine.driver} is loaded and ready for {self.machine.gpus} GPUs")
        self.ready = True
        while True:
            yield Pause(float("inf"))

    def settle(self) -> None:
        version = driver_version(self.place.container.get("image") or "")
        self.machine.load(version, self.place.env(DRIVER_CONFIG_DIGEST), self.place.who)
        self.machine.write(DRIVER_CONTAINER_READY)

    def stop(self) -> None:
        self.machine.erase(DRIVER_CONTAINER_READY)

    def end(self) -> None:
        self.machine.erase(DRIVER_CONTAINER_READY)
        if self.ready:
            self.machine.leave(self.place.who)
            self.machine.unload(self.place.who)

    def _kernel(self) -> str:
        node = self.world.store.find("nodes", None, self.machine.node) or {}
        return str((node.get("status", {}).get("nodeInfo") or {}).get("kernelVersion") or "")

    def _fail(self, why: str) -> int:
        self.message = why
        return 1

    def _hit(self, kind: FaultKind, image: str) -> bool:
        return self.world.faults.hits(kind, self.machine.node, name_of(self.place.pod), image)


def _paused(value: str) -> str:
    if value in ("", "false") or PAUSED in value:
        return value
    return PAUSED if value == "true" else f"{value}_{PAUSED}"


def _resumed(value: str) -> str:
    if value == PAUSED:
        return "true"
    return re.sub(f"{PAUSED}_?", "", value).strip("_")


def set_cordon(store: Store, name: str, wanted: bool, manager: str) -> None:
    """Cordon a node, or lift any cordon; API servers note who did, by the name of the program."""
    node = store.find("nodes", None, name)
    if node is None or bool(node["spec"].get("unschedulable")) is wanted:
        return
    node = copy(node)
    node["spec"].pop("unschedulable", None)
    owners = [one for one in node["metadata"].get("managedFields", ()) if not _is_for_cordon(one)]
    if wanted:
        node["spec"]["unschedulable"] = True
        owners.append({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": stamp(store.now()),
                       "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}})
    node["metadata"]["managedFields"] = owners
    store.update("nodes", node, decoded=True)


def _is_for_cordon(owner: Object) -> bool:
    return "f:unschedulable" in (owner.get("fieldsV1") or {}).get("f:spec", {})
