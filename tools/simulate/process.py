"""One process of the operator: what it asks for, what it has been shown, and whose writes are its own."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from gpuward import names
from gpuward.controllers.operator import Operator, Outside, Settings
from gpuward.kube.http.client import Client
from gpuward.kube.lease.election import Candidate
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.ports import Observer
from gpuward.sandbox.samples import IMAGES
from kubesandbox.messages import Answer, Request, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.simulate.world import SimulatedWorld

_RECORD = names.UPGRADE_RECORD.replace("/", "~1").encode()
"""What a patch of a node names that writes down what is to be remembered."""
_NODES = "/api/v1/nodes/"
_READ = (_NODES, "/apis/nvidia.com/v1/clusterpolicies/", "/apis/nvidia.com/v1alpha1/nvidiadrivers/")


UNDER_WAY: Final = 30.0
"""Seconds for which a write may be under way that was decided before, where requests are late or hang, or did shortly before."""
AT_ONCE: Final = 0.1
"""The same where nothing goes wrong."""
_SAID: Final = ("policies", "drivers", "settings")


class Known(dict[str, int]):
    """Hold up to which version a process has been shown each resource, when it decided last."""

    def __missing__(self, key: str) -> int:
        return 0


class Knower(Protocol):
    """Know the cluster up to some versions, and by some answers."""

    @property
    def name(self) -> str:
        """Return whose knowledge it is."""
        ...

    @property
    def known(self) -> Known:
        """Return up to which version each resource was shown."""
        ...

    @property
    def answered(self) -> set[int]:
        """Return the versions that answers told of."""
        ...


class Knew(NamedTuple):
    """Hold what a process had been shown at an earlier look."""

    name: str
    known: Known
    answered: set[int]
    since: float
    """When it was first shown these settings."""


class SkewedClock:
    """Read virtual time as a machine does whose clock is off."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def now(self) -> float:
        """Return what the machine takes for the time."""
        return self._world.now() + self._world.offset

    async def sleep(self, seconds: float) -> None:
        """Wait; how long that is does not depend on the clock's error."""
        await asyncio.sleep(seconds)


