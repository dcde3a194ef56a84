from __future__ import annotations

from gpuward.sandbox.fleet import workloads
from tests.sandbox.build import Cluster, all_ready, labelled_gpu_node, play, stack


def writes_for(nodes: int) -> int:
    """Return how many writes it takes to bring up a stack and workloads on so many nodes."""
    writes = []

    async def story() -> None:
        cluster = Cluster(*(labelled_gpu_node(f"gpu-{number}") for number in range(nodes)))
        cluster.add(*stack(), *workloads(inference=nodes, training=2, web=nodes)[1:])
        await cluster.until(lambda: len(cluster.pods()) == 8 * nodes + 2 and all_ready(cluster.pods()), within=120)
        writes.append(cluster.writes)

    play(story)
    return writes[0]


def test_the_number_of_writes_grows_with_the_fleet_and_not_faster() -> None:
    few, many = writes_for(5), writes_for(40)
    assert many <= 8 * few
    # Eight pods with their init containers, and what a node is told by its plugin, its labels and its kubelet.
    assert many / 40 < 60
