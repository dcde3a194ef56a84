"""The validator at work: one component, until it is well or the patience is over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpuward.agents.api import ApiServer
from gpuward.agents.host import Host, HostError, KernelBusyError, Ran
from gpuward.agents.telling import Teller
from gpuward.agents.validator import look, plan
from gpuward.agents.validator.facts import WORKLOAD_TYPE, ValidatorSettings, status_files
from gpuward.agents.validator.managed import Managed, is_managed
from gpuward.agents.validator.plan import Verdict
from gpuward.agents.validator.workload import ValidationError, Workload
from gpuward.agents.waiting import Patience, TimeIsUpError

AT_ONCE: Final = 15.0
"""Seconds for what is not waited for: an attempt of the kubelet's costs more than a few looks."""
VGPU_SECONDS: Final = 300.0
MLX_READY: Final = "/run/mellanox/drivers/.driver-ready"
CC_READY: Final = ".cc-manager-ctr-ready"
CC_CAPABLE: Final = "nvidia.com/cc.capable"
MLX_PRESENT: Final = "feature.node.kubernetes.io/pci-15b3.present"
WORKLOAD_CONFIG: Final = "nvidia.com/gpu.workload.config"
FOR: Final = {"vfio-pci": "vm-passthrough", "vgpu-manager": "vm-vgpu", "vgpu-devices": "vm-vgpu"}
"""What a node has to be for that a component matters there."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Try one component."""

    settings: ValidatorSettings
    host: Host
    connect: Callable[[], ApiServer]
    teller: Teller
    patience: Patience

    def run(self) -> None:
        """Leave the component's status file once it is well. Raises ValidationError."""
        component = self.settings.component
        self._forget()
        if self.settings.skip:
            self.teller.say(f"{component} is not looked at, as was asked for")
            self._leave(Verdict(files={f"{component}-ready": ""}))
            return
        if component in FOR:
            found = plan.workload_type(self.settings, self._label(WORKLOAD_CONFIG))
            self.host.write(f"{self.settings.output}/{WORKLOAD_TYPE}", found + "\n")
            if found != FOR[component]:
                self.teller.say(f"the node is for {found}: {component} is not needed")
                return
        if component in ("cuda", "plugin"):
            Workload(self.settings, self.connect(), self.patience).run()
            self._leave(Verdict(files={f"{component}-ready": ""}))
            return
        self._leave(self._await(self._judge()))

    def _forget(self) -> None:
        for name in status_files(self.settings.component):
            self.host.remove(f"{self.settings.output}/{name}")

    def _judge(self) -> Callable[[], Verdict]:
        settings, host = self.settings, self.host
        match settings.component:
            case "driver":
                return self._driver(Managed(lambda: is_managed(self.connect(), self.settings.namespace), self.patience.monotonic))
            case "toolkit":
                return lambda: plan.toolkit(self._smi("", look.IN_CONTAINERS))
            case "mofed":
                present = settings.rdma and self._label(MLX_PRESENT) == "true"
                return lambda: plan.mofed(settings, present=present, ready=self._mofed_ready())
            case "vfio-pci":
                return lambda: plan.vfio(look.gpus(host))
            case "vgpu-manager":
                return self._vgpu_manager
            case "vgpu-devices":
                return lambda: plan.vgpu_devices(look.vgpus(host))
            case "cc-manager":
                capable = self._label(CC_CAPABLE) == "true"
                return lambda: plan.cc_manager(capable=capable, ready=host.exists(f"{settings.output}/{CC_READY}"))
            case component:
                return lambda: plan.module(component, frozenset(host.modules()))

    def _driver(self, managed: Managed) -> Callable[[], Verdict]:
        def judged(is_managed: Callable[[], bool]) -> Verdict:
            return plan.driver(look.driver_facts(self.host, self.settings, is_managed=is_managed), self.settings)

        def judge() -> Verdict:
            verdict = judged(managed.known)
            # A driver that is half installed answers, too: nothing is called well by what was so a while ago.
            return judged(managed.now) if managed.remembered and not verdict.missing else verdict

        return judge

    def _smi(self, root: str, folders: Sequence[str] = look.PROGRAMS) -> Ran | None:
        found = look.program(self.host, root, folders=folders)
        return self.host.run([found], root=root, timeout=look.SMI_SECONDS) if found else None

    def _vgpu_manager(self) -> Verdict:
        on_host = look.program(self.host, "/host") is not None
        smi = self._smi("/host" if on_host else self.settings.install_dir_here)
        return plan.vgpu_manager(smi, look.gpus_with_functions(self.host), len(look.vgpu_parents(self.host)), host=on_host)

    def _mofed_ready(self) -> bool:
        return "mlx5_core" in self.host.modules() if self.settings.host_mofed else self.host.exists(MLX_READY)

    def _label(self, key: str) -> str | None:
        node = self.connect().get(f"/api/v1/nodes/{self.settings.node}")
        return (node["metadata"].get("labels") or {}).get(key)

    def _await(self, judge: Callable[[], Verdict]) -> Verdict:
        found = [Verdict()]

        def missing() -> str:
            try:
                found[0] = judge()
            except KernelBusyError as error:
                return f"{error}: see `dmesg` on this node"
            return found[0].missing

        seconds = VGPU_SECONDS if self.settings.component == "vgpu-manager" else AT_ONCE
        try:
            self.patience.wait(missing, seconds=math.inf if self.settings.wait else seconds, every=self.settings.every)
        except TimeIsUpError as error:
            raise ValidationError(str(error)) from None
        return found[0]

    def _leave(self, verdict: Verdict) -> None:
        if self.settings.component == "driver" and self.settings.dev_char and not look.is_wsl(self.host):
            try:
                self._link_devices(verdict)
            except HostError as error:
                raise ValidationError(
                    f"{error}: without these links containers may lose their GPUs (NVIDIA/gpu-operator issue 430); "
                    "DISABLE_DEV_CHAR_SYMLINK_CREATION=true in the validator's env goes without them") from None
        for name, content in verdict.files.items():
            self.host.write(f"{self.settings.output}/{name}", content)
        self.teller.say(f"{self.settings.component} is {'well' if verdict.files else 'not needed here'}")

    def _link_devices(self, verdict: Verdict) -> None:
        said = dict(line.partition("=")[::2] for line in verdict.files["driver-ready"].splitlines())
        facts = look.device_facts(self.host)
        here = "/host" if said["DEV_ROOT_CTR_PATH"] == "/host" else self.settings.install_dir_here
        for path, (major, minor) in plan.control_devices(facts).items():
            self.host.make_device(here + path, major, minor)
        for number, target in plan.device_links(facts, said["NVIDIA_DEV_ROOT"]).items():
            self.host.symlink(f"/host-dev-char/{number}", target)
