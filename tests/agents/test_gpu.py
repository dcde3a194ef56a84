"""The agents on a GPU of this machine, where somebody says that it has one; and what they say of a GPU that they cannot use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from gpuward.agents.machine import Machine
from gpuward.agents.validator.vectoradd import remedy

WANTED = "GPUWARD_GPU"
VERSION = Path("/proc/driver/nvidia/version")
AGENT = "import sys; from gpuward.agents.main import agent; sys.exit(agent('nvidia-validator', ['vector-add']))"
HOLD = """
import ctypes, sys
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
assert not cuda.cuInit(0) and not cuda.cuDeviceGet(ctypes.byref(device), 0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
print("holding", flush=True)
sys.stdin.readline()
"""
ALL = ("null", "nvidia0", "nvidiactl", "nvidia-uvm")
with_gpu = pytest.mark.skipif(os.environ.get(WANTED) != "1", reason="a GPU is used only with ./dev test --gpu")


def add(folder: Path, **environment: str) -> tuple[int, str]:
    """Run the validator's kernel; return its exit code and what it said."""
    done = subprocess.run([sys.executable, "-c", AGENT], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "AGENT_TERMINATION_LOG": str(folder / "last"), **environment})
    return done.returncode, done.stdout + done.stderr


@with_gpu
def test_a_kernel_adds_two_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    code, said = add(tmp_path)
    took = time.monotonic() - begun
    assert code == 0, said
    assert "added two vectors" in said
    driver = VERSION.read_text().splitlines()[0] if VERSION.exists() else "a driver that does not say its version"
    with capsys.disabled():
        sys.stdout.write(f"\n{' '.join(said.split()[1:])}; {' '.join(driver.split())}; {took:.2f} s with Python's start\n")


@with_gpu
def test_a_gpu_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, said = add(tmp_path, CUDA_VISIBLE_DEVICES="GPU-none")
    assert code == 1
    assert "CUDA_ERROR_NO_DEVICE: CUDA_VISIBLE_DEVICES is 'GPU-none', and names none of this container's GPUs" in said


@with_gpu
def test_who_holds_the_gpu_is_seen() -> None:
    machine = Machine()
    assert "nvidia" in machine.modules()
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        assert holder.pid in {user.pid for user in machine.device_users()}
        holder.communicate("\n")
    assert holder.pid not in {user.pid for user in machine.device_users()}


@pytest.mark.parametrize(("code", "devices", "visible", "words"), [
    ("CUDA_ERROR_OUT_OF_MEMORY", ALL, None, "others hold the GPU's memory"),
    ("CUDA_ERROR_SYSTEM_NOT_READY", ALL, None, "fabric manager"),
    ("CUDA_ERROR_NO_DEVICE", ALL, "7", "CUDA_VISIBLE_DEVICES is '7', and names none"),
    ("CUDA_ERROR_NO_DEVICE", ALL, None, "dmesg"),
    ("CUDA_ERROR_UNKNOWN", ALL, "7", "dmesg"),
    # What libcuda says on a machine with an H200 and driver 580 where one of the devices is none.
    ("CUDA_ERROR_NO_DEVICE", ("null", "nvidiactl", "nvidia-uvm"), "0", "lacks /dev/nvidia0 or another GPU: "),
    ("CUDA_ERROR_NO_DEVICE", ("null", "nvidia3", "nvidia-uvm"), None, "lacks /dev/nvidiactl: "),
    ("CUDA_ERROR_UNKNOWN", ("null", "nvidia0", "nvidiactl"), None, "lacks /dev/nvidia-uvm: "),
    ("CUDA_ERROR_UNKNOWN", ("null", "dxg"), None, "dmesg")])
def test_what_to_do_of_an_error(code: str, devices: Collection[str], visible: str | None, words: str) -> None:
    assert words in remedy(code, devices, visible)
