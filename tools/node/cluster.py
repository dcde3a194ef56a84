"""A control plane and real nodes, by the folder of their state: what `up`, `load` and `down` do."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.controlplane import controlplane, processes
from tools.controlplane.processes import ProcessFailed
from tools.controlplane.programs import Delays, Place, Programs
from tools.controlplane.server import Server, nodes_ready
from tools.node import cgroups, files, image, inside, linux, network, registry, root
from tools.node.network import Address
from tools.node.root import OWN

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "node"
KUBELET = {"kubelet": "k8s.io/kubernetes/cmd/kubelet"}
_CONTAINERD = "github.com/containerd/containerd/v2"
CONTAINERD = {name: f"{_CONTAINERD}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")}
"""Of containerd 2, from a program to its Go package."""
GROUPS = "gpuward-node-"
"""How the names of all control groups of nodes begin."""
ROUTER = "router"
REGISTRY = "registry"
NAMES = tuple(node.name for node in network.addresses(network.MOST_NODES))
PATIENCE = 120.0
POLL = 0.1
_LONGEST_SOCKET = 107


@dataclass(frozen=True)
class NodeCluster:
    """Stand for a control plane and its real nodes."""

    state: Path

    @property
    def controlplane(self) -> Path:
        """Return the folder of the control plane's state."""
        return self.state / "controlplane"

    @property
    def group(self) -> str:
        """Return the control group in which all nodes are; each cluster has one of its own."""
        return GROUPS + hashlib.sha256(str(self.state).encode()).hexdigest()[:8]

    def folder(self, name: str) -> Path:
        """Return the folder of a node's state."""
        return self.state / "nodes" / name

    def running(self) -> dict[str, int]:
        """Return from the names of what runs beside the control plane to process numbers."""
        found = {name: processes.running(self.state, name) for name in processes.names(self.state)}
        return {name: pid for name, pid in found.items() if pid is not None}

    def nodes(self) -> dict[str, int]:
        """Return from the names of the nodes that run to their process numbers."""
        return {name: pid for name, pid in self.running().items() if name in NAMES}


def build(given: Path | None = None) -> Path:
    """Build what nodes and their control plane run, where that was not done yet, and return where it is.

    Programs of Kubernetes that are in a given folder are taken as they are.
    """
    if given is None:
        controlplane.build(controlplane.CACHE / "bin")
        controlplane.build(controlplane.CACHE / "bin", KUBELET)
    elif not (given / "kubelet").is_file():
        raise ProcessFailed(f"there is no kubelet in {given}")
    image.build_program(HERE / "pause.go", CACHE / "pause")
    return given or controlplane.CACHE / "bin"


def build_containerd() -> dict[Path, Path]:
    """Build containerd 2, and return its programs: from their places in a node to where they are."""
    folder, module = CACHE / "containerd-2", HERE / "containerd"
    version = next(line.split()[-1] for line in (module / "go.mod").read_text().splitlines() if _CONTAINERD in line)
    # Without cgo it needs no headers of file systems.
    controlplane.build(folder, CONTAINERD, module, f"{_CONTAINERD}/version.Version={version}", CGO_ENABLED="0")
    return {Path("/usr/bin") / name: folder / name for name in CONTAINERD}


def up(cluster: NodeCluster, bin_dir: Path, count: int, with_registry: bool, programs: Mapping[Path, Path]) -> Place:
    """Start the control plane if it does not run, and nodes, and wait until all are ready; on a failure nothing goes on.

    `programs` are those that nodes have in the place of this machine's.
    """
    if alive := cluster.running():
        raise ProcessFailed(f"it runs already ({', '.join(alive)}): stop it first with ./dev node down")
    _sweep(cluster)
    try:
        place = _control_plane(cluster, bin_dir)
        server = Server(place.kubeconfig)
        for name in NAMES:
            # What nodes said of themselves before they were killed must not count.
            server.delete(f"/api/v1/nodes/{name}")
        _router(cluster, place)
        if with_registry:
            _registry(cluster)
        for node in network.addresses(count):
            _node(cluster, place, node, programs)
        wait(cluster, f"{count} nodes", lambda: nodes_ready(server) == count)
        return place
    except BaseException:
        stop(cluster)
        raise


