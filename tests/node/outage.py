"""How the stack came up on nodes, how long they were out of service, and for what."""

from __future__ import annotations

import math

from tests.node.realnodes import Nodes, eventually
from tests.node.recorded import Record
from tests.node.stack import IN_ORDER, NAMES, VALIDATOR, loads


def await_stack(nodes: Nodes, record: Record, version: str) -> None:
    """Wait until all nodes are validated; each layer was ready before the next."""
    eventually("all nodes are validated", lambda: served(record) == set(NAMES), 600)
    for name in NAMES:
        ready = [min(pod.at for pod in record.of("Pod") if pod.label("app") == app and pod.node == name and pod.ready)
                 for app in IN_ORDER]
        assert ready == sorted(ready), name
        assert loads(nodes, name) == [("loaded", version)]


def parts(record: Record, name: str, version: str, drivers: list[tuple[float, str, str]], since: float = 0.0) -> dict[str, float]:
    """Return how long a node was out of service, in seconds, and for what, by its first cordon since some time."""
    def unschedulable(value: bool) -> list[float]:
        return [node.at for node in record.of("Node") if node.name == name and node.cordoned is value and node.at > since]

    def ready(app: str, after: float) -> float:
        return min(pod.at for pod in record.of("Pod") if pod.node == name and pod.label("app") == app and pod.ready
                   and pod.at > after and pod.name in fresh)

    cordoned = min(unschedulable(True))
    uncordoned = min(at for at in unschedulable(False) if at > cordoned)
    before = {pod.name for pod in record.of("Pod") if pod.at < cordoned}
    fresh = {pod.name for pod in record.of("Pod")} - before
    ended: dict[str, float] = {}
    for pod in record.of("Pod"):
        if pod.at > cordoned and pod.name in before and pod.node == name and pod.uses_gpu and not pod.runs:
            ended.setdefault(pod.name, pod.at)
    evicted = max(ended.values(), default=cordoned)
    unloaded = next(at for at, what, _ in drivers if what == "unloaded" and at > cordoned)
    loaded = next(at for at, what, found in drivers if (what, found) == ("loaded", version) and at > cordoned)
    times = [cordoned, evicted, unloaded, loaded, ready(IN_ORDER[0], loaded), ready(IN_ORDER[-1], loaded), uncordoned]
    what = ("eviction", "driver manager", "driver", "driver's probe", "validation", "uncordon")
    took = {part: end - begin for part, begin, end in zip(what, times, times[1:], strict=False)}
    return {"in all": uncordoned - cordoned, **took}


def served(record: Record, until: float = math.inf) -> set[str]:
    """Return the nodes that have had a validator that was ready."""
    return {pod.node for pod in record.of("Pod") if pod.label("app") == VALIDATOR and pod.ready and pod.at <= until}


def told(took: dict[str, float]) -> str:
    """Return the parts of an outage in words."""
    return ", ".join(f"{part} {seconds:.1f} s" for part, seconds in took.items())
