"""People at the policies: limits, invalid edits, pauses, driver versions, gpuward's own settings."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tools.simulate.faults.kinds import End, kind
from tools.simulate.policies import BROKEN_LIMIT, VERSIONS, rollout_policy, upgrade_policy

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import World

Object = dict[str, Any]


def _random(world: World, fault: Fault) -> Random:
    return world.scenario.random(f"{fault.at}/{fault.kind}")


@kind("change-driver", weight=1)
def change_driver(world: World, fault: Fault) -> None:
    """Ask for another driver version, newer or older."""
    versions = [version for version in VERSIONS if version != world.driver_version()]
    version = versions[int(fault.pick * len(versions))]
    world.change_policy(lambda spec: spec["driver"].update(version=version))


@kind("change-template", weight=1)
def change_template(world: World, fault: Fault) -> None:
    """Change the driver's template in a way that leaves the driver what it is."""
    value = {"limits": {"memory": f"{1 + int(fault.level * 8)}Gi"}}
    world.change_policy(lambda spec: spec["driver"].update(resources=value))


@kind("change-labels", weight=0.5)
def change_labels(world: World, fault: Fault) -> None:
    """Change a label that all operands carry."""
    world.change_policy(lambda spec: spec["daemonsets"].setdefault("labels", {}).update(team=f"team-{int(fault.level * 5)}"))


@kind("change-limits", weight=3)
def change_limits(world: World, fault: Fault) -> None:
    """Draw another upgrade policy."""
    policy = upgrade_policy(_random(world, fault))

    def change(spec: Object) -> None:
        policy["autoUpgrade"] = spec["driver"]["upgradePolicy"].get("autoUpgrade", True)
        spec["driver"]["upgradePolicy"] = policy

    world.change_policy(change)


@kind("break-policy", weight=2, lasts=(5.0, 300.0))
def break_policy(world: World, fault: Fault) -> End:
    """Write a limit that cannot be followed, and correct it later."""
    before = world.upgrade_spec().get("maxUnavailable", "25%")
    world.change_policy(lambda spec: spec["driver"]["upgradePolicy"].update(maxUnavailable=BROKEN_LIMIT))

    def end() -> None:
        if world.upgrade_spec().get("maxUnavailable") == BROKEN_LIMIT:
            good = before if before != BROKEN_LIMIT else "25%"
            world.change_policy(lambda spec: spec["driver"]["upgradePolicy"].update(maxUnavailable=good))

    return end


@kind("pause", weight=2, lasts=(5.0, 600.0))
def pause(world: World, fault: Fault) -> End:
    """Turn automatic upgrades off for a while."""
    world.change_policy(lambda spec: spec["driver"]["upgradePolicy"].update(autoUpgrade=False))
    return lambda: world.change_policy(lambda spec: spec["driver"]["upgradePolicy"].update(autoUpgrade=True))


@kind("change-rollout-policy", weight=2)
def change_rollout_policy(world: World, fault: Fault) -> None:
    """Write gpuward's own settings anew."""
    world.set_rollout_policy(rollout_policy(_random(world, fault)))


@kind("remove-rollout-policy", weight=1)
def remove_rollout_policy(world: World, fault: Fault) -> None:
    """Take gpuward's own settings away."""
    world.remove_rollout_policy()
