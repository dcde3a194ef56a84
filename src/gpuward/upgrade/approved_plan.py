"""The plan of a rollout as it is now, and in what it differs from the one that somebody approved of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpuward.model.approved_plan import ApprovedPlan, PlannedPlace, differences
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import RolloutSettings
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.node_decision import NodeDecision

_LIMITS: Final = ("max_parallel_upgrades", "max_unavailable", "wait_for_completion", "pod_deletion", "drain")
_NO_LIMITS: Final = frozenset({"approved", "promoted", "aborted", "resumed_at", "approved_plan", "analysis", "begun", "finish_by",
                               "discovery_grace", "interop"})
"""Settings that change nothing about which node starts when, or that tell what was said and measured while a rollout goes on."""


def plan_as_it_is(nodes: Iterable[NodeFacts], places: Mapping[str, int], policy: UpgradePolicy) -> ApprovedPlan:
    """Return the plan of a rollout, of all nodes that have a driver or are to lose one."""
    return ApprovedPlan(limits_of(policy), {node.node.name: _place(node, places, policy) for node in nodes if node.target})


def _place(node: NodeFacts, places: Mapping[str, int], policy: UpgradePolicy) -> PlannedPlace:
    waves = policy.rollout.waves
    at = places.get(node.node.name, len(waves))
    return PlannedPlace(driver_of(node), waves[at].name if at < len(waves) else "")


def what_differs(nodes: Sequence[NodeDecision], places: Mapping[str, int], policy: UpgradePolicy) -> tuple[str, ...]:
    """Say in what the rollout differs from the one that somebody approved of, if somebody did. A node that failed with a driver
    is tried again with it as planned.
    """
    approved = policy.rollout.approved_plan
    if approved is None:
        return ()
    begin = [node.before for node in nodes if node.waits and node.before.target
             and (node.before.record.failure is None or node.before.retargeted)]
    starting = {node.node.name: _place(node, places, policy) for node in begin}
    return tuple(differences(approved, limits_of(policy), starting, versions_of(begin)))


def versions_of(nodes: Iterable[NodeFacts]) -> dict[str, str]:
    """Return the version of each driver that nodes are to get, by what a plan knows it by, where it is known."""
    found = ((driver_of(node), node.next_target.version or node.target_version) for node in nodes if node.target)
    return {driver: version for driver, version in found if version}


def driver_of(node: NodeFacts) -> str:
    """Return what a plan knows the driver by that a node is to get, which may come from another DaemonSet."""
    return node.next_target.digest or node.target_digest or node.target


def limits_of(policy: UpgradePolicy) -> dict[str, str]:
    """Return the limits of a policy that differ from the defaults."""
    usual = UpgradePolicy()
    found: dict[str, tuple[Any, Any]] = {field: (getattr(policy, field), getattr(usual, field)) for field in _LIMITS}
    settings = [field for field in RolloutSettings.__struct_fields__ if field not in _NO_LIMITS]
    found |= {field: (getattr(policy.rollout, field), getattr(usual.rollout, field)) for field in settings}
    return {_as_written(field): _told(value) for field, (value, default) in found.items() if value != default}


def _as_written(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.title() for word in rest)


def _told(value: Any) -> str:
    simple = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    return msgspec.json.encode(simple, order="sorted").decode()
