"""Gangs: a workload whose pods are one, and the rule that it is not sent away again while that can be avoided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpuward import names
from gpuward.model.states import IN_PROGRESS, State
from tools.simulate.known import known_policies, known_settings
from tools.simulate.policies import seconds
from tools.simulate.windows import UNDER_WAY

if TYPE_CHECKING:
    from kubesandbox.store import Event
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

GANG: Final = "gang"
"""The workload, whose pods are each on a node of its own."""
SIZE: Final = 2


class Start(NamedTuple):
    """Hold how a node was admitted under settings that spare gangs."""

    at: float
    uid: str
    target: str
    owner: str


class Left(NamedTuple):
    """Hold that a pod of the gang was evicted for the upgrade of a node."""

    at: float
    version: int
    node: str
    start: Start


class Gangs:
    """Follow what became of the gang."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._starts: dict[str, Start] = {}
        self._left: list[Left] = []
        self._made: dict[str, int] = {}
        """By uid, the version at which each of its pods was made."""
        self._changed = 0
        """The version of the last change of its pods."""

    def pod_changed(self, event: Event) -> None:
        """Take a change of any pod."""
        if is_of_gang(event.obj):
            self._changed = event.version
            self._made.setdefault(event.obj["metadata"]["uid"], event.version)

    def evicted(self, pod: Object, node: str) -> None:
        """Take it that an operator had a pod evicted."""
        start = self._starts.get(node)
        if start is not None and is_of_gang(pod):
            self._left.append(Left(self._world.now(), self._changed, node, start))

    def admitted(self, change: NodeChange) -> str | None:
        """Take the start of a node; say that it sends the gang away again too early."""
        until, memory, now = _spared_for(change), change.after.memory(), self._world.now()
        steady = self._world.offset == 0.0 and not self._world.watch.is_overwritten(change.node)
        if until is None or memory is None or memory.restart or not steady:
            self._starts.pop(change.node, None)
            return None
        asked = memory.forced or now - self._world.watch.asked_for(change.node) < UNDER_WAY
        wrong = None if asked else self._again(change, until)
        self._starts[change.node] = Start(now, change.after.uid, memory.target, change.after.owner)
        return wrong

    def _again(self, change: NodeChange, until: float) -> str | None:
        world, memory, now = self._world, change.after.memory(), self._world.now()
        pods = [pod for pod in world.sandbox.store.list("pods") if is_of_gang(pod)]
        going = any(pod["metadata"].get("deletionTimestamp") for pod in pods)
        if going or change.writer.known["pods"] < self._changed or memory is None or not _fits(change, world, len(pods)):
            return None
        there = [pod for pod in pods if pod["spec"].get("nodeName") == change.node and pod["status"].get("phase") == "Running"]
        for pod in there:
            for left in reversed(self._left):
                came = self._made[pod["metadata"]["uid"]] > left.version
                counts = left.start.target == memory.target and left.start.owner == change.after.owner
                if counts and came and now + UNDER_WAY < left.start.at + until and self._stands(left):
                    return (f"{pod['metadata']['name']} came there after its gang had to leave {left.node} at "
                            f"{left.at - world.began:.1f}, and is to be spared for {until:g} s")
        return None

    def _stands(self, left: Left) -> bool:
        """Tell whether a node still is what it was sent to when the gang had to leave it."""
        sight = self._world.watch.history.now(left.node)
        if sight is None or not sight.exists or sight.uid != left.start.uid or self._world.watch.is_overwritten(left.node):
            return False
        memory = sight.memory()
        there = sight.state in IN_PROGRESS or sight.state is State.DONE
        return there and sight.wanted and memory is not None and memory.target == left.start.target


def is_of_gang(pod: Object) -> bool:
    """Tell whether a pod is one of the gang."""
    return (pod["metadata"].get("labels") or {}).get(names.POD_GROUP) == GANG


def _spared_for(change: NodeChange) -> float | None:
    """Return for how long gangs are spared at least, by all that the writer may have gone by."""
    settings = known_settings(change.writer, change.history)
    found = [spec["gangs"] for spec in settings if spec is not None and spec.get("gangs")]
    if not found or len(found) < len(settings) or any(each.get("mode") == "Ignore" for each in found):
        return None
    return min(seconds(each["until"]) for each in found)


def _fits(change: NodeChange, world: SimulatedWorld, size: int) -> bool:
    """Tell whether the limits would let the whole gang go at once, whatever nodes count."""
    nodes = max(0, len(list(world.gpu_nodes())) - 2)
    policies = known_policies(change.writer, change.history, change.node)
    return bool(policies) and world.scenario.mode == "clusterpolicy" and all(
        policy is not None and policy.max_unavailable.of(nodes) >= size
        and (not policy.max_parallel_upgrades or policy.max_parallel_upgrades >= size) for policy in policies)
