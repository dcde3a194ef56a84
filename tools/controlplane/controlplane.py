"""Build, start, inspect and stop a real Kubernetes control plane on this machine: `./dev controlplane`.

Programs come from the Go module beside this file. Nothing listens beyond the loopback interface, nothing needs root.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tools.controlplane import processes
from tools.controlplane.processes import ProcessFailed
from tools.controlplane.programs import (
    NEWEST,
    OF_KUBERNETES,
    PACKAGES,
    RELEASES,
    Delays,
    Place,
    Ports,
    Programs,
    command_lines,
    free_ports,
    write_files,
)
from tools.controlplane.server import Server, create_nodes, nodes_ready

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "controlplane"
BIN = "GPUWARD_CONTROLPLANE_BIN"
RELEASE = "GPUWARD_KUBERNETES"
_VERSION = "k8s.io/component-base/version"
_NEWEST_FLAG = f"{_VERSION}.gitVersion={RELEASES[NEWEST]}"
PATIENCE = 120.0
"""Seconds within which every step of the start must be done; on two busy cores the API server alone takes ten."""
POLL = 0.1
ATTEMPTS = 3
TAKEN = "address already in use"


def say(text: str) -> None:
    """Tell the person who waits; standard output belongs to what a shell may evaluate."""
    click.echo(text, err=True)


def build(bin_dir: Path, packages: Mapping[str, str] = PACKAGES, module: Path = HERE, version: str = _NEWEST_FLAG,
          tags: str = "", **environment: str) -> None:
    """Build the programs of a Go module that are missing or were built from other versions."""
    stamp = hashlib.sha256((module / "go.mod").read_bytes() + (module / "go.sum").read_bytes()).hexdigest()
    bin_dir.mkdir(parents=True, exist_ok=True)
    for name, package in packages.items():
        mark = bin_dir / f"{name}.built-from"
        if (bin_dir / name).exists() and mark.exists() and mark.read_text() == stamp:
            continue
        if not (go := shutil.which("go")):
            raise ProcessFailed("Go is not installed, and the control plane is built with it: https://go.dev/doc/install")
        say(f"building {name} (some minutes, once)")
        began = time.monotonic()
        command = [go, "build", "-o", str((bin_dir / name).absolute()), "-tags", tags, "-ldflags", f"-X {version}",
                   package]
        if subprocess.run(command, cwd=module, env={**os.environ, **environment}, preexec_fn=_yield_to_others, stdout=sys.stderr,
                          check=False).returncode:
            raise ProcessFailed(f"{name} cannot be built: see above")
        mark.write_text(stamp)
        say(f"built {name} in {time.monotonic() - began:.0f} s")


def build_release(release: str = NEWEST) -> Programs:
    """Build what a release of Kubernetes needs, where that was not done yet."""
    folder = CACHE / "bin"
    if release == NEWEST:
        build(folder)
        return Programs(folder)
    build(folder, {name: package for name, package in PACKAGES.items() if name not in OF_KUBERNETES})
    own = CACHE / release / "bin"
    major, minor = release.split(".")
    version = f"{_VERSION}.gitVersion={RELEASES[release]} -X {_VERSION}.gitMajor={major} -X {_VERSION}.gitMinor={minor}"
    # Up to 1.30 the providers of clouds were built in; nothing here needs them.
    build(own, {name: PACKAGES[name] for name in OF_KUBERNETES}, HERE / f"v{release}", version, "providerless")
    for name in PACKAGES.keys() - set(OF_KUBERNETES):
        if not (own / name).exists():
            (own / name).unlink(missing_ok=True)
            (own / name).symlink_to(os.path.relpath(folder / name, own))
    return Programs(own, release)


def up(programs: Programs, run: Path, nodes: int, delays: Delays, ports: Callable[[], Ports] = free_ports,
       real: tuple[str, ...] = ()) -> Place:
    """Start everything and wait until every simulated node can take pods; on any failure nothing stays behind.

    With names of real nodes there are no simulated ones, and the real ones may join later.
    Between the choice of a port and its use somebody else may take it: then others are chosen.
    """
    if alive := [name for name in processes.names(run) if processes.running(run, name)]:
        raise ProcessFailed(f"it runs already ({', '.join(alive)}): stop it first with ./dev controlplane down")
    for attempt in range(ATTEMPTS):
        place = Place(programs.folder.resolve(), run, ports(), real, programs.release)
        shutil.rmtree(run, ignore_errors=True)
        try:
            _start(place, nodes, delays)
            return place
        except BaseException as error:
            again = isinstance(error, ProcessFailed) and TAKEN in str(error) and attempt + 1 < ATTEMPTS
            down(run)
            if not again:
                raise
    raise AssertionError("the last attempt returns or raises")


def _start(place: Place, nodes: int, delays: Delays) -> None:
    write_files(place, HERE / "stages.yaml", delays)
    (place.run / "ports.json").write_text(json.dumps(asdict(place.ports)))
    (place.run / "real.json").write_text(json.dumps(place.real))
    lines = command_lines(place, nodes)
    server = Server(place.kubeconfig)
    for name in ("etcd", "kube-apiserver"):
        processes.start(place.run, name, lines.pop(name))
    _wait(place.run, "the API server", server.is_ready)
    for name, line in lines.items():
        processes.start(place.run, name, line)
    create_nodes(server, nodes)
    _wait(place.run, f"{nodes} nodes", lambda: nodes_ready(server) == nodes)
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    _wait(place.run, "the controllers", lambda: server.get(account) is not None)


def down(run: Path) -> None:
    """End every process; what was logged stays until the next start."""
    processes.stop_all(run)


def found(run: Path, bin_dir: Path = CACHE / "bin") -> Place | None:
    """Return the place that was started last with its state in a folder; None if there was none."""
    try:
        ports, real = (json.loads((run / name).read_text()) for name in ("ports.json", "real.json"))
    except FileNotFoundError:
        return None
    return Place(bin_dir, run, Ports(**ports), tuple(real))


def _wait(run: Path, what: str, done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        for name in processes.names(run):
            if processes.running(run, name) is None:
                raise ProcessFailed(f"{name} has ended; its last words:\n{processes.tail(run, name)}")
        if time.monotonic() > until:
            raise ProcessFailed(f"{what} did not get ready within {PATIENCE:.0f} s; the logs are in {run}")
        time.sleep(POLL)


def _yield_to_others() -> None:
    os.nice(10)


def _interrupted(number: int, _: object) -> None:
    # One is enough: a second one must not cut the tidying up short.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def heed_signals() -> None:
    """Let a signal to end interrupt what is under way, once."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupted)


