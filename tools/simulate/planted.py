"""Defects that were there once, or might be, planted on purpose, in this process only: whether the rules would see them.

Each one undoes the mend where it was made, or takes a safeguard away. A developer's tool: nothing of it is in the operator.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

Make = Callable[[Any], Any]
Place = tuple[str, str]
"""A module, or a class in one behind a colon, and the name of what is replaced there."""


class NotThere(Exception):
    """Say that what a defect undoes is not there: the code has moved on, and the defect has to be written anew."""


def _without_new_accounts(original: Any) -> Any:
    def apply(wanted: Any, snapshot: Any, state: str) -> Any:
        known = wanted.key not in snapshot.owned and wanted.key in snapshot.applied
        return None if known and wanted.key[0] == "ServiceAccount" else original(wanted, snapshot, state)

    return apply


def _by_discovery(original: Any) -> Any:
    from gpuward import names

    def node_selector(variant: Any) -> dict[str, str]:
        return {} if variant.kernel is None else {names.NFD_KERNEL: variant.kernel.version}

    return property(node_selector)


def _without(name: str) -> Make:
    return lambda rules: tuple(rule for rule in rules if rule.__name__ != name)


def _always(value: Any) -> Make:
    return lambda original: lambda *args, **kwargs: value


def _of(value: Any) -> Make:
    return lambda original: value


def _empty(original: Any) -> Any:
    return property(lambda variant: {})


def _unbounded(original: Any) -> Any:
    return lambda moment: moment.timestamp()


def _unguarded(original: Any) -> Any:
    def held_on_error(node: Any, decision: Callable[[], Any], policy: Any) -> Any:
        from gpuward.upgrade.node_decision import node_decision

        return node_decision(node, decision(), policy)

    return held_on_error


def _selector_of_before(original: Any) -> Any:
    """Return the property under its other name, so that nodes are selected as they are by the mended code."""
    from gpuward.operands.driver.kernels import Variant

    if "selector" not in Variant.__dict__:
        raise NotThere("Variant has no selector")
    mended = Variant.__dict__["selector"].fget
    return property(lambda variant: mended(variant))


def _unapproved(original: Any) -> Any:
    def waits_after(gate: Any, *args: Any, **kwargs: Any) -> Any:
        return original(gate, *args, **{**kwargs, "approved": True}) if not gate.wave.approval else None

    return waits_after


def _all_states(original: Any) -> Any:
    from gpuward.model.states import State

    return frozenset(State)


def _with_gpus(original: Any) -> Any:
    def staging_pod(*args: Any) -> Any:
        made = original(*args)
        for container in made["spec"]["containers"]:
            container["resources"] = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
        return made

    return staging_pod


def _windows_of_rollout(original: Any) -> Any:
    return lambda fleet, node: (fleet.windows, "")


def _nothing_measured(original: Any) -> Any:
    from gpuward.upgrade.analysis import NO_ANALYSIS

    return lambda *args, **kwargs: NO_ANALYSIS


PLANTS: Final[Mapping[str, tuple[tuple[Place, Make], ...]]] = {
    "accounts-are-never-made-again": (
        (("gpuward.operands.changes", "_apply"), _without_new_accounts),),
    "queue-asks-for-the-pod-alone": (
        (("gpuward.upgrade.admission", "_is_loaded"), _always(True)),
        (("gpuward.upgrade.admission", "_is_stuck"), _always(False)),),
    "owners-change-at-once": (
        (("gpuward.model.placement:Placements", "_tears"), _always(False)),),
    "drivers-follow-discovery": (
        (("gpuward.operands.driver.kernels:Variant", "selector"), lambda original: original),
        (("gpuward.operands.driver.kernels:Variant", "node_selector"), _by_discovery),),
    "kernels-share-a-selector": (
        (("gpuward.operands.driver.kernels:Variant", "node_selector"), _selector_of_before),
        (("gpuward.operands.driver.kernels:Variant", "selector"), _empty),
        (("gpuward.operands.driver.kernels", "_is_taken"), _always(False)),),
    "rollouts-go-on-without-a-policy": (
        (("gpuward.policy.clusterpolicy", "_absent"), _always("")),),
    "failures-are-laundered": (
        (("gpuward.model.record", "left_unvalidated"), _always(False)),
        (("gpuward.upgrade.done_or_failed", "left_unvalidated"), _always(False)),),
    "what-is-refused-is-followed": (
        (("gpuward.crd.validate", "_cdi"), lambda original: original),
        (("gpuward.crd.validate", "_CLUSTER_POLICY_RULES"), _without("_cdi")),
        (("gpuward.model.workloads:WorkloadKeeper", "kept"), _always(None)),),
    "absurd-times-stop-all": (
        (("gpuward.model.reading", "seconds"), _unbounded),
        (("gpuward.model.record", "seconds"), _unbounded),
        (("gpuward.model.reading", "_LAST"), _of(float("inf"))),
        (("gpuward.upgrade.progress", "not_ahead"), lambda original: lambda record, now: record),
        (("gpuward.upgrade.node_decision", "held_on_error"), _unguarded),
        (("gpuward.upgrade.decide", "held_on_error"), _unguarded),),
    "evictions-have-no-back-off": (
        (("gpuward.upgrade.evicting:Eviction", "_before"), _always(None)),),
    "aborts-hold-nobody": (
        (("gpuward.upgrade.holding", "FLEET_GATES"), _without("rollout_aborted")),
        (("gpuward.upgrade.holding", "PERMITTING_GATES"), _without("rollout_aborted")),),
    "plans-hold-nobody": (
        (("gpuward.upgrade.holding", "FLEET_GATES"), _without("plan_differs")),
        (("gpuward.upgrade.holding", "PERMITTING_GATES"), _without("plan_differs")),),
    "approvals-are-not-waited-for": (
        (("gpuward.upgrade.wave_gates", "waits_after"), _unapproved),),
    "pauses-evict": (
        (("gpuward.upgrade.pausing", "_GENTLE"), _all_states),),
    "checks-are-not-measured": (
        (("gpuward.upgrade.waves", "analysis_of"), _nothing_measured),),
    "idle-nodes-are-not-waited-for": (
        (("gpuward.upgrade.holding", "FLEET_GATES"), _without("idle_awaited")),
        (("gpuward.upgrade.holding", "PERMITTING_GATES"), _without("idle_awaited")),
        (("gpuward.upgrade.uncordon", "evicts_nobody"), _always(False)),),
    "images-are-not-waited-for": (
        (("gpuward.upgrade.holding", "FLEET_GATES"), _without("image_not_staged")),
        (("gpuward.upgrade.holding", "PERMITTING_GATES"), _without("image_not_staged")),),
    "nobody-is-given-up": (
        (("gpuward.upgrade.drain", "gives_up_at"), _always(None)), (("gpuward.upgrade.drain", "given_up_at"), _always(None))),
    "pods-for-images-stay": (
        (("gpuward.upgrade.staging:_Stager", "_delete"), _always(None)),),
    "windows-of-waves-hold-nobody": (
        (("gpuward.upgrade.fleet:Fleet", "windows_of"), _windows_of_rollout),),
    "notices-hold-nobody": (
        (("gpuward.upgrade.decide", "held_by_notice"), _always(None)),),
    "notices-stay": (
        (("gpuward.controllers.planning", "with_notices_taken_back"), lambda original: lambda plan, *rest: plan),),
    "gangs-are-not-spared": (
        (("gpuward.upgrade.holding", "FLEET_GATES"), _without("gang_spared")),
        (("gpuward.upgrade.holding", "PERMITTING_GATES"), _without("gang_spared")),
        (("gpuward.upgrade.gang_sets", "PERMITTING_GATES"), _without("gang_spared")),),
    "pods-for-images-take-gpus": (
        (("gpuward.upgrade.staging", "staging_pod"), _with_gpus),),
}
"""What each defect replaces, by its name."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Put a defect back for a while; none under an empty name.

    Raises:
        NotThere: what it would undo is not there.
    """
    undo: list[tuple[Any, str, Any]] = []
    try:
        for (place, attribute), make in PLANTS[name] if name else ():
            owner = _owner(place)
            if attribute not in vars(owner):
                raise NotThere(f"{name}: {place} has no {attribute}")
            before = vars(owner)[attribute]
            undo.append((owner, attribute, before))
            setattr(owner, attribute, make(before))
        yield
    finally:
        for owner, attribute, before in reversed(undo):
            setattr(owner, attribute, before)


def _owner(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise NotThere(f"there is no {module}") from error
    return vars(found)[name] if name else found
