"""The validator's kernel on a GPU of this machine, where somebody says that it has one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

WANTED = "GPUWARD_GPU"
VERSION = Path("/proc/driver/nvidia/version")


@pytest.mark.skipif(os.environ.get(WANTED) != "1", reason="a GPU is used only with ./dev test --gpu")
def test_a_kernel_adds_two_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; from gpuward.agents.main import agent; sys.exit(agent('nvidia-validator', ['vector-add']))"
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "AGENT_TERMINATION_LOG": str(tmp_path / "last")})
    took = time.monotonic() - begun
    assert done.returncode == 0, done.stdout + done.stderr
    assert "added two vectors" in done.stdout
    driver = VERSION.read_text().splitlines()[0] if VERSION.exists() else "a driver that does not say its version"
    with capsys.disabled():
        sys.stdout.write(f"\n{' '.join(done.stdout.split()[1:])}; {' '.join(driver.split())}; {took:.2f} s with Python's start\n")
