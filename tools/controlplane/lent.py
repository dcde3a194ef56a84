"""A control plane for as long as a program needs it: it ends with the program, however that ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.controlplane.processes import ProcessFailed

ROOT = Path(__file__).parents[2]


@contextmanager
def running(state: Path, *options: str) -> Iterator[None]:
    """Keep a control plane running while the block runs, with its state in a folder; the options are those of `up`."""
    command = [sys.executable, "-m", "tools.controlplane.controlplane", "run", "--state", str(state), *options]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise ProcessFailed("the control plane has not started: see above")
            yield
        finally:
            process.stdin.close()
            process.wait()
