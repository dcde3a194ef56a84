"""The rules about single changes: each says in one sentence what is wrong, or None."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuward import names
from gpuward.model.policy import DrainSettings, PodDeletionSettings
from gpuward.model.states import TRANSITIONS, UNDISTURBED, State, parse_state
from tools.simulate import patience, said
from tools.simulate.admissions import domains_hold, parallel_limit_holds, unavailable_limit_holds, who_starts_is_in_the_ledger
from tools.simulate.history import History, Sight, admits
from tools.simulate.known import is_noted, kept_policies, known_policies, known_settings, turns_drivers_off
from tools.simulate.leaving import users_of
from tools.simulate.waves import a_driver_goes_no_further_than_the_canary_before_it_runs
from tools.simulate.windows import nobody_starts_outside_the_windows

if TYPE_CHECKING:
    from tools.simulate.process import Process
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

class NodeChange(NamedTuple):
    """Hold one write of a process of the operator to a node."""

    node: str
    before: Sight
    after: Sight
    writer: Process
    history: History

    @property
    def admits(self) -> bool:
        """Tell whether the write starts an upgrade."""
        return admits(self.before, self.after)


NodeRule = Callable[[NodeChange, "SimulatedWorld"], str | None]


def labels_are_nvidias(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Write no value to the state label that NVIDIA does not know."""
    if change.after.label != change.before.label and parse_state(change.after.label) is None:
        return f"{change.before.label!r} -> {change.after.label!r}"
    return None