def _end_with_input() -> None:
    """Interrupt this process when its standard input ends, as it does when whoever holds the other end has gone."""
    def read() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=read, daemon=True).start()


state_option = click.option("--state", type=click.Path(path_type=Path), default=CACHE / "run", help="Where its state is kept.")


bin_option = click.option("--bin", "bin_dir", type=click.Path(path_type=Path, exists=True, file_okay=False), envvar=BIN,
                          help=f"Run the programs in this folder; also ${BIN}.")
release_option = click.option("--kubernetes", "release", type=click.Choice(list(RELEASES)), default=NEWEST, show_default=True,
                              envvar=RELEASE, help=f"The release of Kubernetes that runs, also with --bin; also ${RELEASE}.")


@click.group()
def commands() -> None:
    """Run a real Kubernetes control plane on this machine: etcd, API server, controllers, scheduler, and nodes by kwok."""


@commands.command("build")
@release_option
def build_command(release: str) -> None:
    """Build the programs with Go, where that was not done yet."""
    build_release(release)


def up_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of what is started."""
    for option in (
        state_option, bin_option, release_option,
        click.option("--validator-seconds", type=click.FloatRange(0), default=0.0, help="How long a validator pod takes."),
        click.option("--driver-seconds", type=click.FloatRange(0), default=0.0, help="How long a driver pod takes to get ready."),
        click.option("--nodes", type=click.IntRange(0), default=3, show_default=True, help="Nodes with 8 GPUs each."),
    ):
        command = option(command)
    return command


@commands.command("up")
@up_options
def up_command(nodes: int, driver_seconds: float, validator_seconds: float, bin_dir: Path | None, release: str,
               state: Path) -> None:
    """Start it; prints what a shell evaluates to reach it. State of an earlier run is thrown away."""
    heed_signals()
    _up_and_tell(_programs(bin_dir, release), state.resolve(), nodes, Delays(driver_seconds, validator_seconds))


@commands.command("run")
@up_options
def run_command(nodes: int, driver_seconds: float, validator_seconds: float, bin_dir: Path | None, release: str,
                state: Path) -> None:
    """Start it as `up` does, and stop it when standard input ends: it cannot outlive who holds the other end."""
    heed_signals()
    _end_with_input()
    try:
        _up_and_tell(_programs(bin_dir, release), state.resolve(), nodes, Delays(driver_seconds, validator_seconds))
        signal.pause()
    except KeyboardInterrupt:
        down(state.resolve())


def _programs(bin_dir: Path | None, release: str) -> Programs:
    return build_release(release) if bin_dir is None else Programs(bin_dir, release)


def _up_and_tell(programs: Programs, run: Path, nodes: int, delays: Delays) -> None:
    began = time.monotonic()
    place = up(programs, run, nodes, delays)
    say(f"{nodes} nodes are ready at {place.server} after {time.monotonic() - began:.1f} s")
    click.echo(f"export KUBECONFIG={place.kubeconfig}")


@commands.command("down")
@state_option
def down_command(state: Path) -> None:
    """Stop everything that `up` started."""
    down(state.resolve())


@commands.command("status")
@state_option
def status_command(state: Path) -> None:
    """Say what runs. Exit code 0: all of it; 1: a part; 3: nothing."""
    run = state.resolve()
    place = found(run)
    pids = {name: processes.running(run, name) for name in (place.programs if place else PACKAGES)}
    for name, pid in pids.items():
        click.echo(f"{name:<26}{f'runs as {pid}' if pid else 'does not run'}")
    count = sum(pid is not None for pid in pids.values())
    if count and place:
        server = Server(place.kubeconfig)
        ready = f"ready, {nodes_ready(server)} nodes are too" if server.is_ready() else "not ready"
        click.echo(f"{place.server} is {ready}\nexport KUBECONFIG={place.kubeconfig}")
    sys.exit(0 if count == len(pids) else 1 if count else 3)


def main() -> None:
    """Run the command line; every expected failure is told in words and exit code 1."""
    try:
        commands()
    except ProcessFailed as failure:
        say(f"controlplane: {failure}")
        sys.exit(1)


if __name__ == "__main__":
    main()
