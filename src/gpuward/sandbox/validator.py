"""The steps of NVIDIA's validator, the pods with which it tries CUDA and the device plugin out, and who waits for it.

Facts from nvidia-validator: each step removes its own status file, checks, and writes the file; with WITH_WORKLOAD the cuda
and plugin steps start a pod on the node and wait up to 5 minutes for it to succeed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from gpuward.names import WORKLOAD_CONFIG
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.gpus import is_gpu
from gpuward.sandbox.machine import CUDA_READY, DRIVER_READY, PLUGIN_READY, TOOLKIT_READY
from gpuward.sandbox.programs import GpuProgram, GpuService
from kubesandbox.sim.demands import quantity
from kubesandbox.sim.objects import controller_of, labels_of, name_of, namespace_of, phase_of, uid_of
from kubesandbox.sim.programs import Pause, Waits, Watch

if TYPE_CHECKING:
    from kubesandbox.sim.objects import Object

HOST_DRIVER_READY: Final = "vgpu-manager-ready"
PLUGIN_WAIT_SECONDS: Final = 150.0
WORKLOAD_WAIT_SECONDS: Final = 300.0
VALIDATIONS: Final = (DRIVER_READY, TOOLKIT_READY, CUDA_READY, PLUGIN_READY)
CUDA_WORKLOAD: Final = "nvidia-cuda-validator"
PLUGIN_WORKLOAD: Final = "nvidia-device-plugin-validator"
WORKLOADS: Final = (CUDA_WORKLOAD, PLUGIN_WORKLOAD)


class WaitForToolkit(GpuProgram):
    """Be the init container of an operand that loops until the toolkit's status file is there."""

    def run(self, now: float) -> Waits:
        if TOOLKIT_READY not in self.machine.files:
            self.say(f"waiting for the toolkit to be validated ({TOOLKIT_READY})")
        yield from self.until(now, lambda: TOOLKIT_READY in self.machine.files)
        return 0


class Validation(GpuProgram):
    """Be one step of nvidia-validator: remove the own status file, check, write it.

    With WITH_WAIT the check is repeated until it holds; without, the container fails and the kubelet starts it again.
    """

    file = ""
    awaited = ""
    """What it looks for, in words."""
    workload = ""
    """The app label of the pod that tries it out, where there is one."""

    @abstractmethod
    def holds(self) -> bool:
        """Tell whether what is to be validated is there."""

    def run(self, now: float) -> Waits:
        self.machine.erase(self.file)
        name = self.place.container["name"]
        if self.place.env("WITH_WAIT") == "true":
            if not self.holds():
                self.say(f"{name}: waiting for {self.awaited}")
            now = yield from self.until(now, self.holds)
        tried = self.workload and self.place.env("WITH_WORKLOAD") != "false"
        if not tried:
            now = yield Pause(now + self.delays.validator_seconds)
        if self._hangs():
            self.say(f"{name}: running the check, and waiting for its result")
        while self._hangs():
            now = yield Watch()
        if not self.holds():
            return self._fail(f"the check failed: it looks for {self.awaited}")
        if tried and not (yield from self._try_out(now)):
            return self._fail(f"the pod {self.workload} did not succeed")
        self.settle()
        self.say(f"{self.place.container['name']}: passed, and wrote {self.file}")
        return 0

    def _hangs(self) -> bool:
        return self.world.faults.hits(FaultKind.VALIDATOR_NEVER_READY, self.machine.node, name_of(self.place.pod))

    def _try_out(self, now: float) -> Generator[Pause | Watch, float, bool]:
        """Run the workload pod; tell whether it has succeeded in time."""
        store, namespace = self.world.store, namespace_of(self.place.pod)
        for old in [pod for pod in self.world.pods.on_node(self.machine.node)
                    if namespace_of(pod) == namespace and labels_of(pod).get("app") == self.workload][:1]:
            store.delete("pods", namespace, name_of(old), uid=uid_of(old), grace_seconds=0, propagation="Background")
        made = store.create("pods", self._workload_pod(namespace))
        deadline = now + WORKLOAD_WAIT_SECONDS
        while now < deadline:
            pod = store.find("pods", namespace, name_of(made))
            if pod is not None and phase_of(pod) == "Succeeded":
                return True
            now = yield Watch(deadline)
        return False

    def _workload_pod(self, namespace: str) -> Object:
        image, runtime = self.place.env("VALIDATOR_IMAGE"), self.place.env("VALIDATOR_RUNTIME_CLASS")
        owner = controller_of(self.place.pod) or {"kind": ""}
        daemonset = self.world.store.find("daemonsets.apps", namespace, owner["name"]) if owner["kind"] == "DaemonSet" else None
        found = daemonset or {"metadata": {}, "spec": {"template": {"spec": {}}}}
        spec: dict[str, Any] = {
            "nodeName": self.machine.node, "restartPolicy": "OnFailure",
            "tolerations": found["spec"]["template"]["spec"].get("tolerations") or [],
            "initContainers": [{"name": self.place.container["name"], "image": image, "command": ["vectorAdd"],
                                "resources": self.workload_resources()}],
            "containers": [{"name": self.workload, "image": image, "command": ["echo"]}]}
        if runtime:
            spec["runtimeClassName"] = runtime
        return {"metadata": {"generateName": self.workload + "-", "namespace": namespace, "labels": {"app": self.workload},
                             "ownerReferences": found["metadata"].get("ownerReferences") or []}, "spec": spec}

    def workload_resources(self) -> Object:
        """Return what the workload pod asks for."""
        return {}

    def _fail(self, why: str) -> int:
        self.message = f"{self.place.container['name']}: {why}"
        return 1

    def settle(self) -> None:
        self.machine.write(self.file)


