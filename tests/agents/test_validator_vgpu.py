"""Which devices count as vGPUs: those of NVIDIA's, on a machine whose other graphics can be shared, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuward.agents.host import Ran
from gpuward.agents.machine import Machine
from gpuward.agents.telling import Teller
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.agents.validator.run import Validation
from gpuward.agents.validator.workload import ValidationError
from gpuward.agents.waiting import Patience
from tests.agents.test_driver_manager_evict import Server


class Quiet(Machine):
    """Be a machine whose nvidia-smi is well."""

    def run(self, *args: object, **keywords: object) -> Ran:
        return Ran(0, "")


def shared(folder: Path, address: str, vendor: str) -> None:
    """Put a device there that another one is made of."""
    device = folder / f"sys/devices/pci0000:00/{address}"
    (device / f"uuid-{address}").mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    for place, target in (("class/mdev_bus", address), ("bus/mdev/devices", f"{address}/uuid-{address}")):
        (folder / "sys" / place).mkdir(parents=True, exist_ok=True)
        up = "../../devices" if place.startswith("class") else "../../../devices"
        (folder / "sys" / place / Path(target).name).symlink_to(f"{up}/pci0000:00/{target}")


@pytest.mark.parametrize(("component", "file", "lacks"), [
    ("vgpu-manager", "host-vgpu-manager-ready", "there are neither virtual functions nor parent devices"),
    ("vgpu-devices", "vgpu-devices-ready", "there is no vGPU")])
def test_devices_of_another_vendor_are_no_vgpus(tmp_path: Path, component: str, file: str, lacks: str) -> None:
    smi = tmp_path / "root/host/usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text("x")
    smi.chmod(0o755)
    host, server, teller = Quiet(tmp_path / "root", tmp_path / "sys", tmp_path / "proc"), Server([]), Teller()
    server.node["metadata"]["labels"]["nvidia.com/gpu.workload.config"] = "vm-vgpu"
    now = [0.0]
    patience = Patience(teller, lambda: now[0], lambda seconds: now.append(now.pop() + seconds))
    validation = Validation(ValidatorSettings(component, node="gpu-1"), host, lambda: server, teller, patience)
    shared(tmp_path, "0000:00:02.0", "0x8086")
    with pytest.raises(ValidationError, match=lacks):
        validation.run()
    shared(tmp_path, "0000:3b:00.4", "0x10de")
    validation.run()
    assert (tmp_path / "root/run/nvidia/validations" / file).exists()
