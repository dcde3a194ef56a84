"""Starting a control plane and ending it, with stand-ins for its programs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.controlplane import processes
from tools.controlplane.controlplane import up
from tools.controlplane.processes import ProcessFailed
from tools.controlplane.programs import PACKAGES, Delays, Ports, Programs

PATIENCE = 20.0
TAKES_TIME = "exec sleep 60"
PORT_IS_TAKEN = "echo 'listen tcp 127.0.0.1:1: bind: address already in use'; exit 1"


def programs(folder: Path, **scripts: str) -> Path:
    """Return a folder with programs that never get ready; those named run another script."""
    folder.mkdir()
    for name in PACKAGES:
        (folder / name).write_text(f"#!/bin/sh\n{scripts.get(name, TAKES_TIME)}\n")
        (folder / name).chmod(0o700)
    return folder


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_it_ends_with_the_process_that_wanted_it(tmp_path: Path) -> None:
    state = tmp_path / "run"
    options = ("--bin", str(programs(tmp_path / "bin")))
    text = ("from pathlib import Path; from tools.controlplane.lent import running\n"
            f"with running(Path({str(state)!r}), *{options}): pass")
    with subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.DEVNULL) as holder:
        until(lambda: processes.running(state, "kube-apiserver"))
        started = [processes.running(state, name) for name in processes.names(state)]
        holder.send_signal(signal.SIGKILL)
    assert len(started) == 2
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))


def test_a_port_that_somebody_takes_in_time_is_replaced_by_another(tmp_path: Path) -> None:
    tried: list[Ports] = []

    def ports() -> Ports:
        tried.append(Ports(*(len(tried) * 3 + number for number in (1, 2, 3))))
        return tried[-1]

    once = f'case "$*" in *127.0.0.1:2*) {PORT_IS_TAKEN};; esac; echo no more; exit 1'
    with pytest.raises(ProcessFailed, match="no more"):
        up(Programs(programs(tmp_path / "bin", etcd=once)), tmp_path / "run", 0, Delays(), ports)
    assert len(tried) == 2


def test_ports_are_not_tried_forever(tmp_path: Path) -> None:
    tried = iter([Ports(1, 2, 3)] * 3)
    with pytest.raises(ProcessFailed, match="address already in use"):
        up(Programs(programs(tmp_path / "bin", etcd=PORT_IS_TAKEN)), tmp_path / "run", 0, Delays(), lambda: next(tried))
    assert next(tried, None) is None
