"""Measure gpuward on large clusters in the sandbox: the first plan, a pass after one change, memory, and a whole rollout.

    uv run python -m bench.scale [--nodes 1000 --nodes 5000] [--pods 30] [--rollout 1000]

A fleet is made by copying one node with its installed stack; the sandbox serves it over HTTP from a process of its own. The
operator, in another process, lists it and decides, but writes nothing: every node waits for a new driver, one at a time. The
rollout is played in one process and virtual time, with everything that the sandbox simulates. What is decided is measured in CPU
seconds, as other work on the machine does not count in these.
"""

from __future__ import annotations

import asyncio
import copy
import json
import multiprocessing
import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click
import msgspec
from tests.journeys.stage import NEW, Stage

from gpuward import names
from gpuward.cli.connect import WallClock, connected
from gpuward.controllers.operator import Operator, Settings
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.plan import Plan
from gpuward.model.record import Record, encode_record
from gpuward.model.states import State
from gpuward.sandbox.fleet import workloads
from gpuward.sandbox.samples import IMAGES
from kubesandbox.builders import namespace
from kubesandbox.sim.objects import is_ready
from kubesandbox.timeloop import run_at_speed, run_virtual

Object = dict[str, Any]
T = TypeVar("T")
CHANGES = 20
INSTALL_SPEED = 200.0
WORK = "work"


class Scale(msgspec.Struct, frozen=True):
    """Hold what one fleet came to; CPU seconds unless said, and megabytes of the operator's process at its largest."""

    nodes: int
    pods: int
    listed: float
    """Seconds until everything was listed, which is mostly the server's work."""
    listed_cpu: float
    first_plan: float
    pass_after_change: float
    """The median over some changes of one node each."""
    peak_mb: float
    requests: int


class RolloutFigures(msgspec.Struct, frozen=True):
    """Hold how a whole rollout went."""

    nodes: int
    virtual_seconds: float
    cpu_seconds: float
    requests_per_node: dict[str, float]


# The cluster.


def serve(nodes: int, pods: int, kubeconfig: Path, ready: Connection) -> None:
    """Serve a fleet of copies of one installed node, until the other end closes."""
    run_at_speed(lambda: _serve(nodes, pods, kubeconfig, ready), INSTALL_SPEED)


async def _serve(nodes: int, pods: int, kubeconfig: Path, ready: Connection) -> None:
    stage = await installed(1)
    await stage.stop()
    copy_node(stage, nodes, pods)
    _ask_for_new_driver(stage)
    kubeconfig.write_text(await stage.sandbox.serve(), encoding="utf-8")
    ready.send("ready")
    await asyncio.to_thread(ready.recv)


