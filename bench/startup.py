"""Measure what the verbs of `gpuward` take that people call again and again.

    uv run python -m bench.startup [--nodes 12] [--runs 7] [--output FILE]

A fleet is served over HTTP by another process. Each verb is a process of its own, with byte code cached, as after an installation
with pip or in the image. Beside it, in turn, runs the floor: Python, as it imports the libraries with which a verb reads a
kubeconfig and asks an API server, and does nothing. Of each the least of all runs counts: other work on the machine only adds.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import msgspec

from bench.scale import serve

FLOOR: Final = "import aiohttp, click, msgspec, yaml"
COMMAND: Final = "from gpuward.cli.main import main; main()"
VERBS: Final = (("status",), ("explain", "{node}"), ("drivers",), ("plan",), ("check",), ("history",), ("pause", "--dry-run"),
                ("retry", "{node}", "--dry-run"))
NODE: Final = "gpu-1"


class Taken(msgspec.Struct, frozen=True):
    """Hold what a process took, in seconds."""

    cpu: float
    wall: float


class Measured(msgspec.Struct, frozen=True):
    """Hold the least that a verb took, in seconds, and how that stands to the floor of the same run."""

    verb: str
    cpu: float
    wall: float
    cpu_ratio: float
    wall_ratio: float


def taken(code: str, arguments: Sequence[str], env: Mapping[str, str]) -> Taken:
    """Run Python once, and return what it took."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0 or "check" in arguments, f"{arguments} ended with {process.returncode}"
    return Taken(used.ru_utime + used.ru_stime, time.perf_counter() - begun)


def least(runs: Sequence[Taken]) -> Taken:
    """Return the least of each."""
    return Taken(min(one.cpu for one in runs), min(one.wall for one in runs))


@contextmanager
def fleet(nodes: int) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Serve a fleet; yield its kubeconfig, and an environment in which byte code is cached."""
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory(prefix="gpuward-bench-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        here, there = spawn.Pipe()
        server = spawn.Process(target=serve, args=(nodes, 10, kubeconfig, there), daemon=True)
        server.start()
        here.recv()
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        yield kubeconfig, env | {"PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        server.terminate()


def measure(nodes: int, runs: int) -> Iterator[Measured]:
    """Yield what each verb took."""
    with fleet(nodes) as (kubeconfig, env):
        for verb in VERBS:
            arguments = [part.format(node=NODE) for part in verb] + ["--kubeconfig", str(kubeconfig)]
            taken(FLOOR, (), env)
            taken(COMMAND, arguments, env)  # byte code is written
            both = [(taken(FLOOR, (), env), taken(COMMAND, arguments, env)) for _ in range(runs)]
            floor, own = least([one for one, _ in both]), least([one for _, one in both])
            yield Measured(" ".join(verb).format(node=NODE), own.cpu, own.wall, own.cpu / floor.cpu, own.wall / floor.wall)


@click.command()
@click.option("--nodes", default=12, show_default=True, type=click.IntRange(1), help="Nodes of the fleet, with 10 pods each.")
@click.option("--runs", default=7, show_default=True, type=click.IntRange(1), help="Runs of each verb, and of the floor.")
@click.option("--output", type=click.Path(path_type=Path), help="Where to write the results as JSON.")
def main(nodes: int, runs: int, output: Path | None) -> None:
    """Measure how long verbs take."""
    found = []
    click.echo(f"{'verb':<24} {'CPU s':>6} {'of floor':>9} {'seconds':>8} {'of floor':>9}")
    for one in measure(nodes, runs):
        found.append(msgspec.to_builtins(one))
        click.echo(f"{one.verb:<24} {one.cpu:>6.2f} {one.cpu_ratio:>9.2f} {one.wall:>8.2f} {one.wall_ratio:>9.2f}")
    if output:
        output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
