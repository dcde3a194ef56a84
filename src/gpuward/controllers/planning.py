"""One decision for each upgrade policy in force, and one plan of them all: no two policies are about the same node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from typing import TypeVar

import msgspec

from gpuward.model.actions import Action, GrantNodes
from gpuward.model.departed import SOON
from gpuward.model.estimate import joined
from gpuward.model.plan import Counts, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.upgrade.conditions import with_conditions
from gpuward.upgrade.decide import Survey, settle, survey
from gpuward.upgrade.destinations import Fleets
from gpuward.upgrade.ledger import fitting
from gpuward.upgrade.maintenance import with_maintenances
from gpuward.upgrade.node_decision import DecisionCache
from gpuward.upgrade.notices import with_notices_taken_back
from gpuward.upgrade.removals import with_removals
from gpuward.upgrade.scope import concerns
from gpuward.upgrade.staging import with_staging
from gpuward.upgrade.waves_of_comers import coming_to_others, with_comers
from gpuward.upgrade.workloads import with_workloads

T = TypeVar("T")

AFTER_TROUBLE = 30.0
"""Seconds until a decision that failed is tried again unasked."""


class Planner:
    """Decide for every policy by itself: a bug that one of them brings to light holds its own nodes and no others."""

    def __init__(self) -> None:
        self._memories: dict[str, DecisionCache] = {}
        self._last: dict[str, Plan] = {}

    def decide(self, snapshot: Snapshot, policies: Sequence[UpgradePolicy], now: float) -> Plan:
        """Return the plan for the fleet. With a single policy an error is raised as it is."""
        drivers = {policy.driver for policy in policies}
        self._memories = {name: self._memories.get(name) or DecisionCache() for name in drivers}
        if len(policies) == 1:
            (policy,) = policies
            alone = survey(snapshot, policy, now, self._memories[policy.driver])
            plan = _settled(snapshot, alone, now, Fleets([(alone.policy, alone.fleet)]))
            self._last = {policy.driver: plan}
            return _with_more(_of_nobody(plan, policy), snapshot, [alone], now)
        troubles: dict[str, str] = {}
        found = {policy.driver: _tried(policy, troubles, partial(survey, snapshot, policy, now, self._memories[policy.driver]))
                 for policy in policies}
        # Nodes that go to a policy that cannot be surveyed are on their way there all the same.
        coming = coming_to_others((each for each in found.values() if each is not None), drivers)
        found = {name: None if each is None else _tried(each.policy, troubles, partial(with_comers, each, coming, snapshot))
                 for name, each in found.items()}
        fleets = Fleets(((each.policy, each.fleet) for each in found.values() if each is not None), troubles)
        plans = {name: None if each is None else _tried(each.policy, troubles, partial(_settled, snapshot, each, now, fleets))
                 for name, each in found.items()}
        self._last = {name: self._waiting(name, troubles[name], now) if plan is None else plan for name, plan in plans.items()}
        return self._staged(snapshot, policies, [each for each in found.values() if each is not None], troubles, now)

    def _staged(
        self, snapshot: Snapshot, policies: Sequence[UpgradePolicy], found: Sequence[Survey], troubles: dict[str, str], now: float
    ) -> Plan:
        """Return the plan of all policies with what brings images onto nodes. It comes onto so many at once, whosever they are:
        all are decided about together; if that fails each policy is tried alone, to hold those that bring it about.
        """
        sound = [each for each in found if each.policy.driver not in troubles]
        lost = [policy for policy in policies if policy.driver in troubles]
        undecided = frozenset(node.name for node in snapshot.nodes.values() if any(concerns(policy, node) for policy in lost))
        try:
            return _with_more(merged(self._last.values()), snapshot, sound, now, undecided)
        except Exception:
            for each in sound:
                driver = each.policy.driver
                _tried(each.policy, troubles, partial(_with_more, self._last[driver], snapshot, [each], now))
            if troubles.keys().isdisjoint(each.policy.driver for each in sound):
                raise
        self._last |= {name: self._waiting(name, why, now) for name, why in troubles.items()}
        return self._staged(snapshot, policies, sound, troubles, now)

    def _waiting(self, driver: str, trouble: str, now: float) -> Plan:
        waiting = self._last.get(driver, Plan()).waiting()
        return msgspec.structs.replace(waiting, wake_at=now + AFTER_TROUBLE, troubles={driver: trouble})


def _settled(snapshot: Snapshot, found: Survey, now: float, fleets: Fleets) -> Plan:
    plan = with_workloads(settle(snapshot, found, now, fleets), snapshot, found.policy)
    plan = with_removals(plan, snapshot, found.policy, (node.standing for node in found.nodes))
    # Nobody turned the upgrades of an NVIDIADriver off that has just been deleted.
    return msgspec.structs.replace(plan, auto_upgrade=True) if found.policy.unseen == SOON and not found.policy.absent else plan


def _with_more(
    plan: Plan, snapshot: Snapshot, found: Sequence[Survey], now: float, undecided: Set[str] = frozenset()
) -> Plan:
    """Return a plan of all policies with what is done for nodes that wait: images come onto them, and notices are taken back. And
    with what other controllers are asked for, and told by the conditions of nodes.
    """
    plan = with_notices_taken_back(with_staging(plan, snapshot, found, now, undecided), snapshot, found, now, undecided)
    return with_conditions(with_maintenances(plan, snapshot, found, now, undecided), snapshot, found, undecided)


def _of_nobody(plan: Plan, policy: UpgradePolicy) -> Plan:
    """Return the only plan; without any NVIDIADriver there is nobody to turn upgrades off: nodes wait for one."""
    return msgspec.structs.replace(plan, auto_upgrade=True) if policy.unowned and not policy.absent else plan


def _tried(policy: UpgradePolicy, troubles: dict[str, str], work: Callable[[], T]) -> T | None:
    try:
        return work()
    except Exception as error:  # whatever it is, it is the trouble of this policy's nodes alone
        troubles[policy.driver] = f"{type(error).__name__}: {error}"
        return None


def merged(plans: Iterable[Plan]) -> Plan:
    """Return plans about different nodes as one."""
    plans = tuple(plans)
    if len(plans) == 1:
        return plans[0]
    fields = Counts.__struct_fields__
    counts = Counts(**{field: sum(getattr(plan.counts, field) for plan in plans) for field in fields})
    actions = [action for plan in plans for action in plan.actions]
    return Plan(
        actions=(*_granted(actions, counts.in_progress), *(each for each in actions if not isinstance(each, GrantNodes))),
        nodes={name: status for plan in plans for name, status in plan.nodes.items()},
        wake_at=min((plan.wake_at for plan in plans if plan.wake_at is not None), default=None),
        counts=counts,
        auto_upgrade=any(plan.auto_upgrade for plan in plans),
        estimate=joined(plan.estimate for plan in plans),
        troubles={name: why for plan in plans for name, why in plan.troubles.items()},
        waves=tuple(each for plan in plans for each in plan.waves),
    )


def _granted(actions: Iterable[Action], in_progress: int) -> tuple[Action, ...]:
    """Return one entry into the ledger for all. Grants without meaning wait for company while any rollout goes on."""
    grants = [action for action in actions if isinstance(action, GrantNodes)]
    add = fitting((name, stamp) for each in grants for name, stamp in each.add.items())
    drop = tuple(sorted({name for each in grants for name in each.drop} - add.keys()))
    urgent = any(each.urgent for each in grants)
    if not add and not urgent and (in_progress or not drop):
        return ()
    return (GrantNodes(add, drop, next(each.why for each in grants if each.add or not add), urgent and not add),)
