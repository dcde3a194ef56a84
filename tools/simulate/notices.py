"""Notices before evictions: owners of pods who answer some, and the rules, judged by what was written and who was evicted."""

from __future__ import annotations

import math
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuward import names
from gpuward.kube.http.servertime import RESOLUTION
from gpuward.model.notice import ALWAYS, Notice, notice_of
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.sandbox.gpus import devices_wanted
from gpuward.upgrade.notices import KEPT
from kubesandbox.store import Event
from tools.simulate.known import known_settings
from tools.simulate.policies import seconds
from tools.simulate.windows import UNDER_WAY

if TYPE_CHECKING:
    from tools.simulate.process import Process
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]


class Admitted(NamedTuple):
    """Hold what was known when a node was admitted: its notice, if it had one, and which pods the process may have known."""

    at: float
    pods: int
    notice: Notice | None
    clocks: tuple[float, float]
    """What the time was, and what the operator's machine may have taken for it."""
    least: float
    """Seconds that were still to pass at least: who gave the notice began to count when it wrote that down."""


class Notices:
    """Follow the notices on nodes, and have some owners of pods answer."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._on: dict[str, str] = {}
        """The text on each node that has a notice."""
        self._admitted: dict[str, Admitted] = {}
        self._written: dict[tuple[str, str], tuple[float, Process]] = {}
        """When each notice was written on a node, and by whom."""

    def node_changed(self, event: Event, writer: Process | None, change: NodeChange | None) -> str | None:
        """Take a change of a node; say what is wrong with a notice that is given by it."""
        name, before = event.obj["metadata"]["name"], self._on.get(event.obj["metadata"]["name"])
        text = (event.obj["metadata"].get("annotations") or {}).get(names.NOTICE)
        if event.type == "DELETED" or (writer is None and _label(event.obj) != _label(event.old or {})):
            self._admitted.pop(name, None)
        elif change is not None and change.admits:
            self._admit(change, before)
        if event.type == "DELETED" or text is None:
            self._on.pop(name, None)
            return None
        self._on[name] = text
        notice = notice_of({names.NOTICE: text})
        if text == before or writer is None:
            return None
        if notice is None:
            return f"{text} cannot be read"
        self._written.setdefault((name, notice.id), (self._world.now(), writer))
        self._have_answered(name, notice)
        return self._too_short(notice, writer)

    def _admit(self, change: NodeChange, text: str | None) -> None:
        world, memory = self._world, change.after.memory()
        settings = known_settings(change.writer, change.history)
        told = settings and all(spec is not None and spec.get("notice") for spec in settings)
        meddled = world.watch.annotated_by_people(change.node, names.NOTICE) or world.watch.is_overwritten(change.node)
        if not told or meddled or memory is None or memory.restart:
            self._admitted.pop(change.node, None)
            return
        notice = notice_of({names.NOTICE: text}) if text is not None else None
        self._admitted[change.node] = Admitted(
            world.now(), change.writer.known["pods"], notice, (world.now(), world.now() + world.offset),
            self._left(change, notice) if notice is not None else math.inf)

    def _left(self, change: NodeChange, notice: Notice) -> float:
        """Return how many seconds of a notice are left at a start, by the time that passed since it was written.

        The API server tells its time in whole seconds: of another process's notice one may be missing.
        """
        at, writer = self._written.get((change.node, notice.id), (math.inf, None))
        spared = 0.0 if writer is change.writer else RESOLUTION
        return notice.begins - notice.given - (self._world.now() - at) - spared

    def _too_short(self, notice: Notice, writer: Process) -> str | None:
        """Say that a notice ends before its time, which began at most so long before it was written."""
        world = self._world
        settings = known_settings(writer, world.watch.history)
        if not settings or any(spec is None or not spec.get("notice") for spec in settings):
            return None
        least = min(seconds(spec["notice"]["before"]) for spec in settings if spec is not None)
        decided = min(world.now(), world.now() + world.offset) - UNDER_WAY
        if notice.begins - notice.given < least or notice.begins < decided + least:
            return f"it is over {notice.begins - world.now():.1f} s later, and {least:g} s are to be given"
        return None

    def _have_answered(self, node: str, notice: Notice) -> None:
        """Let the owners of some pods answer after a while, and some never."""
        for pod in _users(self._world, node):
            random = Random(f"{self._world.scenario.seed}/{pod['metadata']['name']}/{notice.begins - self._world.began:.3f}")
            if random.random() < 0.5:
                place = pod["metadata"]["namespace"], pod["metadata"]["name"], pod["metadata"]["uid"]
                self._world.later(random.uniform(0.0, 90.0), partial(_answer, self._world, place, notice.id))

    def forbidden(self, pod: Object, node: str) -> str | None:
        """Say why a pod may not be evicted yet: its node was admitted before the end of its notice, and it has not answered."""
        admitted = self._admitted.get(node)
        if admitted is None or not devices_wanted(pod["spec"]) or pod["status"].get("phase") in ("Succeeded", "Failed"):
            return None
        if self._world.watch.bound_at(pod) > admitted.pods:
            return None  # it came past the gates
        said, notice = (pod["metadata"].get("annotations") or {}).get(names.ACKNOWLEDGED), admitted.notice
        if said == ALWAYS or (notice is not None and said == notice.id):
            return None
        if notice is None:
            return "its node had no notice"
        early = min(notice.begins - max(admitted.clocks), admitted.least)
        return f"the notice of its node was over {early:.1f} s after the start" if early > 0.1 else None


def _label(node: Object) -> str:
    return str((node.get("metadata", {}).get("labels") or {}).get(names.UPGRADE_STATE, ""))


def _users(world: SimulatedWorld, node: str) -> list[Object]:
    return [pod for pod in world.sandbox.store.list("pods") if pod["spec"].get("nodeName") == node
            and pod["metadata"]["namespace"] != names.DEFAULT_NAMESPACE and devices_wanted(pod["spec"])]


def _answer(world: SimulatedWorld, place: tuple[str, str, str], notice: str) -> None:
    namespace, name, uid = place
    found = world.sandbox.store.find("pods", namespace, name)
    if found is not None and found["metadata"]["uid"] == uid:
        world.sandbox.store.modify("pods", namespace, name, lambda pod: pod["metadata"].setdefault("annotations", {}).update(
            {names.ACKNOWLEDGED: notice}))


def notice_left(world: SimulatedWorld, node: str) -> str | None:
    """Say that a node has a notice that is for nothing."""
    text = (world.node(node)["metadata"].get("annotations") or {}).get(names.NOTICE)
    hold = world.leader.operator.plan.holds.get(node)
    if text is None or world.watch.annotated_by_people(node, names.NOTICE):
        return None
    waits = world.state_label(node) == State.UPGRADE_REQUIRED and hold is not None and hold.reason in KEPT - {Reason.UNDECIDED}
    return None if waits else f"its notice: {text}"

