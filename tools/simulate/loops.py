"""No tight loop against any object: what is asked for, by object and by workload that is evicted, is bounded per minute."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from gpuward.kube.projection import read_head

if TYPE_CHECKING:
    from kubesandbox.messages import Request
    from tools.simulate.process import Process
    from tools.simulate.world import World

MINUTE: Final = 60.0
WRITES: Final = {"nodes": 90, "pods": 40, "leases": 240, "events": 100_000}
"""How many writes about one object a process may ask for within a minute, by kind; what is refused counts as well."""
OTHERS: Final = 40
EVICTIONS: Final = 20
"""How many pods of one workload may be evicted from one node within a minute."""


class Loops:
    """Count what is asked for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[tuple[str, str], deque[float]] = {}
        self._stirred: dict[tuple[str, str], int] = {}
        self.most: dict[str, int] = {}
        """The most that was ever asked for within a minute, by kind."""

    def asked(self, process: Process, request: Request) -> None:
        """Take a write before it is served."""
        if request.method == "GET":
            return
        kind, about = _object(request)
        self._count(process, kind, about, WRITES.get(kind, OTHERS))

    def evicted(self, process: Process, owner: str, node: str) -> None:
        """Take an eviction that was granted."""
        self._count(process, "evictions", f"{owner} from {node}", EVICTIONS)

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