def _control_plane(cluster: NodeCluster, bin_dir: Path) -> Place:
    place = controlplane.found(cluster.controlplane, bin_dir)
    if place and all(processes.running(place.run, name) for name in place.programs):
        return place
    controlplane.down(cluster.controlplane)
    return controlplane.up(Programs(bin_dir), cluster.controlplane, 0, Delays(), real=NAMES)


def _router(cluster: NodeCluster, place: Place) -> None:
    if len(os.fsencode(place.egress)) > _LONGEST_SOCKET:
        raise ProcessFailed(f"the path of the state is too long for a socket: {place.egress}")
    place.egress.unlink(missing_ok=True)
    _start(cluster, ROUTER, "router", str(place.egress), str(place.ports.api), cluster.group)
    wait(cluster, "the router", place.egress.exists)


def _registry(cluster: NodeCluster) -> None:
    words = [str(cluster.running()[ROUTER]), cluster.group, *registry.command_line(cluster.state / REGISTRY)]
    _start(cluster, REGISTRY, "beside", *words)


def _node(cluster: NodeCluster, place: Place, node: Address, programs: Mapping[Path, Path]) -> None:
    folder = cluster.folder(node.name)
    own = root.root_of(folder) / OWN.relative_to("/")
    files.write(own, node, place.run / f"{node.name}.kubeconfig")
    if REGISTRY in cluster.running():
        registry.write(own)
    image.pack(files.PAUSE, CACHE / "pause", own / "pause.tar")
    binds = [f"{at}={source}" for at, source in {inside.KUBELET: place.bin / "kubelet", **programs}.items()]
    _start(cluster, node.name, "inside", str(node.number), str(folder), str(cluster.running()[ROUTER]), cluster.group, *binds)


def _start(cluster: NodeCluster, name: str, module: str, *words: str) -> None:
    processes.start(cluster.state, name, [sys.executable, "-m", f"tools.node.{module}", *words])


def wait(cluster: NodeCluster, what: str, done: Callable[[], bool]) -> None:
    """Wait until something holds, as long as all that was started runs."""
    until = time.monotonic() + PATIENCE
    while not done():
        for run in (cluster.state, cluster.controlplane):
            for name in processes.names(run):
                if processes.running(run, name) is None:
                    raise ProcessFailed(f"{name} has ended; its last words:\n{processes.tail(run, name)}")
        if time.monotonic() > until:
            raise ProcessFailed(f"{what} did not get ready within {PATIENCE:.0f} s; the logs are in {cluster.state}")
        time.sleep(POLL)


def stop(cluster: NodeCluster) -> None:
    """End all processes, those too that nobody has written down, and remove their control groups; the files stay."""
    _end_nodes(cluster)
    controlplane.down(cluster.controlplane)


def _end_nodes(cluster: NodeCluster) -> None:
    processes.stop_all(cluster.state)
    _privately(lambda: cgroups.remove(cluster.group))


def down(cluster: NodeCluster) -> None:
    """End everything and remove every trace of it; what was left behind by something killed is found, too."""
    stop(cluster)
    if cluster.state.exists():
        shutil.rmtree(cluster.state)


def _sweep(cluster: NodeCluster) -> None:
    """Remove what an earlier run has left behind, but the control plane."""
    _end_nodes(cluster)
    for name in ("nodes", REGISTRY):
        shutil.rmtree(cluster.state / name, ignore_errors=True)
    cluster.state.mkdir(parents=True, exist_ok=True)


def _privately(action: Callable[[], None]) -> None:
    """Do something in a child with a mount namespace of its own, where all control groups can be seen."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            linux.make_private()
            cgroups.mount()
            action()
            code = 0
        except OSError as error:
            sys.stderr.write(f"{error}\n")
        finally:
            sys.stderr.flush()
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise ProcessFailed("the nodes' control groups cannot be removed: see above")


def within(pid: int) -> list[str]:
    """Return how a command line begins that runs another one in a node, in all its namespaces."""
    return ["nsenter", "-t", str(pid), "-m", "-u", "-i", "-n", "-C", f"--pid=/proc/{pid}/ns/pid_for_children"]