def moves_are_legal(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Go from state to state along the table; a patch may fold several moves. Garbage is left alone."""
    before, after = change.before.state, change.after.state
    if change.after.label == change.before.label or after is None:
        return None
    if before is None:
        left = not (change.after.wanted and world.has_driver_daemonset(change.node, change.writer.known["daemonsets"]))
        left = left or (bool(change.before.owner) and change.history.is_deleted(change.writer, change.before.owner))
        return None if after is State.UNKNOWN and left else f"{change.before.label!r} -> {after}"
    reached, edge = {before}, {before}
    while edge:
        edge = {to for state in edge for to in TRANSITIONS[state]} - reached
        reached |= edge
    return None if after in reached or after is State.UNKNOWN else f"{before or 'unknown'} -> {after}"


def the_record_names_the_label(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Write label and record together, so that each write tells the same story. A label of people's may wait to be followed."""
    same = change.after.label == change.before.label and change.after.record == change.before.record
    if same or not change.after.label or change.after.state is None:
        return None
    if world.watch.is_overwritten(change.node):
        return None
    if change.after.state is State.UPGRADE_REQUIRED and change.before.state in (State.UNKNOWN, State.DONE):
        return None  # whose driver no DaemonSet owns any more is sent into the queue by its label alone
    record, remembered = change.after.memory(), change.before.memory()
    if record and remembered and change.after.label == change.before.label and record.state == remembered.state:
        return None
    if record is None or record.state != change.after.state:
        return f"label {change.after.label!r}, record {change.after.record}"
    return None


def foreign_cordons_stay(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Lift no cordon that somebody else made, as far as the process could know of it."""
    before = change.before
    if not before.cordoned or change.after.cordoned or not change.after.exists:
        return None
    if before.cordoned_by is not None or world.watch.is_overwritten(change.node):
        return None
    if before.cordoned_at in world.watch.of_driver_managers:
        return None  # it may be over where its driver manager is killed
    if before.memory() is None:
        return None  # in mid-upgrade without a record: the cordon is taken for that of NVIDIA's operator
    at = before.cordoned_at
    if at > change.writer.known["nodes"]:
        return None
    lifted = next((sight for sight in change.history.cordons(change.node, at - 1) if sight.cordoned), None)
    since = lifted.version if lifted is not None else 0
    free = next((sight for sight in reversed(list(change.history.cordons(change.node, at - 1)))
                 if sight.version > since and not sight.cordoned), None)
    ours = lifted is not None and lifted.cordoned_by is not None
    if ours and free is not None and not change.writer.could_note(change.node, free.version, at):
        return None  # nobody could tell that the cordon of ours had gone in between
    return f"somebody else made it at version {at}, known were {change.writer.known['nodes']}"


def nobody_starts_who_must_wait(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node under a broken or paused policy, none that is skipped, and none that is not Ready."""
    if not change.admits:
        return None
    policies = [policy for policy in known_policies(change.writer, change.history, change.node) if policy is not None]
    if not policies:
        return "the policy cannot be followed"
    said = any(policy.auto_upgrade for policy in policies) or is_noted(change.before.owner, world)
    if not said and not _loses_an_idle_driver(change, world):
        return "upgrades are off"
    if all(settings is None for settings in known_settings(change.writer, change.history)):
        return "the RolloutPolicy cannot be followed"
    view = change.history.view(change.node, change.writer)
    if view is not None and view.skipped:
        return "it is to be skipped"
    if view is not None and not view.ready:
        return "it is not Ready"
    return None


def _loses_an_idle_driver(change: NodeChange, world: SimulatedWorld) -> bool:
    """Tell whether the driver of a node is to go, and nobody uses it: that needs no automatic upgrades."""
    owner, machine = change.before.owner, world.watch.machines.machine(change.node)
    gone = bool(owner) and change.history.is_gone(change.writer, owner)
    off = any(turns_drivers_off(policy) for policy in change.history.policies(change.writer) if policy is not None)
    return (gone or off) and (machine is None or not users_of(machine))


def failures_are_not_laundered(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Call no node done that failed, or lost its state with a driver of which that was not known yet, and was neither validated
    since, nor sent into the queue, nor relabelled by somebody, nor robbed of the record that alone remembered that.
    """
    machines = world.watch.machines
    if change.after.state is not State.DONE or change.before.state is State.DONE:
        return None
    if machines.machine(change.node) is None or machines.was_validated(change.node, change.writer.known["pods"]):
        return None  # a patch may fold the validation: a validator has seen the driver that runs, as far as could be known
    if _is_sent_back(change):
        return None
    later = change.after
    for sight in change.history.cordons(change.node, change.before.version):
        if sight.uid != change.after.uid or (later.writer is None and _memory(later) != _memory(sight)):
            return None
        if sight.state in (State.UPGRADE_REQUIRED, State.DONE):
            return None
        if sight.state is State.VALIDATION_REQUIRED and later.state in (State.UNCORDON_REQUIRED, State.DONE):
            return None
        if sight.state is State.FAILED:
            return f"it failed, at version {sight.version}"
        left = later.state is State.UNKNOWN and not world.watch.is_overwritten(change.node)
        if left and sight.state in (State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED):
            return f"it left in {sight.state}, at version {later.version}"
        later = sight
    return None


def _is_sent_back(change: NodeChange) -> bool:
    """Tell whether a patch folds the way through the queue of a node that failed before its driver was touched, as people want
    that driver again.
    """
    before, after = change.before.memory(), change.after.memory()
    if before is None or after is None or before.failure is None or before.failure.state not in UNDISTURBED:
        return False
    return bool(before.target) and before.target != after.target


def _memory(sight: Sight) -> str:
    """Return what tells how a node stands: its label, or the record that the operator keeps where it may not label it."""
    return sight.label or sight.record


def done_is_what_is_loaded(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Call no node done that was on its way, or waited to be, while its machine has another driver than a DaemonSet asks for."""
    before = change.before.state
    if change.after.state is not State.DONE or before in (None, State.DONE, State.UNKNOWN):
        return None
    if change.before.memory() is None or _was_left_so(change):
        return None  # NVIDIA's operator left it so, and its label is believed
    if world.has_stray_driver_pod(change.node):
        return None
    loaded = world.watch.machines.loaded_since(change.node, change.writer.known["pods"])
    record = change.after.memory()
    decided = record.since - world.offset if record is not None else math.inf
    if not loaded or loaded & world.watch.digests_known_to(change.writer, decided):
        return None
    return f"{before} -> upgrade-done, and what is loaded is {', '.join(sorted(loaded)) or 'nothing'}"


def _was_left_so(change: NodeChange) -> bool:
    """Tell whether somebody else than an operator put a node that it knew nothing of into the state in which it was."""
    sights = change.history.cordons(change.node, change.before.version)
    *_, entered = takewhile(lambda sight: sight.state is change.before.state, sights)
    return entered.writer is None and entered.memory() is None


NODE_RULES: tuple[NodeRule, ...] = (
    labels_are_nvidias, moves_are_legal, the_record_names_the_label, foreign_cordons_stay, who_starts_is_in_the_ledger,
    parallel_limit_holds, unavailable_limit_holds, domains_hold, nobody_starts_who_must_wait, failures_are_not_laundered,
    done_is_what_is_loaded, a_driver_goes_no_further_than_the_canary_before_it_runs, nobody_starts_outside_the_windows,
    *said.NODE_RULES, *patience.NODE_RULES,
)


# Pods.


def digest_of(pod_spec: Object) -> str:
    """Return the driver configuration digest in a pod's spec."""
    for container in (*(pod_spec.get("initContainers") or ()), *pod_spec["containers"]):
        for entry in container.get("env") or ():
            if entry["name"] == names.DRIVER_CONFIG_DIGEST:
                return str(entry.get("value") or "")
    return ""


def forbidden_to_go(pod: Object, process: Process, world: SimulatedWorld) -> str | None:
    """Say why a pod must not have been evicted."""
    name, owner = pod["metadata"]["name"], _controller(pod)
    if owner == "DaemonSet":
        return f"{name} is a DaemonSet's"
    if names.MIRROR_POD in (pod["metadata"].get("annotations") or {}):
        return f"{name} is static"
    node, history = pod["spec"].get("nodeName") or "", world.watch.history
    policies = [*known_policies(process, history, node), *kept_policies(process, history, node)]
    rules: list[PodDeletionSettings | DrainSettings] = []
    for policy in policies:
        if policy is not None:
            rules += [policy.pod_deletion, *([policy.drain] if policy.drain.enable else [])]
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        return None  # it has ended: there is nothing to lose, and a drain takes it as `kubectl drain` does
    if not owner and not any(rule.force for rule in rules):
        return f"{name} has no controller, and force is not set"
    if _has_empty_dir(pod) and not any(rule.delete_empty_dir for rule in rules):
        return f"{name} has an emptyDir volume, and deleteEmptyDir is not set"
    return None


def forbidden_to_kill(pod: Object, process: Process, world: SimulatedWorld) -> str | None:
    """Say why a pod must not have been deleted past the eviction API."""
    return None if world.may_kill else f"{pod['metadata']['name']} was deleted, and killAtDeadline was never set"


def _controller(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["kind"] for owner in owners if owner.get("controller")), "")


def owner_of(pod: Object) -> str:
    """Return the controller of a pod, or the pod itself where it has none."""
    owners = pod["metadata"].get("ownerReferences") or ()
    found = (f"{owner['kind']} {owner['name']}" for owner in owners if owner.get("controller"))
    return next(found, f"pod {pod['metadata']['name']}")


def _has_empty_dir(pod: Object) -> bool:
    return any("emptyDir" in volume for volume in pod["spec"].get("volumes") or ())
