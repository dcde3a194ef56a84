"""The cluster as the operator follows it: which resources, projected how, and put together into a snapshot.

It is the live Observer. Own writes enter it through the executor, so a snapshot is never older than what we did ourselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final

from gpuward import errors
from gpuward.kube import followed, resources
from gpuward.kube.cache.cache import Cache, Change
from gpuward.kube.cache.owned import owned_views
from gpuward.kube.cache.reflector import DENIED, Reflector
from gpuward.kube.doubts import settle
from gpuward.kube.endless import endless
from gpuward.kube.followed import Followed, K, Place, V
from gpuward.kube.http.client import Client
from gpuward.kube.installation import installation_wait
from gpuward.kube.lingering import RolloutPolicies
from gpuward.kube.maintenances import Maintenances
from gpuward.kube.memory import Going, Memory
from gpuward.kube.resources import GVR
from gpuward.kube.room import TakenRoom
from gpuward.kube.untaken import UntakenWrites
from gpuward.kube.watcher import Subscribers, Watcher, only_counts
from gpuward.model.analysis import Measured
from gpuward.model.claims import ClaimView
from gpuward.model.driver import is_driver_pod
from gpuward.model.driver_images import DriverImages
from gpuward.model.edits import edited
from gpuward.model.rights import BUDGETS
from gpuward.model.selectors import PodSelection
from gpuward.model.snapshot import Applied, Edit, References, Snapshot
from gpuward.model.views import DaemonSetView, PodView, Ref
from gpuward.ports import NO_LOG, Log
from gpuward.wire.claims import with_claims
from gpuward.wire.pods import pod_view
from gpuward.wire.policies import oldest_first

Report = Callable[[GVR, errors.GpuwardError | None], None]

SETTLE_EVERY: Final = 1.0
"""Seconds between attempts to learn what became of a write without an answer."""


class Cluster:
    """Follow a cluster. Belongs to one event loop; `start` follows until the task group that it is given ends."""

    def __init__(self, client: Client, namespace: str, *, random: Random, report: Report | None = None,
                 log: Log = NO_LOG) -> None:
        self.client, self.namespace = client, namespace
        self.keep_pod: Callable[[PodView], bool] = lambda pod: True
        """Which pods matter. Change it through `follow_pods`."""
        self._selected = frozenset[PodSelection]()
        self._references = References()
        self._images: DriverImages | None = None
        self._measured: Mapping[str, Measured] = {}
        self._kept: dict[GVR, tuple[Followed[Any, Any], Cache[Any, Any]]] = {}
        """What is kept of each resource, whether it is followed already or not."""
        self.nodes = self._keep(followed.NODES, followed.NODES.cache())
        self.pods = self._keep(followed.PODS, followed.PODS.cache(
            self._pod, {"node": lambda pod: (pod.node,), "claim": lambda pod: [(pod.namespace, name) for name in pod.claims]}))
        self.daemonsets = self._keep(followed.DAEMON_SETS, followed.DAEMON_SETS.cache())
        self.revisions = self._keep(followed.REVISIONS, followed.REVISIONS.cache())
        self.policies = self._keep(followed.POLICIES, followed.POLICIES.cache())
        self.rollout_policies = self._keep(followed.ROLLOUT_POLICIES, followed.ROLLOUT_POLICIES.cache())
        self.rollouts = RolloutPolicies(self.rollout_policies, self.policies, lambda: self._memory.forbidden, self.touch, log)
        self.drivers = self._keep(followed.DRIVERS, followed.DRIVERS.cache())
        self.budgets = self._keep(followed.BUDGETS, followed.BUDGETS.cache())
        self.claims = self._keep(followed.CLAIMS, followed.CLAIMS.cache())
        self.owned = {each.kind: self._keep(each, each.cache()) for each in followed.OWNED}
        self.places = followed.PLACE.cache()
        self._applied: dict[tuple[str, str, str], Applied] = {}
        self._memory = Memory()
        self.untaken = UntakenWrites(self._memory, self.touch)
        self.room = TakenRoom(self.touch)
        self._refused: dict[GVR, str] = {}  # why a resource cannot be followed now
        self.maintenances = Maintenances(self.nodes, self.rollout_policies, self._follow_too, self._refused)
        self._late: dict[tuple[str, str], float] = {}  # since when loops wait for an answer, by the loop and the lane
        self.grants: Mapping[str, str] | None = None  # the ledger of admissions, where one is kept; `granted` changes it
        self._inherited: frozenset[str] = frozenset()
        self.watched_since = 0.0  # since when this process leads
        self._on_node: dict[str, tuple[PodView, ...]] = {}
        self._regroup: set[str] = set()
        self._snapshot: Snapshot | None = None  # the last one, while nothing has changed since
        self._random, self._report = random, report
        self._subscribers = Subscribers()
        self._answered = asyncio.Event()
        self._tasks: dict[GVR, asyncio.Task[None]] = {}
        self._firsts: list[asyncio.Task[None]] = []
        self._group: asyncio.TaskGroup | None = None
        self.pods.subscribe(self._note_nodes)
        self.drivers.subscribe(self._memory.drivers_changed)
        self.budgets.subscribe(lambda changes: self._memory.found_room(changes, self.pods))
        self.claims.subscribe(self._note_claims)
        for each, cache in self._kept.values():
            if each.wakes:
                wake = partial(self._wake, each.of_fleet)
                cache.subscribe(self._wake_for_daemonsets if each is followed.DAEMON_SETS else wake)

    def _keep(self, each: Followed[K, V], cache: Cache[K, V]) -> Cache[K, V]:
        self._kept[each.resource] = each, cache
        return cache

    def kept(self, kind: str) -> tuple[GVR, Cache[Any, Any]] | None:
        """Return the resource of a kind, and what is kept of it; None for a kind of which nothing is."""
        return next(((each.resource, cache) for each, cache in self._kept.values() if each.kind == kind), None)

    # Following.

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to follow everything, in tasks of the group."""
        self._group = group
        for gvr in self._kept:
            self._follow(gvr)
        self._tasks[resources.EVENTS] = group.create_task(endless("settling doubts", self._settle_doubts), name="settle doubts")

    def stop(self) -> None:
        """Stop following."""
        for task in (*self._tasks.values(), *self._firsts):
            task.cancel()

    @property
    def is_synced(self) -> bool:
        """Tell whether every resource has been listed once, kinds of operands' objects aside that may not be listed."""
        return all(cache.synced.is_set() for cache in self._required()) and not self._unanswered()

    async def synced(self) -> None:
        """Wait until that is so. A kind that may not be listed is waited for no longer: only its own objects depend on it."""
        for cache in self._required():
            await cache.synced.wait()
        while self._unanswered():
            self._answered.clear()
            await self._answered.wait()

    def _required(self) -> list[Cache[Any, Any]]:
        return [cache for each, cache in self._kept.values() if each.required]

    def _unanswered(self) -> bool:
        return any(each.awaited and not (each.required or cache.synced.is_set() or gvr in self._refused)
                   for gvr, (each, cache) in self._kept.items())

    def follow_pods(self, selected: frozenset[PodSelection], keep: Callable[[PodView], bool]) -> None:
        """Change which pods matter, and list them anew: the ones that did not matter before are not known."""
        self._selected, self.keep_pod = selected, keep
        self._snapshot = None
        if resources.PODS in self._tasks:
            self._follow_anew(resources.PODS)

    @property
    def is_followed(self) -> bool:
        """Tell whether following has begun."""
        return self._group is not None

    async def list_anew(self) -> None:
        """List everything once more, and wait for it: who begins to lead must not act on what a watch that lags has shown."""
        for gvr in [gvr for gvr, (_, cache) in self._kept.items() if cache.synced.is_set()]:
            self._follow_anew(gvr)
        await self.synced()

    def _follow_anew(self, gvr: GVR) -> None:
        _, cache = self._kept[gvr]
        cache.synced.clear()
        self._tasks[gvr].cancel()
        self._follow(gvr)

    def follow_monitors(self) -> None:
        """Follow ServiceMonitors too, which only clusters with the Prometheus operator have."""
        self._follow_too(followed.MONITORS, self.owned.setdefault(followed.MONITORS.kind, followed.MONITORS.cache()))

    def follow_place(self) -> None:
        """Follow the operator's namespace too, which matters under some policies only."""
        self._follow_too(followed.PLACE, self.places)

    def _follow_too(self, each: Followed[K, V], cache: Cache[K, V]) -> None:
        if each.resource not in self._kept:
            self._keep(each, cache).subscribe(partial(self._wake, each.of_fleet))
            self._follow(each.resource)

    def _follow(self, gvr: GVR) -> None:
        assert self._group is not None
        each, cache = self._kept[gvr]
        selection = each.selection(self.namespace)
        reflector = Reflector(self.client, selection, cache, random=self._random, report=partial(self._reported, gvr))
        reflector.absent = installation_wait(self.client, gvr, cache.synced, self._random)
        self._tasks[gvr] = self._group.create_task(endless(f"following {gvr}", reflector.run), name=f"follow {gvr}")
        self._firsts.append(self._group.create_task(self._listed(cache), name=f"first list of {gvr}"))

    async def _listed(self, cache: Cache[Any, Any]) -> None:
        """Wake everybody after the first list: that there is nothing of a kind is news too."""
        await cache.synced.wait()
        self._firsts = [task for task in self._firsts if task is not asyncio.current_task()]
        self._answered.set()
        self.touch()

    def _reported(self, gvr: GVR, error: errors.GpuwardError | None) -> None:
        if error is None:
            self._refused.pop(gvr, None)
        elif not self._kept[gvr][0].only_denied or isinstance(error, DENIED):
            # A server that fails to list them does not say that there are none: other settings must not hold meanwhile.
            self._refused[gvr] = str(error)
        self._answered.set()
        if error is None or isinstance(error, DENIED):
            self.may_list(self._kept[gvr][0].kind, not isinstance(error, errors.Forbidden))
        if self._report is not None:
            self._report(gvr, error)

    def may_list(self, kind: str, allowed: bool) -> None:
        """Take it whether objects of a kind may be listed, and wake everybody."""
        self._memory.may_list(kind, allowed)
        self.rollouts.look()
        self.touch()

    def _pod(self, raw: bytes) -> PodView | None:
        return pod if self.keep_pod(pod := pod_view(raw)) else None

    def observe(self) -> Snapshot:
        """Return the facts of this moment: the same object for as long as they stay the same."""
        unsettled, known, last = self._unsettled(), self.pods.synced.is_set(), self._snapshot
        if last is None or last.unsettled != unsettled or (last.followed is not None) != known:
            last = self._snapshot = self._look(unsettled)
        return last

    def _look(self, unsettled: frozenset[str]) -> Snapshot:
        self._group_pods()
        (memory := self._memory).forget(self.pods, self.nodes)
        return Snapshot(
            namespace=self.namespace, nodes=self.nodes.copy(), pods=dict(self._on_node),
            staging_on=memory.staging_on, daemonsets=tuple(self.daemonsets.values()), revisions=tuple(self.revisions.values()),
            # Those that were seen before the right was taken away may be gone.
            budgets=self.room.left(self.budgets.values()) if BUDGETS not in memory.forbidden else (),
            policies=oldest_first(self.policies.values()), drivers=oldest_first(self.drivers.values()),
            rollout_policies=self.rollouts.views(), departed=memory.departed(self.daemonsets.values()), evicted=memory.evicted,
            owned=owned_views(self.owned, self.daemonsets.values()), applied=dict(self._applied), refusals=dict(memory.refusals),
            refused_writes=dict(memory.refused_writes), unstaged=dict(memory.unstaged), withheld=dict(memory.withheld),
            untaken=dict(memory.untaken), edits=edited(self.daemonsets.values(), self._applied, memory.edits), grants=self.grants,
            unanswered=self._late_nodes(), ledger_refused=memory.ledger_refused, unsettled=unsettled, inherited=self._inherited,
            unlisted=self._unlisted(), forbidden=memory.forbidden, followed=self._selected if self.pods.synced.is_set() else None,
            unrequested=dict(self.maintenances.refusals), place=self.places.get(self.namespace), watched_since=self.watched_since,
            references=self._references, images=self._images, measured=self._measured, maintenances=self.maintenances.views())

    def refer(self, references: References) -> None:
        """Take what was asked for and is not watched."""
        self._references = references
        self.touch()

    def find_images(self, images: DriverImages) -> None:
        """Take what registries say of drivers' images."""
        if images != self._images:
            self._images = images
            self.touch()

    def measure(self, measured: Mapping[str, Measured]) -> None:
        """Take what was measured of the waves' checks."""
        if measured != self._measured:
            self._measured = measured
            self.touch()

    def _unlisted(self) -> dict[str, str]:
        return {each.kind: self._refused.get(gvr, "") for gvr, (each, cache) in self._kept.items()
                if each.acted_on and not cache.synced.is_set()}

    def _note_nodes(self, changes: list[Change[Place, PodView]]) -> None:
        views = [view for change in changes for view in (change.old, change.new) if view is not None]
        self._regroup.update(view.node for view in views)
        failed = (view for view in views if view.phase == "Failed" and is_driver_pod(view, self.namespace))
        self._memory.drivers_failed |= {view.node for view in failed}

    def _note_claims(self, changes: list[Change[Place, ClaimView]]) -> None:
        """Look anew at the pods of changed claims. Most claims are of no pod that matters, and wake nobody."""
        if nodes := {pod.node for change in changes for pod in self.pods.by("claim", change.key)}:
            self._regroup |= nodes
            self.touch()

    def with_claims(self, pod: PodView) -> PodView:
        """Return a pod as its claims make it: one whose claims are not known, or may not be listed, uses a GPU."""
        return with_claims(pod, self.claims.get)

    def _group_pods(self) -> None:
        """Group the pods of nodes that saw changes: once for all changes since the last look."""
        while self._regroup:
            node = self._regroup.pop()
            self._memory.found_staging(node, pods := self.pods.by("node", node))
            if pods:
                self._on_node[node] = self._memory.followed_failed(tuple(map(self.with_claims, pods)), self.namespace)
            else:
                self._on_node.pop(node, None)

    # Learning from our own requests what no watch shows.

    def refused(self, pod: Ref, at: float, message: str, *, lost: bool = False) -> None:
        """Take it that a pod's eviction or deletion was refused at a time, or its answer `lost`, and wake everybody."""
        self._memory.refuse(pod.uid, at, message, lost=lost)
        self.touch()

    def wrote(self, node: Ref, at: float, refusal: str) -> None:
        """Take it how an upgrade's write to a node ended: with what it was refused, if it was."""
        if self._memory.wrote(node.uid, at, refusal):
            self.touch()

    def staged(self, node: Ref, at: float, refusal: str = "") -> None:
        """Take it how making a pod for a node ended that has images pulled: with what it was refused, if it was."""
        self._memory.staged(node.uid, at, refusal)
        self.touch()

    def withheld(self, node: Ref, at: float) -> None:
        """Take it that a node has lost the label by which it gets a driver."""
        self._memory.withheld[node.uid] = at
        self.touch()

    def put_right(self, ref: Ref, at: float, by: str) -> Edit:
        """Take it that an edit of somebody else was put right, and wake everybody; return what is known of such edits."""
        found = self._memory.put_right(ref.uid, at, by)
        self.touch()
        return found

    def granted(self, grants: Mapping[str, str], *, anew: bool = False) -> None:
        """Take it that the ledger holds these nodes, and wake everybody; `anew` where they may have been granted long ago."""
        before, self.grants = self.grants or {}, grants
        self._inherited = frozenset(name for name, stamp in grants.items() if anew or (
            name in self._inherited and before.get(name) == stamp))
        self.touch()

    def late(self, loop: str, lane: str, begun: float | None) -> None:
        """Take it that what a loop does about a node, or an object, has no answer yet, or has one now; and wake everybody."""
        if begun is None:
            self._late.pop((loop, lane), None)
        else:
            self._late[loop, lane] = begun
        self.touch()

    def wrote_ledger(self, at: float, refusal: str) -> None:
        """Take it how an entry into the ledger ended: with what it was refused, if it was."""
        self._memory.granted(at, refusal)
        self.touch()

    def going(self, pod: Ref) -> Going | None:
        """Return what to know of a pod before it is asked to go: the next one of its owner may be there before the answer."""
        view = self.pods.get((pod.namespace, pod.name))
        if view is None or pod.namespace == self.namespace:
            return None
        return Going(view, tuple(one.uid for one in self.pods.by("node", view.node) if one.owner == view.owner))

    def accepted(self, pod: Ref, going: Going | None, at: float, *, lost: bool = False) -> None:
        """Take it that a pod goes now, or may: where the answer was lost, it counts as refused as well."""
        if not lost:
            self._memory.refusals.pop(pod.uid, None)
        if going is not None:
            self._memory.evict(going, at)
        self._snapshot = None

    def last_applied(self, kind: str, ref: Ref) -> Applied | None:
        """Return what applying an object was answered last."""
        return self._applied.get((kind, ref.namespace, ref.name))

    def applied(self, kind: str, ref: Ref, last: Applied | None) -> None:
        """Remember what applying an object was answered; None forgets it."""
        if last is None:
            self._applied.pop((kind, ref.namespace, ref.name), None)
        else:
            self._applied[kind, ref.namespace, ref.name] = last
        self._snapshot = None

    def _late_nodes(self) -> dict[str, float]:
        return {lane: begun for (_, lane), begun in self._late.items() if self.nodes.get(lane) is not None}

    def _unsettled(self) -> frozenset[str]:
        """Return the nodes about which, or about one of whose pods, something is not known."""
        known = self.nodes.uncertain | self._late_nodes().keys()
        return known | {pod.node for pod in map(self.pods.get, self.pods.uncertain) if pod is not None}

    def watcher(self, *, counts: bool = True, fleet: bool = True) -> Watcher:
        """Return an Observer for one loop: one that changes of DaemonSets' counts wake, and of nodes and of what runs there."""
        return Watcher(self.observe, self._subscribers.subscribe(counts=counts, fleet=fleet))

    def touch(self, *, counts_only: bool = False, fleet_only: bool = False) -> None:
        """Wake everybody: something changed that no watch shows, such as a refused eviction. Or wake those whom it concerns."""
        self._snapshot = None
        self._subscribers.notify(counts_only=counts_only, fleet_only=fleet_only)

    def _wake(self, of_fleet: bool, changes: list[Change[Any, Any]]) -> None:
        self.touch(fleet_only=of_fleet)

    def _wake_for_daemonsets(self, changes: list[Change[Place, DaemonSetView]]) -> None:
        self.touch(counts_only=all(only_counts(change.old, change.new) for change in changes))

    async def _settle_doubts(self) -> None:
        """Ask, until it is answered, what became of objects whose last write has no known outcome."""
        while True:
            doubtful = [(gvr, cache, key) for gvr, (_, cache) in self._kept.items() for key in sorted(cache.uncertain)]
            for gvr, cache, key in doubtful:
                with contextlib.suppress(errors.ApiError, errors.Unreachable):
                    await settle(self.client, gvr, cache, key)
            await asyncio.sleep(SETTLE_EVERY)
