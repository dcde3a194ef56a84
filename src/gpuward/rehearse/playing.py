"""Play a rollout: the operator's own loops on a captured cluster in the sandbox, in virtual time."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import msgspec

from gpuward.controllers.loop import Pace
from gpuward.controllers.operator import Operator, Outside, Settings
from gpuward.kube.http.client import Client
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS
from gpuward.rehearse.acknowledging import acknowledge
from gpuward.rehearse.approving import Approving
from gpuward.rehearse.assumptions import Assumptions, DrawnDelays
from gpuward.rehearse.captured import Manifest, Object
from gpuward.rehearse.loading import Loaded
from gpuward.rehearse.maintaining import let_maintain
from gpuward.rehearse.measuring import assumed_good
from gpuward.rehearse.results import Run
from gpuward.rehearse.templates import PODS, Change
from gpuward.rehearse.watching import Watching
from gpuward.sandbox.cluster import Sandbox
from kubesandbox.sim.kubelet import TERMINATION_SECONDS
from kubesandbox.store import Store
from kubesandbox.timeloop import LoopClock, run_virtual

STEP: Final = 10.0
"""Seconds of virtual time between two looks at whether it is over."""
SETTLES: Final = 120.0
"""Seconds of virtual time that the operator has to see what was changed, and to write what follows from it."""
STILL: Final = 900.0
"""Seconds without any change after which a rollout does not go on, unless something has a time at which it does."""
HORIZON: Final = 30 * 86400.0
"""Seconds of virtual time after which a rehearsal is broken off."""
SEEDS: Final = 1 << 32
"""Beyond the seeds of other sandboxes: one that was captured must not have uids and names that are drawn here once more."""
GAP: Final = 15.0
"""Seconds of virtual time between two passes about operands at least: what is assumed takes minutes, a pass real time."""
NODES_PER_SECOND: Final = 500
"""Of so many nodes the passes of the upgrade, and of labels, are a second of virtual time apart; of twice as many, two."""
_COLLECTIONS: Final = (20_000, 20, 20)
"""Python looks for garbage in cycles less often than it does by itself: nearly all that is made here goes without that."""


class Play(msgspec.Struct, frozen=True):
    """Hold what is played."""

    manifest: Manifest
    loaded: Loaded
    change: Change
    """What somebody does to begin the rollout."""
    assumed: Assumptions = Assumptions()
    horizon: float = HORIZON
    missing: tuple[str, ...] = ()
    """Images that cannot be pulled."""

    def run(self, seed: int, *, also: Change | None = None, watched: Callable[[Watching], None] | None = None,
            passed: Callable[[Watching], None] | None = None) -> Run:
        """Play it to its end; `also` is done at the beginning. `passed` is told what there is to see after each pass of the
        upgrade, and `watched` in the end.
        """
        async def main() -> Run:
            return await _Played(self, seed, also).run(watched, passed)

        with collecting_less():
            return run_virtual(main, start=self.manifest.at)


@contextmanager
def collecting_less() -> Iterator[None]:
    """Spare the objects of a large cluster the looks for garbage in cycles, each of which would look at all of them."""
    before = gc.get_threshold()
    gc.collect()  # what an earlier play has left would be kept until this one ends
    gc.set_threshold(*_COLLECTIONS)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


class _Played:
    def __init__(self, play: Play, seed: int, also: Change | None) -> None:
        self._play, self._seed, self._also = play, seed, also
        self._begun = time.perf_counter()
        self._clock = LoopClock()
        self._sandbox = Sandbox(seed=SEEDS + seed, delays=DrawnDelays(play.assumed, seed), fill=self._fill)
        self._sandbox.has_image = lambda image: image not in play.missing
        settings = Settings(play.manifest.namespace, play.manifest.images, seed=seed)
        self._operator = Operator(Client(self._sandbox.transport()), settings, self._clock, outside=Outside(measure=assumed_good))
        nodes = {node["metadata"]["name"]: self._sandbox.machine(node["metadata"]["name"]).gpus
                 for node in self._sandbox.store.list("nodes")}
        self._watching = Watching(self._clock.now(), nodes, play.manifest.namespace)
        self._approving = Approving(self._sandbox.store, self._watching.began, play.assumed.approval)
        gc.freeze()

    def _fill(self, store: Store) -> None:
        """Fill the cluster; each pod of users takes a drawn time to end."""
        random, assumed, space = Random(f"pods/{self._seed}"), self._play.assumed, self._play.manifest.namespace

        def drawn(resource: str, obj: Object) -> Object:
            if resource != PODS or obj["metadata"]["namespace"] == space:
                return obj
            return _ends_in(obj, assumed.drawn(assumed.eviction, random))

        self._play.loaded.fill(store, drawn)

    async def run(self, watched: Callable[[Watching], None] | None, passed: Callable[[Watching], None] | None) -> Run:
        """Play; the operator's errors are raised."""
        store, watching = self._sandbox.store, self._watching
        store.subscribe(lambda event: watching.node_changed(event, self._clock.now()), "nodes")
        store.subscribe(lambda event: watching.pod_changed(event, self._clock.now()), PODS)
        self._operator.upgrades.listeners.append(watching.planned)
        if passed is not None:
            self._operator.upgrades.listeners.append(lambda _: passed(watching))
        await self._sandbox.start()
        self._keep_away()
        for change in filter(None, (self._play.change, self._also)):
            change(self._sandbox)
        work = asyncio.create_task(self._operator.run())
        try:
            while not self._is_over():
                await asyncio.sleep(STEP)
                self._slow_down()
                approved = self._approving.look(watching.plan, self._clock.now())
                maintained = let_maintain(store, watching.plan)
                if acknowledge(store, watching.plan) or approved or maintained:
                    watching.moved = self._clock.now()
                if work.done():
                    work.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await self._sandbox.stop()
        if watched is not None:
            watched(watching)
        found = watching.run(self._seed, self._clock.now(), at_horizon=self._is_late(), took=time.perf_counter() - self._begun)
        return msgspec.structs.replace(found, approvals=tuple(self._approving.given))

    def _slow_down(self) -> None:
        """Let the loops pass less often once they have seen what was changed."""
        operator, gap = self._operator, max(1.0, len(self._watching.plan.nodes) / NODES_PER_SECOND)
        operator.operands.pace = operator.drivers.pace = operator.rollouts.pace = Pace(GAP, 0.0, 0.0)
        operator.upgrades.pace = operator.labels.pace = Pace(gap, 0.0, 0.0)

    def _keep_away(self) -> None:
        """Let the kubelets be silent that are so in the captured cluster."""
        for node in self._sandbox.store.list("nodes"):
            ready = next((one["status"] for one in node["status"].get("conditions") or () if one["type"] == "Ready"), "True")
            if ready != "True":
                self._sandbox.disconnect(node["metadata"]["name"])

    def _is_late(self) -> bool:
        return self._clock.now() - self._watching.began >= self._play.horizon

    def _is_over(self) -> bool:
        """Tell whether every node is done, or nothing moves any more and nothing has a time at which it would. Where no node has
        a driver to upgrade, nothing ever moves.
        """
        now, seen = self._clock.now(), self._watching
        if now - seen.began < SETTLES or seen.snapshot is None:
            return self._is_late()
        if all(status.up_to_date and status.hold is None for status in seen.plan.nodes.values()):
            return now - seen.moved > SETTLES
        if self._is_late():
            return True
        if self._approving.pending or now - seen.moved < max(STILL, self._longest_wait()):
            return False
        since = now - SETTLES  # a time that has just come: the operator has yet to see that
        return not any(status.hold is not None and (status.hold.until or 0.0) > since for status in seen.plan.nodes.values())

    def _longest_wait(self) -> float:
        """Return for how long nothing may change while a node that is under way still goes on."""
        assumed, plan = self._play.assumed, self._watching.plan
        if any(status.hold is not None and status.hold.reason is Reason.JOBS_RUNNING for status in plan.nodes.values()):
            return assumed.job + STILL
        under_way = any(status.state in IN_PROGRESS for status in plan.nodes.values())
        return 10 * (assumed.driver + assumed.validation + assumed.eviction) if under_way else 0.0


def _ends_in(pod: Object, seconds: float) -> Object:
    meta: Mapping[str, Any] = pod["metadata"]
    return {**pod, "metadata": {**meta, "annotations": {TERMINATION_SECONDS: str(seconds), **(meta.get("annotations") or {})}}}
