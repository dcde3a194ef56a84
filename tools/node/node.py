"""Start, inspect and stop real Kubernetes nodes on this machine: `./dev node`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import click
import yaml

from tools.controlplane import controlplane, processes
from tools.controlplane.controlplane import heed_signals, say
from tools.controlplane.processes import ProcessFailed
from tools.controlplane.server import Server, nodes_ready
from tools.node import cluster as clusters
from tools.node import files, network, packages, registry, standins
from tools.node.cluster import CACHE, ROUTER, NodeCluster

CONTAINERD = "GPUWARD_CONTAINERD"
POLICY = str(clusters.HERE.parents[1] / "examples" / "clusterpolicy.yaml")
state_option = click.option("--state", type=click.Path(path_type=Path), default=CACHE / "run", help="Where its state is kept.")
bin_option = click.option("--bin", "bin_dir", type=click.Path(path_type=Path, exists=True, file_okay=False),
                          envvar=controlplane.BIN, help=f"Run the programs in this folder; also ${controlplane.BIN}.")


@click.group()
def commands() -> None:
    """Run real Kubernetes nodes on this machine: kubelet, containerd and runc, joined to a real control plane."""


@commands.command("build")
def build_command() -> None:
    """Build the programs with Go, where that was not done yet."""
    clusters.build()


@commands.command("up")
@state_option
@bin_option
@click.option("--nodes", type=click.IntRange(1, network.MOST_NODES), default=1, show_default=True, help="How many nodes.")
@click.option("--registry", "with_registry", is_flag=True, help="Start a registry, too, from which nodes pull all images.")
@click.option("--containerd", type=click.Choice(["debian", "2"]), default="debian", show_default=True,
              envvar=CONTAINERD, help=f"Run Debian's containerd, or version 2, which is built with Go; also ${CONTAINERD}.")
def up_command(containerd: str, with_registry: bool, nodes: int, bin_dir: Path | None, state: Path) -> None:
    """Start the nodes, and the control plane if it does not run; prints KUBECONFIG=FILE when all are ready."""
    heed_signals()
    if why := packages.missing(*([registry.PROGRAM] if with_registry else [])):
        raise ProcessFailed(why)
    bin_dir = clusters.build(bin_dir)
    programs = clusters.build_containerd() if containerd == "2" else {}
    began = time.monotonic()
    place = clusters.up(NodeCluster(state.resolve()), bin_dir, nodes, with_registry, programs)
    say(f"{nodes} real node{'s are' if nodes > 1 else ' is'} ready at {place.server} after {time.monotonic() - began:.1f} s")
    click.echo(f"KUBECONFIG={place.kubeconfig}")


@commands.command("down")
@state_option
def down_command(state: Path) -> None:
    """Stop the nodes and their control plane, and remove everything that they left."""
    clusters.down(NodeCluster(state.resolve()))


@commands.command("load")
@state_option
@click.argument("archives", type=click.File("rb"), nargs=-1, required=True)
def load_command(archives: tuple[IO[bytes], ...], state: Path) -> None:
    """Give images, in tar files of OCI or docker, to all nodes."""
    for archive in archives:
        for name, pid in _nodes(state).items():
            archive.seek(0)
            line = [*clusters.within(pid), *files.CTR, "--namespace", files.KUBERNETES, "images", "import", "-"]
            done = subprocess.run(line, stdin=archive, stdout=sys.stderr, check=False)
            if done.returncode:
                raise ProcessFailed(f"{archive.name} cannot be loaded into {name}: see above")


@commands.command("push")
@state_option
@click.argument("archives", type=click.File("rb"), nargs=-1, required=True)
def push_command(archives: tuple[IO[bytes], ...], state: Path) -> None:
    """Give images, in tar files of OCI or docker, to the registry of `up --registry`, from which nodes pull them."""
    for archive in archives:
        _push(archive, state)


def _push(archive: IO[bytes], state: Path) -> None:
    if clusters.REGISTRY not in NodeCluster(state.resolve()).running():
        raise ProcessFailed("no registry runs: start one with ./dev node up --registry")
    for name in registry.push(archive, clusters.within(next(iter(_nodes(state).values())))):
        say(f"{name} can be pulled")


@commands.command("operands")
@state_option
@click.option("--driver", "drivers", multiple=True, required=True, help="A version of the driver; can be given several times.")
@click.option("--policy", type=click.File("rb"), default=POLICY, show_default="the example", help="A file with a ClusterPolicy.")
def operands_command(policy: IO[bytes], drivers: tuple[str, ...], state: Path) -> None:
    """Give the registry programs that stand in for NVIDIA's operands, under the names that a ClusterPolicy gives these."""
    archive = CACHE / "operands.tar"
    standins.build(yaml.safe_load(policy), drivers, CACHE, archive)
    with archive.open("rb") as opened:
        _push(opened, state)


def _nodes(state: Path) -> dict[str, int]:
    if nodes := NodeCluster(state.resolve()).nodes():
        return nodes
    raise ProcessFailed("no node runs: start one with ./dev node up")


@commands.command("status")
@state_option
def status_command(state: Path) -> None:
    """Say what runs. Exit code 0: all that was started; 1: a part; 3: nothing."""
    cluster = NodeCluster(state.resolve())
    place = controlplane.found(cluster.controlplane)
    planned = {name: cluster.controlplane for name in place.programs} if place else {}
    planned |= dict.fromkeys([ROUTER, *processes.names(cluster.state)], cluster.state)
    pids = {name: processes.running(run, name) for name, run in planned.items()}
    for name, pid in pids.items():
        click.echo(f"{name:<26}{f'runs as {pid}' if pid else 'does not run'}")
    count = sum(pid is not None for pid in pids.values())
    if place and pids["kube-apiserver"]:
        server = Server(place.kubeconfig)
        ready = f"ready, {nodes_ready(server)} nodes are too" if server.is_ready() else "not ready"
        click.echo(f"{place.server} is {ready}\nKUBECONFIG={place.kubeconfig}")
    sys.exit(0 if count == len(pids) else 1 if count else 3)


def main() -> None:
    """Run the command line; every expected failure is told in words and exit code 1."""
    # A toolkit restarts containerd by this signal, which all that comes from nohup ignores.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        commands()
    except (ProcessFailed, OSError) as failure:
        say(f"node: {failure}")
        sys.exit(1)


if __name__ == "__main__":
    main()
