"""Images that stand in for NVIDIA's operands on real nodes: one content, under all names that a ClusterPolicy gives them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.controlplane.processes import ProcessFailed
from tools.node import image
from tools.node.image import Config

SOURCE = Path(__file__).with_name("operands")
LIBRARIES = Path(__file__).with_name("libraries")
SYSTEM = "ubuntu22.04"
WORKLOAD = "localhost/gpuward-node/train:1"
"""The image of a workload that uses its GPU until it is told to end."""
PROGRAMS = ("nvidia-driver", "driver-manager", "nvidia-toolkit", "nvidia-validator", "nvidia-device-plugin",
            "gpu-feature-discovery", "dcgm-exporter", "nvidia-smi", "vectorAdd", "train")
_SHELL = ("sh", "cat", "echo", "grep", "mkdir", "mv", "rm", "sleep", "true")
_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
_ALL, _NONE = "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"
_KINDS: Mapping[str, tuple[str, str]] = {
    "k8s-driver-manager": ("driver-manager", _NONE), "container-toolkit": ("nvidia-toolkit", _NONE),
    "gpu-operator": ("nvidia-validator", _NONE), "k8s-device-plugin": ("nvidia-device-plugin", _ALL),
    "dcgm-exporter": ("dcgm-exporter", _ALL),
}
"""From the last part of an image's name to its entry point, and to which GPUs its containers see."""


def build(policy: Mapping[str, Any], drivers: Iterable[str], cache: Path, output: Path) -> list[str]:
    """Write the images that a ClusterPolicy names, and drivers of these versions, to a tar file, and return their names."""
    program, images = cache / "operands", configs(policy, drivers)
    image.build_program(SOURCE, program)
    content: dict[str, bytes | str] = {"usr/bin/operands": program.read_bytes(), "bin/busybox": _busybox(), **_libraries(cache)}
    content |= {f"usr/bin/{name}": "operands" for name in PROGRAMS} | {f"bin/{name}": "busybox" for name in _SHELL}
    image.write(images, content, output)
    return list(images)


def configs(policy: Mapping[str, Any], drivers: Iterable[str]) -> dict[str, Config]:
    """Return from the names of the images to how their containers start."""
    driver = policy["spec"]["driver"]
    found = {f"{driver['repository']}/{driver['image']}:{version}-{SYSTEM}": _config("nvidia-driver", _NONE, version)
             for version in drivers}
    for part in _parts(policy["spec"]):
        if kind := _KINDS.get(part["image"]):
            found[f"{part['repository']}/{part['image']}:{part['version']}"] = _config(*kind)
    return found | {WORKLOAD: _config("train", _NONE)}


def _parts(value: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if {"repository", "image", "version"} <= value.keys():
            yield value
        for each in value.values():
            yield from _parts(each)


def _config(program: str, devices: str, driver: str = "") -> Config:
    version = [f"DRIVER_VERSION={driver}"] if driver else []
    return {"Entrypoint": [f"/usr/bin/{program}"], "WorkingDir": "/", "Env": [_PATH, devices, *version]}


def _libraries(cache: Path) -> dict[str, bytes]:
    """Return the libraries where the driver takes them from, a program that lists GPUs by NVML, and what that program needs."""
    if not (cc := shutil.which("cc")):
        raise ProcessFailed("a C compiler is missing; with Debian: apt-get install -y --no-install-recommends gcc libc6-dev")
    libraries, program = {"nvml.c": cache / "libnvidia-ml.so.1", "cuda.c": cache / "libcuda.so.1"}, cache / "nvml-list"
    for source, output in {**libraries, "list.c": program}.items():
        options = ("-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{output.name}") if source in libraries else ()
        line = [cc, "-O1", "-s", "-Wall", "-Werror", *options, "-o", str(output), str(LIBRARIES / source)]
        if (done := subprocess.run(line, capture_output=True, text=True, check=False)).returncode:
            raise ProcessFailed(f"{source} cannot be built: {done.stderr.strip()}")
    needed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    found = {path.lstrip("/"): Path(path).read_bytes() for path in re.findall(r"(/\S+) \(", needed)}
    packed = {f"opt/nvidia/{library.name}": library.read_bytes() for library in libraries.values()}
    return found | packed | {f"usr/bin/{program.name}": program.read_bytes()}


def _busybox() -> bytes:
    """Return a shell that needs no library."""
    found = shutil.which("busybox")
    program = Path(found).read_bytes() if found else b""
    # A program that needs libraries names the loader that finds them.
    if not program or b"/ld-linux" in program[:4096]:
        raise ProcessFailed("a static busybox is missing; with Debian: apt-get install -y --no-install-recommends busybox-static")
    return program
