"""The rules about what people say of rollouts: aborts, approvals, approved plans, pauses, and nodes that are to be left alone.

Each is held to what whoever granted a node may have known for a while before that: a node that was granted starts, and a request
may be under way for long that was decided before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpuward import names
from gpuward.model.approved_plan import ApprovedPlan, decoded
from gpuward.model.record import Record
from tools.simulate.known import is_noted, known_policies, leaves_drivers, noted, word_of
from tools.simulate.leaving import users_of
from tools.simulate.waves import is_later, waves_since

if TYPE_CHECKING:
    from tools.simulate.history import History
    from tools.simulate.process import Knower, Process
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

NO_DRIVER: Final = "none"
"""What a plan has for a node that is to lose its driver."""


def _governors(knower: Knower, history: History, node: str) -> list[Object | None]:
    """Return what the driver of a node may have followed from, as a process may have known it."""
    found: list[Object | None] = []
    for policy in history.policies(knower):
        if policy is not None and leaves_drivers(policy):
            owners = [owner for owner in sorted(history.owners(node, knower)) if owner]
            found += [each for owner in owners for each in history.policies(knower, owner)] if owners else [None]
        else:
            found.append(policy)
    return found


def _all_forbid(knowers: Iterable[Knower], change: NodeChange, forbids: Callable[[Object, Knower], str | None]) -> str | None:
    """Return why a node must not start, if that follows from all that may have been known; None where anything let it."""
    told = None
    for knower in knowers:
        governors = _governors(knower, change.history, change.node)
        for governor in governors:
            told = forbids(governor, knower) if governor is not None else None
            if told is None:
                return None
    return told


def no_driver_starts_that_was_aborted(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node for a driver whose rollout people ended, and have not let go on since."""
    after, terms = change.after.memory(), world.watch.ledger.terms(change.node, change.before)
    target = after.target if after is not None else ""
    if not change.admits or not terms or not target:
        return None

    def forbids(governor: Object, knower: Knower) -> str | None:
        word = word_of(governor, names.ABORTED)
        resumed = [noted(each, names.RESUMED_AT) for each in (governor, *change.history.policies(knower)) if each is not None]
        at = str(word.get("at"))
        if target not in word.get("targets", ()) or any(each >= at for each in resumed):
            return None
        return f"it is sent to {target}, whose rollout was aborted at {at}"

    return _all_forbid(terms[0].granters, change, forbids)


def no_node_starts_but_by_the_plan(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node while its rollout is another one than that of the plan that people approved of."""
    before, terms = change.before.memory(), world.watch.ledger.terms(change.node, change.before)
    if not change.admits or not terms:
        return None

    def forbids(governor: Object, knower: Knower) -> str | None:
        if governor["kind"] == "NVIDIADriver" and change.history.is_gone(knower, governor["metadata"]["name"]):
            return None  # its plan went with it
        text = noted(governor, names.APPROVED_PLAN)
        return _differs(decoded(text), change, before, world) if text else None

    return _all_forbid(terms[0].granters, change, forbids)


def _differs(plan: ApprovedPlan, change: NodeChange, before: Record | None, world: SimulatedWorld) -> str | None:
    """Say in what the start of a node differs from a plan: the plan names each node with the configuration of its driver."""
    if plan.unreadable:
        return "what stands for the approved plan is none"
    if before is not None and before.failure is not None:
        return None  # it is tried again with the driver that it was sent to
    planned = plan.nodes.get(change.node)
    if planned is None:
        return "it is not in the approved plan"
    asked = world.watch.digests_known_to(change.writer)
    if planned.driver in asked or planned.driver == NO_DRIVER or "/" in planned.driver:
        return None
    wanted = ", ".join(sorted(each[:12] for each in asked))
    return f"the approved plan has driver {planned.driver[:12]} for it, and {wanted} are asked for"


def nobody_goes_past_a_canary_that_was_not_approved_of(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node of a later wave before people approved of the first one with its driver, where that is asked for."""
    after = change.after.memory()
    if after is None or (sent := world.watch.sent.get(after.target)) is None:
        return None
    waves = waves_since(change.history, sent.version)
    if not waves or waves[0].get("approval") != "Required" or not is_later(change, waves, world):
        return None
    owners = change.history.owners(change.node, change.writer)
    said = [word for owner in {"", *owners} for governor in change.history.every(owner)
            if (word := word_of(governor, names.APPROVED))]
    if any(after.target in word["targets"] for word in said):
        return None
    return f"nobody has approved of {after.target}"


def nobody_is_cordoned_in_a_pause(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Make no node unschedulable whose GPUs are used, while upgrades are off."""
    machine = world.watch.machines.machine(change.node)
    if change.before.cordoned or not change.after.cordoned or machine is None:
        return None
    # Pods that were left by an earlier Node of the name hold nothing any more, as documented.
    made = world.node(change.node)["metadata"]["creationTimestamp"]
    left = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in world.sandbox.store.list("pods")
            if pod["spec"].get("nodeName") == change.node and pod["metadata"]["creationTimestamp"] < made}
    users = [user for user in users_of(machine) if user not in left]
    if not users:
        return None
    return f"upgrades are off, and {', '.join(users[:3])} run" if is_paused(change.writer, world, change.node) else None


def is_paused(process: Process, world: SimulatedWorld, node: str) -> bool:
    """Tell whether a process has known for a while that upgrades are off, by whatever the driver of a node may follow from."""
    knowers, history = process.lately(), world.watch.history
    sight = history.now(node)
    if sight is not None and history.came_later(process, sight.owner) and is_noted(sight.owner, world):
        return False
    for knower in knowers:
        policies = known_policies(knower, history, node)
        if not policies or any(policy is None or policy.auto_upgrade for policy in policies):
            return False
    return bool(knowers)


def forbidden_to_empty(node: str, process: Process, world: SimulatedWorld) -> str | None:
    """Say why no pod of a node may be evicted now, whatever the pod."""
    history = world.watch.history
    if is_paused(process, world, node):
        return "upgrades are off"
    began, sights = world.watch.began.get(node), history.sights(node)
    if began is None or not sights or not sights[-1].in_progress:
        return None
    skipped = None
    for sight in reversed(sights):
        if not sight.skipped or sight.uid != sights[-1].uid:
            break
        skipped = sight.version
    if skipped is None or skipped > began:
        return None
    return f"it was to be skipped since version {skipped}, and began when version {began} was known"


NODE_RULES: Sequence[Callable[[NodeChange, SimulatedWorld], str | None]] = (
    no_driver_starts_that_was_aborted, no_node_starts_but_by_the_plan, nobody_goes_past_a_canary_that_was_not_approved_of,
    nobody_is_cordoned_in_a_pause,
)
