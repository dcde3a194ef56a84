"""What may shorten a rollout, or free nodes that it does not get to: changes that people can make, to be rehearsed as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from gpuward.model.reasons import Reason
from gpuward.rehearse.captured import Object
from gpuward.rehearse.results import Run, blockers
from gpuward.rehearse.templates import Change
from gpuward.sandbox.cluster import Sandbox

MOST_BUDGETS: Final = 3
BUDGETS: Final = "poddisruptionbudgets.policy"
_POLICIES: Final = (("clusterpolicies.nvidia.com", ("spec", "driver", "upgradePolicy")),
                    ("nvidiadrivers.nvidia.com", ("spec", "upgradePolicy")))
_OF_LIMITS: Final = frozenset(map(str, (Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT, Reason.NO_NODE_MAY_START)))
_OF_BUDGET: Final = frozenset({str(Reason.BUDGET_BLOCKS), str(Reason.BUDGET_USED_UP), str(Reason.EVICTION_REFUSED)})


class Lever:
    """Hold a change, and how people would say it."""

    def __init__(self, do: str, change: Change) -> None:
        self.do, self.change = do, change


def levers(run: Run) -> Iterator[Lever]:
    """Yield the changes that answer to what nodes waited for in a run."""
    reasons = {one.reason for node in run.nodes for one in node.waited}
    if reasons & _OF_LIMITS:
        yield Lever("twice as many nodes at once: maxParallelUpgrades and maxUnavailable doubled", _twice)
    found = [one.whom.removeprefix("budget ") for one in blockers(run) if one.reason in _OF_BUDGET and one.whom]
    for budget in list(dict.fromkeys(found))[:MOST_BUDGETS]:
        yield Lever(f"one more pod may be away under disruption budget {budget}", _relaxed(budget))
    if str(Reason.PROTECTED_PODS) in reasons:
        yield Lever("podDeletion.force and deleteEmptyDir: pods go that nobody puts back, and data in emptyDir volumes",
                    lambda sandbox: _each_policy(sandbox, _forced))
    if str(Reason.WINDOW_SHUT) in reasons:
        yield Lever("no windows in the RolloutPolicy", _without_windows)


def _each_policy(sandbox: Sandbox, change: Callable[[dict[str, Any]], None]) -> None:
    for resource, path in _POLICIES:
        for policy in sandbox.store.list(resource):
            sandbox.store.modify(resource, None, policy["metadata"]["name"], partial(_change_at, path, change))


def _change_at(path: tuple[str, ...], change: Callable[[dict[str, Any]], None], obj: Object) -> None:
    for key in path:
        obj = obj.setdefault(key, {})
    change(obj)


def _twice(sandbox: Sandbox) -> None:
    def change(upgrades: dict[str, Any]) -> None:
        upgrades["maxParallelUpgrades"] = 2 * upgrades.get("maxParallelUpgrades", 1)
        limit = upgrades.get("maxUnavailable", "25%")
        upgrades["maxUnavailable"] = f"{min(100, 2 * int(limit[:-1]))}%" if isinstance(limit, str) and limit.endswith("%") \
            else 2 * int(limit)
    _each_policy(sandbox, change)


def _forced(upgrades: dict[str, Any]) -> None:
    upgrades["podDeletion"] = {**(upgrades.get("podDeletion") or {}), "force": True, "deleteEmptyDir": True}


def _without_windows(sandbox: Sandbox) -> None:
    for policy in sandbox.store.list("rolloutpolicies.gpuward.io"):
        sandbox.store.modify("rolloutpolicies.gpuward.io", None, policy["metadata"]["name"],
                             _take_windows)


def _take_windows(policy: Object) -> None:
    spec = policy.get("spec") or {}
    for each in (spec, *(spec.get("waves") or ())):
        each.pop("windows", None)


def _relaxed(budget: str) -> Change:
    namespace, _, name = budget.partition("/")

    def change(sandbox: Sandbox) -> None:
        if sandbox.store.find(BUDGETS, namespace, name) is not None:
            sandbox.store.modify(BUDGETS, namespace, name, lambda obj: _one_more(obj["spec"]))
    return change


def _one_more(spec: dict[str, Any]) -> None:
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if isinstance(least, int) and least > 0:
        spec["minAvailable"] = least - 1
    else:
        spec.pop("minAvailable", None)
        spec["maxUnavailable"] = most + 1 if isinstance(most, int) else 1
