"""Which nodes wait for a wave that is not done before somebody has done something."""

from __future__ import annotations

from typing import Final

from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.waves import WaveNotDone
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.report.when import When, when_of
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.wave_nodes import is_unable

_STUCK: Final = (When.HELD, When.STOPPED, When.SKIPPED)
"""What is not over before somebody has done something."""


def behind_stuck_waves(plan: Plan, snapshot: Snapshot, policies: PoliciesInForce) -> frozenset[str]:
    """Return the nodes whose turn comes after a wave in which a node needs somebody, and which does without none of these."""
    awaited = {name: hold.what.wave for name, hold in plan.holds.items()
               if isinstance(hold.what, WaveNotDone) and when_of(plan.nodes[name]) is When.NEXT}
    if not awaited:
        return frozenset()
    unable, driver, known = set[str](), dict[str, str](), {each.driver for each in plan.waves}
    for policy in policies.upgrades:
        for node in gather(snapshot, policy):
            goes = node.moving.owner if node.moving is not None else policy.driver
            driver[node.node.name] = goes if goes in known else policy.driver
            given_up = node.record.given_up is not None and not node.retargeted
            if given_up or is_unable(node):  # its wave does not wait for it, once another one of it is done
                unable.add(node.node.name)
    held = {name for name, status in plan.nodes.items() if when_of(status) in _STUCK}
    stuck = set[tuple[str, str]]()
    for each in plan.waves:
        for wave in each.waves:
            left = set(wave.waiting)
            if held & left and (held & left - unable or (not wave.done and held >= left)):
                stuck.add((each.driver, wave.name))
    return frozenset(name for name, wave in awaited.items() if (driver.get(name), wave) in stuck)
