"""Measure what the flight recorder costs: CPU, disk and memory per recorded pass of a rollout through a large fleet.

    uv run python -m bench.recorder [NODES ...]

The fleet has 60 labels on each node and 12 pods that a decision may concern; in each pass 25 nodes and their pods change.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
from tests import build

from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import PodView
from gpuward.recorder.recorder import Recorder
from gpuward.recording.frame import Entry
from gpuward.recording.journal import Journal
from gpuward.upgrade.decide import decide
from gpuward.upgrade.node_decision import DecisionCache

PASSES = 40
CHANGED = 25


def big_fleet(nodes: int) -> Snapshot:
    """Return a fleet in which every node waits for its upgrade."""
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}": "true" for number in range(60)}
    views = [build.node(f"gpu-{number:05}", "upgrade-required", labels={**labels, "kubernetes.io/hostname": f"gpu-{number:05}"},
                        remembers=build.record(State.UPGRADE_REQUIRED)) for number in range(nodes)]
    pods = []
    for view in views:
        pods += [build.driver_pod(view.name), build.validator(view.name)]
        pods += [build.gpu_pod(view.name, f"train-{view.name}-{number}") for number in range(4)]
        pods += [build.pod(view.name, f"operand-{number}-{view.name}", owner="DaemonSet", namespace=build.NAMESPACE)
                 for number in range(6)]
    by_node: dict[str, list[PodView]] = {}
    for pod in pods:
        by_node.setdefault(pod.node, []).append(pod)
    grouped = {name: tuple(some) for name, some in by_node.items()}
    return msgspec.structs.replace(build.cluster(views), pods=grouped)


def passes(snapshot: Snapshot, policy: UpgradePolicy) -> Iterator[Entry]:
    """Return the passes of a rollout, each with some nodes changed."""
    memory, names = DecisionCache(), sorted(snapshot.nodes)
    for number in range(PASSES):
        now = build.NOW + number
        some = [names[(number * CHANGED + step) % len(names)] for step in range(CHANGED)]
        nodes = {name: msgspec.structs.replace(snapshot.nodes[name], unschedulable=not snapshot.nodes[name].unschedulable,
                                               version=str(number)) for name in some}
        pods = {name: tuple(msgspec.structs.replace(pod, deleting=True) for pod in snapshot.pods[name]) for name in some}
        snapshot = msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, **nodes}, pods={**snapshot.pods, **pods})
        yield Entry(snapshot, (policy,), now, "cluster-policy", decide(snapshot, policy, now, memory))


def measure(nodes: int) -> None:
    """Print what one size of fleet costs."""
    seen = list(passes(big_fleet(nodes), build.policy(parallel=100, unavailable="25%")))
    journal = Journal("0")
    begun = time.process_time()
    first = b"".join(journal.begin(seen[0]))
    full = time.process_time() - begun
    begun, size = time.process_time(), 0
    for each in seen[1:]:
        assert journal.wants(each)
        size += sum(map(len, journal.add(each)))
    frame = (time.process_time() - begun) / (PASSES - 1)
    begun = time.process_time()
    for _ in range(PASSES):
        journal.wants(msgspec.structs.replace(seen[-1], plan=msgspec.structs.replace(seen[-1].plan)))
    idle = (time.process_time() - begun) / PASSES
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder), "0", room=PASSES)
        begun = time.perf_counter()
        for each in seen:
            recorder.take(each)
        handed = (time.perf_counter() - begun) / PASSES
        tracemalloc.start()
        recorder.close()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    sys.stdout.write(
        f"{nodes} nodes: begin a file {full * 1000:.0f} ms CPU, {len(first) >> 10} KiB; "
        f"a frame {frame * 1000:.2f} ms CPU, {size / (PASSES - 1) / 1024:.1f} KiB; no frame {idle * 1000:.2f} ms; "
        f"handing over {handed * 1e6:.0f} us; peak {peak >> 20} MiB\n"
    )


if __name__ == "__main__":
    for count in map(int, sys.argv[1:] or ["500", "5000"]):
        measure(count)
