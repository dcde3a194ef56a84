"""What has a rollout keep to the plan that somebody approved of: its driver is asked for again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from gpuward.model.versions import version_of
from gpuward.upgrade.approved_plan import driver_of
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.remedies import policy_fixes
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix
from gpuward.upgrade.remedies.question import Question
from gpuward.upgrade.remedies.rollback import take_back

replace = msgspec.structs.replace


def planned_driver(question: Question) -> Iterator[Fix]:
    """Ask for the driver version of the plan, where the policy asks for another one by its version."""
    case, node, plan = question.case, question.node, question.case.policy.rollout.approved_plan
    planned = plan.nodes.get(question.view.name) if plan is not None else None
    if plan is None or planned is None or planned.driver == driver_of(node):
        return
    version, asked = plan.versions.get(planned.driver, ""), node.next_target.version or node.target_version
    if not version or version == asked or _asked_for(case) != asked:
        return
    part = {"version": version}
    source = policy_fixes.driver_source(case)
    body = policy_fixes.as_json({"spec": part if case.policy.driver else {"driver": part}})
    # One version is another driver for each operating system and kernel.
    now = {each.node.name: driver_of(each) for each in gather(case.snapshot, case.policy)}
    fix = Fix(f"give {source} the driver version of the plan again ({version})", partial(_as_planned, version=version,
              now=now), f"kubectl patch {source} --type merge -p '{body}'")
    if node.driver is None or version_of(node.driver.driver_image) != version:
        yield fix
        return
    for back in take_back(question):  # the node has that driver: it starts no more
        yield replace(fix, change=back.change, risk=back.risk)


def _asked_for(case: DecisionFacts) -> str:
    """Return the version that the object says which the drivers come from: not all name one."""
    views = case.snapshot.drivers if case.policy.driver else case.snapshot.policies
    path = () if case.policy.driver else ("driver",)
    view = next((each for each in views if not each.deleting and each.name == (case.policy.driver or each.name)), None)
    found: object = view.body if view is not None else {}
    for key in ("spec", *path, "version"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _as_planned(case: DecisionFacts, version: str, now: Mapping[str, str]) -> DecisionFacts:
    """Return the facts once the nodes that were to get a driver of a version get it, and not what they would get now."""
    plan = case.policy.rollout.approved_plan
    if plan is None:
        return case
    nodes = {name: replace(place, driver=now.get(name, place.driver)) if plan.versions.get(place.driver) == version else place
             for name, place in plan.nodes.items()}
    rollout = replace(case.policy.rollout, approved_plan=replace(plan, nodes=nodes))
    return replace(case, policy=replace(case.policy, rollout=rollout))