class Process:
    """Run one operator, and tell the watch of everything that it does."""

    def __init__(self, world: SimulatedWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.runs = True
        self.leads = False
        """Whether the process believes that it leads. It may be the last one to hear that it does not."""
        self.jumped_at = 0.0
        self.known = Known()
        self._looked_at: list[Knew] = []
        """What it knew lately, by what people said; the newest is last."""
        self.answered: set[int] = set()
        """The versions of nodes and policies in answers about them alone: also a write that changed nothing, and a read to learn
        what became of a write, tell what they are like."""
        self.looks: list[int] = []
        """The versions of the nodes at which this process has looked."""
        self.failed: dict[str, list[int]] = {}
        """By node the versions of the nodes at which it decided on what the server failed to take; conflicts are no failures."""
        self.writes = 0
        self.request: Request | None = None
        """The request that the server is carrying out now."""
        self.transport = world.sandbox.transport()
        self.transport.interfere = self._interfere
        settings = Settings(names.DEFAULT_NAMESPACE, IMAGES, seed=world.scenario.seed)
        candidate = Candidate(name, names.DEFAULT_NAMESPACE)
        self.operator = Operator(Client(self.transport), settings, SkewedClock(world), lambda: self.leads, candidate,
                                 Outside(prometheus=world.prometheus))
        self._listen()
        self.task = asyncio.create_task(self.operator.run(), name=name)

    def lead(self) -> None:
        """Hear of having been elected."""
        self.leads = True
        if self.operator.ledger is not None:
            self.operator.ledger.forget()

    def kill(self) -> None:
        """End the process where it is."""
        self.runs = False
        self.task.cancel()

    def could_note(self, node: str, first: int, second: int) -> bool:
        """Tell whether it looked between two versions, the second one excluded, and could write down what it saw."""
        at = bisect_left(self.looks, first)
        looked = at < len(self.looks) and self.looks[at] < second
        return looked and not any(first <= version < second for version in self.failed.get(node, ()))

    def shown(self) -> Known:
        """Return up to which version the caches show each resource now."""
        cluster = self.operator.cluster
        return Known({"nodes": _number(cluster.nodes.version), "pods": _number(cluster.pods.version),
                      "policies": _number(cluster.policies.version), "daemonsets": _number(cluster.daemonsets.version),
                      "settings": _number(cluster.rollout_policies.version), "drivers": _number(cluster.drivers.version),
                      "store": self.world.sandbox.store.version})

    def _listen(self) -> None:
        """Note what the upgrade controller is shown whenever it looks, and hear how its actions ended."""
        upgrades = self.operator.upgrades
        upgrades.observer = Noting(upgrades.observer, self._looked)
        upgrades.listeners.append(self._heard)

    def lately(self) -> Sequence[Knew]:
        """Return what it may have gone by in what is under way: what it knew at each look of the last while."""
        long = 0.0 if self.world.watch.machines.calm_for() > UNDER_WAY else UNDER_WAY
        return self._since(self.world.now() - max(AT_ONCE, long))

    def _since(self, since: float) -> Sequence[Knew]:
        seen = self._looked_at
        return [each for each, after in zip(seen, [*seen[1:], None], strict=False) if after is None or after.since >= since]

    def _looked(self) -> None:
        self.known = self.shown()
        before = self._looked_at[-1] if self._looked_at else None
        same = before is not None and all(before.known[key] == self.known[key] for key in _SAID)
        since = before.since if before is not None and same else self.world.now()
        kept = self._since(self.world.now() - UNDER_WAY)
        self._looked_at = [*(kept[:-1] if same else kept), Knew(self.name, self.known, self.answered, since)]
        if not self.looks or self.looks[-1] != self.known["nodes"]:
            self.looks.append(self.known["nodes"])

    def _heard(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        if seen.decision is not None:
            self.world.watch.decided(self, seen.decision, seen.outcomes)

    def _interfere(self, request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        def served() -> Answer | Stream:
            self.request = request
            self.world.writer = self
            try:
                answer = proceed()
            finally:
                self.request, self.world.writer = None, None
            self.world.watch.answered(self, request, answer)
            return answer

        if request.query.get("watch") == "true":
            return self._watching(request, served())
        self.world.watch.asked(self, request)
        taken = False
        try:
            answer = self.world.disturbed(request, served)
            taken = isinstance(answer, Answer) and answer.status < 500 and answer.status != 429
        finally:
            if not taken and _RECORD in request.body:
                self.failed.setdefault(request.path.removeprefix(_NODES), []).append(self.known["nodes"])
        self._learn(request, answer)
        self.world.watch.told(self, request, answer)
        return answer

    def _learn(self, request: Request, answer: Answer | Stream) -> None:
        if request.path.startswith(_READ) and isinstance(answer, Answer) and answer.status == 200:
            self.answered.add(int(msgspec.json.decode(answer.body)["metadata"]["resourceVersion"]))

    def _watching(self, request: Request, stream: Answer | Stream) -> Answer | Stream:
        """Let trouble keep a watch from being opened; a stream that nobody reads must not stay open."""
        answer: Answer | Stream | None = None
        try:
            answer = self.world.disturbed(request, lambda: stream)
            return answer
        finally:
            if answer is not stream and isinstance(stream, Stream):
                stream.close()


class Noting:
    """Show the cluster as another observer does, and say so."""

    def __init__(self, observer: Observer, looked: Callable[[], None]) -> None:
        self._observer = observer
        self._looked = looked

    def observe(self) -> Snapshot:
        """Return the facts of this moment."""
        snapshot = self._observer.observe()
        self._looked()
        return snapshot

    async def changed(self, timeout: float | None) -> bool:
        """Wait as the other one does."""
        return await self._observer.changed(timeout)


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
