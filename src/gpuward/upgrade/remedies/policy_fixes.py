"""What people can do about a held node in the objects that configure upgrades: see `fixes`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from shlex import quote

import msgspec

from gpuward import names
from gpuward.model.policy import MaxUnavailable, UpgradePolicy
from gpuward.model.rollout import RolloutSettings
from gpuward.upgrade.limits import bounds_nothing
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix

DEFAULT_POLICY = "cluster-policy"
ROLLOUT_POLICY = "default"
replace = msgspec.structs.replace


def change_policy(case: DecisionFacts, do: str, fields: Mapping[str, object], policy: UpgradePolicy) -> Fix:
    """Return the fix that sets fields of `upgradePolicy`, as they are spelt there."""
    part = {"upgradePolicy": fields}
    body = {"spec": part if case.policy.driver else {"driver": part}}
    command = f"kubectl patch {driver_source(case)} --type merge -p '{as_json(body)}'"
    return Fix(do, partial(under, before=case.policy, after=policy), command)


def end_machines(case: DecisionFacts) -> Fix:
    """Return the fix after which no node is for virtual machines, so that upgrades are not off for these."""
    command = f"kubectl patch clusterpolicy {quote(case.policy.switches.machines)} --type merge -p "
    body = {"spec": {"sandboxWorkloads": {"enabled": False}}}
    do = "set sandboxWorkloads.enabled: false, if no node is to be for virtual machines"
    return Fix(do, partial(switched_on, machines=""), f"{command}'{as_json(body)}'")


def switched_on(case: DecisionFacts, **switches: str) -> DecisionFacts:
    """Return the facts once a switch is turned, which upgrades are on by if none keeps them off any more."""
    policy = replace(case.policy, switches=replace(case.policy.switches, **switches))
    found = policy.switches
    workloads = policy.workloads if found.machines or policy.workloads is None else replace(policy.workloads, enabled=False)
    return replace(case, policy=replace(policy, auto_upgrade=not (found.off or found.machines), workloads=workloads))


def driver_source(case: DecisionFacts) -> str:
    """Return the object that says which driver the nodes have, as kubectl takes it."""
    if case.policy.driver:
        return f"nvidiadriver {quote(case.policy.driver)}"
    active = next((each.name for each in case.snapshot.policies if not each.deleting), DEFAULT_POLICY)
    return f"clusterpolicy {quote(active)}"


def set_max_unavailable(case: DecisionFacts, count: int, total: int) -> Fix:
    """Return the fix that lets so many nodes be out of service."""
    policy = replace(case.policy, max_unavailable=MaxUnavailable(count=count))
    fix = change_policy(case, f"raise maxUnavailable to {count}", {"maxUnavailable": count}, policy)
    return fix.risking(_opened(policy, total))


def set_max_parallel(case: DecisionFacts, count: int, total: int) -> Fix:
    """Return the fix that lets so many upgrades be under way."""
    policy = replace(case.policy, max_parallel_upgrades=count)
    fix = change_policy(case, f"raise maxParallelUpgrades to {count}", {"maxParallelUpgrades": count}, policy)
    return fix.risking(_opened(policy, total))


def raise_both(case: DecisionFacts, unavailable: int, parallel: int, total: int) -> Fix:
    """Return the fix that raises both limits of the fleet, where each alone would leave the other in the way."""
    policy = replace(case.policy, max_unavailable=MaxUnavailable(count=unavailable), max_parallel_upgrades=parallel)
    do = f"raise maxParallelUpgrades to {parallel}, and maxUnavailable to {unavailable}"
    fields = {"maxParallelUpgrades": parallel, "maxUnavailable": unavailable}
    return change_policy(case, do, fields, policy).risking(_opened(policy, total))


def _opened(policy: UpgradePolicy, total: int) -> str:
    """Return what is risked by a limit that bounds nothing any more; nothing where one is left."""
    return "every GPU node may be out of service at once" if bounds_nothing(policy, total) else ""


def change_rollout(case: DecisionFacts, do: str, fields: Mapping[str, object], rollout: RolloutSettings) -> Fix:
    """Return the fix that sets fields of the RolloutPolicy in force, or makes one if there is none.

    One of another name beside it would be ignored, and to apply these fields alone would take away those applied before.
    """
    change = partial(under, before=case.policy, after=replace(case.policy, rollout=rollout))
    if (view := next((each for each in case.snapshot.rollout_policies if not each.deleting), None)) is not None:
        target = f"rolloutpolicy {quote(view.name)}"
        return Fix(do, change, f"kubectl patch {target} --type merge -p '{as_json({'spec': fields})}'")
    body = {"apiVersion": f"{names.GPUWARD_GROUP}/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": ROLLOUT_POLICY}}
    return Fix(do, change, f"echo '{as_json({**body, 'spec': fields})}' | kubectl apply --server-side -f -")


def resume(case: DecisionFacts, now: float) -> Fix:
    """Return the fix that forgives the failures so far."""
    rollout = replace(case.policy.rollout, resumed_at=now)
    change = partial(under, before=case.policy, after=replace(case.policy, rollout=rollout))
    command = "gpuward resume" + (f" --driver {quote(case.policy.driver)}" if case.policy.driver else "")
    return Fix("let the failures so far count no more, once their cause is mended", change, command)


def under(case: DecisionFacts, before: UpgradePolicy, after: UpgradePolicy) -> DecisionFacts:
    """Change what the two policies differ in, and keep what an earlier fix changed."""
    return replace(case, policy=_merged(case.policy, before, after))


def _merged(current: UpgradePolicy, before: UpgradePolicy, after: UpgradePolicy) -> UpgradePolicy:
    changed = {}
    for name in UpgradePolicy.__struct_fields__:
        old, new, now = getattr(before, name), getattr(after, name), getattr(current, name)
        if old == new:
            continue
        if isinstance(new, msgspec.Struct) and type(now) is type(new):
            inner = {key: getattr(new, key) for key in new.__struct_fields__ if getattr(old, key) != getattr(new, key)}
            changed[name] = replace(now, **inner)
        else:
            changed[name] = new
    return replace(current, **changed)


def as_json(body: Mapping[str, object]) -> str:
    """Return JSON for a command."""
    return msgspec.json.encode(body).decode()