class DriverValidation(Validation):
    """Validate that the driver container, or a driver on the host, is ready."""

    file = DRIVER_READY
    awaited = "a driver that is loaded and ready"

    def holds(self) -> bool:
        return self.machine.has_libraries


class ToolkitValidation(Validation):
    """Validate that a container gets the driver injected."""

    file = TOOLKIT_READY
    awaited = "a container runtime that knows NVIDIA's runtime classes, with a driver"

    def holds(self) -> bool:
        return self.machine.toolkit and self.machine.has_libraries


class CudaValidation(Validation):
    """Validate that a CUDA program runs."""

    file = CUDA_READY
    awaited = "a container runtime with a driver"
    workload = CUDA_WORKLOAD

    def holds(self) -> bool:
        return self.machine.toolkit and self.machine.has_libraries


class PluginValidation(Validation):
    """Validate that the node offers GPUs; NVIDIA's gives up after 30 looks of 5 seconds."""

    file = PLUGIN_READY
    awaited = "a GPU that the device plugin offers"
    workload = PLUGIN_WORKLOAD

    def holds(self) -> bool:
        return bool(self._resources("capacity"))

    def workload_resources(self) -> Object:
        offered = sorted(self._resources("allocatable"), key=lambda name: "mig-" not in name)
        one = {name: "1" for name in offered[:1]}
        return {"limits": one, "requests": one}

    def _resources(self, field: str) -> list[str]:
        node = self.world.store.find("nodes", None, self.machine.node)
        amounts = ((node or {}).get("status") or {}).get(field) or {}
        return [name for name, value in amounts.items() if is_gpu(name) and quantity(value) >= 1]

    def run(self, now: float) -> Waits:
        self.machine.erase(self.file)
        deadline = now + PLUGIN_WAIT_SECONDS
        while not self.holds() and now < deadline:
            now = yield Watch(deadline)
        return (yield from super().run(now))


class HostValidation(Validation):
    """Validate on a host of vGPUs that it has a driver; on other nodes there is nothing to look for."""

    file = HOST_DRIVER_READY
    awaited = "the driver of the vGPU manager"

    def holds(self) -> bool:
        node = self.world.store.find("nodes", None, self.machine.node)
        workload = labels_of(node or {"metadata": {}}).get(WORKLOAD_CONFIG) or self.place.env("DEFAULT_GPU_WORKLOAD_CONFIG")
        return workload != "vm-vgpu" or bool(self.machine.server or self.machine.host_driver)


class ValidatorIdle(GpuService):
    """Be the validator's main container, a shell that idles: its hook takes the status files away, and then it is killed."""

    ignores_stop = True

    def stop(self) -> None:
        self.machine.erase(*VALIDATIONS)
