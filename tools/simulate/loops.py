"""No tight loop against any object: what is asked for, by object and by workload that is evicted, is bounded per minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gpuward.kube.cache.projection import read_head

if TYPE_CHECKING:
    from kubesandbox.messages import Request
    from tools.simulate.process import Process
    from tools.simulate.world import SimulatedWorld

MINUTE: Final = 60.0
WRITES: Final = {"nodes": 90, "pods": 40, "leases": 240, "events": 100_000}
"""How many writes about one object a process may ask for within a minute, by kind; what is refused counts as well."""
OTHERS: Final = 40
EVICTIONS: Final = 20
"""How many pods of one workload may be evicted from one node within a minute."""

DRIVER_PODS: Final = 4
"""So many driver pods of one node deleted by one process within `SECONDS` are a loop."""
SECONDS: Final = 10.0


def are_a_loop(revisions: Sequence[str]) -> bool:
    """Tell whether driver pods that were deleted one soon after the other are too many: each new driver that people ask for
    within these seconds may cost one, and each state that they give the node.
    """
    return len(revisions) - (len(set(revisions)) - 1) >= DRIVER_PODS


class Loops:
    """Count what is asked for."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._asked: dict[tuple[str, str], deque[float]] = {}
        self._deleted: dict[tuple[str, str], list[tuple[float, str]]] = {}
        """When a process deleted which revisions' driver pods on a node."""
        self._starts: dict[str, list[float]] = {}
        """When a node was started."""
        self.most: dict[str, int] = {}
        """The most that was ever asked for within a minute, by kind."""

    def asked(self, process: Process, request: Request) -> None:
        """Take a write before it is served."""
        if request.method == "GET" or "dryRun" in request.query:
            return
        kind, about = _object(request)
        self._count(process, kind, about, WRITES.get(kind, OTHERS))

    def evicted(self, process: Process, owner: str, node: str) -> None:
        """Take an eviction that was granted; a node that starts for yet another driver is emptied anew."""
        starts = [at for at in self._starts.get(node, ()) if self._world.now() - at <= MINUTE]
        self._count(process, "evictions", f"{owner} from {node}", EVICTIONS * max(1, len(starts)))

    def started(self, node: str) -> None:
        """Take it that a node is started."""
        self._starts.setdefault(node, []).append(self._world.now())

    def deleted_driver_pod(self, process: Process, node: str, revision: str) -> None:
        """Take the deletion of a driver pod of a node."""
        now = self._world.now()
        asked = f"{revision} {self._relabelled(node)}"
        recent = [each for each in self._deleted.get((process.name, node), ()) if now - each[0] < SECONDS] + [(now, asked)]
        self._deleted[process.name, node] = recent
        if are_a_loop([each for _, each in recent]):
            self._world.watch.breach("driver pods are not deleted in a loop", f"{len(recent)} within {SECONDS:g} s", node)

    def _relabelled(self, node: str) -> int:
        """Return how often people have given a node another state."""
        return sum(after.writer is None and after.label != before.label
                   for before, after in pairwise(self._world.watch.history.sights(node)))

    def _count(self, process: Process, kind: str, about: str, most: int) -> None:
        now = self._world.now()
        recent = self._asked.setdefault((process.name, f"{kind} {about}"), deque())
        recent.append(now)
        while now - recent[0] > MINUTE:
            recent.popleft()
        self.most[kind] = max(self.most.get(kind, 0), len(recent))
        if len(recent) > most:
            self._world.watch.breach("no object is written in a loop", f"{len(recent)} times in a minute: {kind} {about}")


def _object(request: Request) -> tuple[str, str]:
    """Return the kind and the place of what a request is about; the name of what is to be made is in its body."""
    parts = [part for part in request.path.split("/") if part]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = parts[1:2] if parts[0] == "namespaces" and len(parts) > 2 else []
    kind, *rest = parts[2:] if namespace else parts
    if request.method == "POST" and not rest:
        rest = [read_head(request.body).identity.name]
    return kind, "/".join((*namespace, *rest))