async def installed(nodes: int, **upgrade: int | str) -> Stage:
    """Return a fleet with the whole stack, and workloads that run."""
    stage = Stage(nodes, upgrade=upgrade)
    await stage.start()
    await _until(lambda: stage.policy_status().get("state") == "ready" and stage.all_are(State.DONE))
    pods = max(4, nodes // 2)
    for obj in workloads(inference=pods, training=2, max_unavailable=max(1, pods // 4)):
        stage.sandbox.apply(obj)
    await _until(lambda: all(map(is_ready, found := stage.workload_pods())) and found)
    return stage


async def _until(holds: Callable[[], object]) -> None:
    """Look once a second: after each change, as tests do, is too much to do with a large fleet."""
    while not holds():
        await asyncio.sleep(1.0)


def copy_node(stage: Stage, nodes: int, pods: int) -> None:
    store = stage.sandbox.store
    node = store.update("nodes", _waiting(store.get("nodes", None, "gpu-1")))
    operands = [copy.deepcopy(pod) for pod in store.list("pods") if pod["spec"].get("nodeName") == "gpu-1"]
    worker = next(pod for pod in operands if pod["metadata"]["namespace"] != names.DEFAULT_NAMESPACE)
    operands = [pod for pod in operands if pod["metadata"]["namespace"] == names.DEFAULT_NAMESPACE]
    stage.sandbox.apply(namespace(WORK))
    for number in range(2, nodes + 1):
        name = f"gpu-{number}"
        store.create("nodes", _renamed(node, name, name))
        for pod in operands:
            store.create("pods", _renamed(pod, f"{pod['metadata']['name']}-{number}", name))
    for number in range(1, nodes + 1):
        for place in range(pods - len(operands)):
            store.create("pods", _worker(worker, f"work-{number}-{place}", f"gpu-{number}", asks=place < 2))


def _waiting(node: Object) -> Object:
    """Return a node as it is while it waits for its upgrade."""
    new = copy.deepcopy(node)
    record = Record(State.UPGRADE_REQUIRED, since=time.time())
    new["metadata"]["labels"][names.UPGRADE_STATE] = str(State.UPGRADE_REQUIRED)
    new["metadata"].setdefault("annotations", {})[names.UPGRADE_RECORD] = encode_record(record)
    return new


def _renamed(obj: Object, name: str, node: str) -> Object:
    new: Object = copy.deepcopy(obj)
    kept = {key: value for key, value in new["metadata"].items() if key not in ("uid", "resourceVersion")}
    new["metadata"] = kept | {"name": name}
    if "nodeName" in new["spec"]:
        new["spec"]["nodeName"] = node
    else:
        new["metadata"]["labels"]["kubernetes.io/hostname"] = node
    return new


def _worker(like: Object, name: str, node: str, *, asks: bool) -> Object:
    new = _renamed(like, name, node)
    new["metadata"]["namespace"] = WORK
    if not asks:
        for container in new["spec"]["containers"]:
            container["resources"] = {}
    return new


def _ask_for_new_driver(stage: Stage) -> None:
    """Let the driver's DaemonSet have another template, and its controller have seen it."""
    store = stage.sandbox.store
    ds = copy.deepcopy(store.get("daemonsets.apps", names.DEFAULT_NAMESPACE, names.DRIVER_APP))
    revisions = store.list("controllerrevisions.apps", names.DEFAULT_NAMESPACE)
    owned = (one for one in revisions if one["metadata"]["ownerReferences"][0]["uid"] == ds["metadata"]["uid"])
    newest = copy.deepcopy(next(owned))
    for template in (ds["spec"]["template"], newest["data"]["spec"]["template"]):
        for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
            for variable in container.get("env", ()):
                if variable["name"] == names.DRIVER_CONFIG_DIGEST:
                    variable["value"] = "another"
    newest["metadata"] |= {"name": f"{names.DRIVER_APP}-another"}
    newest["metadata"]["labels"][names.REVISION_HASH] = "another"
    newest["revision"] = int(newest["revision"]) + 1
    del newest["metadata"]["uid"]
    store.create("controllerrevisions.apps", newest)
    stored = store.update("daemonsets.apps", ds)
    seen = copy.deepcopy(stored)
    seen["status"]["observedGeneration"] = stored["metadata"]["generation"]
    store.update("daemonsets.apps", seen, subresource="status")


# The operator.


def measure(nodes: int, pods: int, kubeconfig: Path, result: Connection) -> None:
    """List the fleet, decide, and decide again after changes of one node each; send a Scale."""
    result.send_bytes(msgspec.json.encode(asyncio.run(_measure(nodes, pods, kubeconfig))))


async def _measure(nodes: int, pods: int, kubeconfig: Path) -> Scale:
    async with connected(str(kubeconfig), None) as (client, _):
        operator = Operator(client, Settings(names.DEFAULT_NAMESPACE, IMAGES, seed=0), WallClock())
        begun, used = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            operator.cluster.start(group)
            await operator.cluster.synced()
            listed, listed_cpu = time.perf_counter() - begun, time.process_time() - used
            used = time.thread_time()
            plan = _decided(operator)
            first = time.thread_time() - used
            assert len(plan.nodes) == nodes, f"the plan is about {len(plan.nodes)} of {nodes} nodes"
            passes = [await _pass(client, operator, f"gpu-{number * nodes // CHANGES + 1}") for number in range(CHANGES)]
            operator.cluster.stop()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        requests = sum(client.stats.requests.values()) - CHANGES
    return Scale(nodes, pods, listed, listed_cpu, first, statistics.median(passes), peak, requests)


def _decided(operator: Operator) -> Plan:
    snapshot = operator.cluster.observe()
    return operator.upgrades.controller.decide(snapshot, operator.policies.read(snapshot), time.time())


async def _pass(client: Client, operator: Operator, node: str) -> float:
    """Change one node, wait until that is seen, and return the CPU seconds that the pass takes."""
    before = operator.cluster.observe().nodes[node]
    await client.patch_merge(resources.NODES, node, {"metadata": {"annotations": {"bench": "changed"}}})
    while operator.cluster.nodes.get(node) is before:
        await asyncio.sleep(0.001)
    begun = time.thread_time()
    _decided(operator)
    return time.thread_time() - begun


# A whole rollout.


def play(nodes: int) -> RolloutFigures:
    """Play a rollout without limits in virtual time."""
    async def main() -> tuple[float, dict[str, float]]:
        stage = await installed(nodes, maxParallelUpgrades=0, maxUnavailable="100%")
        before, begun = Counter(stage.client.stats.requests), stage.clock.now()
        await stage.upgrade_to(NEW)
        await _until(lambda: stage.finished(NEW))
        seconds = stage.clock.now() - begun
        made = Counter(stage.client.stats.requests) - before
        await stage.stop()
        return seconds, {f"{key.verb} {key.resource} {key.status}": count / nodes
                         for key, count in made.most_common() if count >= nodes / 100}

    begun = time.process_time()
    seconds, requests = run_virtual(main)
    return RolloutFigures(nodes, seconds, time.process_time() - begun, requests)


def measured_apart(nodes: int, pods: int, measure: Callable[[int, int, Path, Connection], None], result: type[T]) -> T:
    """Serve a fleet from one process and measure in another, which sends its result as JSON."""
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory(prefix="gpuward-bench-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        here, there = spawn.Pipe()
        server = spawn.Process(target=serve, args=(nodes, pods, kubeconfig, there), daemon=True)
        server.start()
        here.recv()
        mine, theirs = spawn.Pipe()
        measuring = spawn.Process(target=measure, args=(nodes, pods, kubeconfig, theirs), daemon=True)
        measuring.start()
        there.close()
        theirs.close()
        found = msgspec.json.decode(mine.recv_bytes(), type=result)
        server.terminate()
        return found


@click.command()
@click.option("--nodes", multiple=True, type=int, default=(1000, 5000), show_default=True, help="Sizes of fleets.")
@click.option("--pods", default=30, show_default=True, help="Pods on each node.")
@click.option("--rollout", default=1000, show_default=True, help="Nodes of the rollout that is played; 0 for none.")
@click.option("--output", type=click.Path(path_type=Path), help="Where to write the results as JSON.")
def main(nodes: tuple[int, ...], pods: int, rollout: int, output: Path | None) -> None:
    """Measure gpuward on large clusters."""
    found: dict[str, Any] = {"fleets": []}
    click.echo(f"{'nodes':>6} {'pods':>7} {'listed s':>9} {'CPU s':>6} {'first plan CPU ms':>18} "
               f"{'pass CPU ms':>12} {'peak MB':>8} {'requests':>9}")
    for count in nodes:
        one = measured_apart(count, pods, measure, Scale)
        found["fleets"].append(msgspec.to_builtins(one))
        click.echo(f"{one.nodes:>6} {one.nodes * one.pods:>7} {one.listed:>9.1f} {one.listed_cpu:>6.1f} "
                   f"{one.first_plan * 1000:>18.0f} {one.pass_after_change * 1000:>12.1f} {one.peak_mb:>8.0f} {one.requests:>9}")
    if rollout:
        played = play(rollout)
        found["rollout"] = msgspec.to_builtins(played)
        click.echo(f"rollout of {played.nodes} nodes without limits: {played.virtual_seconds:.0f} s of virtual time in "
                   f"{played.cpu_seconds:.0f} CPU seconds; requests per node:")
        for key, each in played.requests_per_node.items():
            click.echo(f"  {each:6.2f}  {key}")
    if output:
        output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
