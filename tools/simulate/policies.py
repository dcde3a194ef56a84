"""Draw policies: valid ones, and what makes one invalid."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any, Final

import msgspec

from gpuward.crd.generate import all_crds
from gpuward.sandbox.samples import sample_policy
from tools.simulate.prometheus import check

Object = dict[str, Any]

NVIDIA_DRIVERS: Final = "nvidiadrivers.nvidia.com"
VERSIONS: Final = ("595.91.07", "595.91.08", "600.10.01", "600.20.02")
BROKEN_LIMIT: Final = "abc"
"""A value of maxUnavailable that the CRD lets pass and nobody can follow."""
TOO_LARGE: Final[Object] = {"requests": {"cpu": "1000"}}
"""Resources of a driver that no machine has."""

EVERY: Final = 10
"""Minutes from one opening of a drawn window to the next."""
WINDOWS: Final[tuple[tuple[Object, ...], ...]] = tuple(
    tuple({"kind": kind, "schedule": f"*/{EVERY} * * * *", "duration": f"{minutes}m"} for kind, minutes in drawn)
    for drawn in ((("Allow", 4),), (("Deny", 5),), (("Allow", 6), ("Deny", 2))))
"""All that begin do so together, so that one line tells whether a moment is inside."""

RACK: Final = "example.com/rack"
"""The label by which nodes are in domains."""
RACKS: Final = 2

BROKEN_SETTINGS: Final[tuple[Object, ...]] = ({"retryBackoff": "soon"}, {"deadlines": {"sleeping": "1m"}})
"""What a RolloutPolicy may say only where its CRD is of another version, and nobody can follow."""


def loosened(crd: Object) -> Object:
    """Return a CRD as another version may have it: that of the RolloutPolicy accepts what this operator cannot follow."""
    if crd["spec"]["names"]["kind"] != "RolloutPolicy":
        return crd
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return crd


def policy_in_force(policies: Iterable[Object]) -> Object | None:
    """Return which of several ClusterPolicies is followed, as is documented: the oldest that is not being deleted."""
    living = [policy for policy in policies if not policy["metadata"].get("deletionTimestamp")]
    return min(living, key=lambda policy: (policy["metadata"]["creationTimestamp"], policy["metadata"]["name"]), default=None)


def rack_of(node: str) -> str:
    """Return the rack of a node: each has nodes of every pool."""
    return f"rack-{sum(node.encode()) // 2 % RACKS}"


def is_broken(spec: Object) -> bool:
    """Tell whether a RolloutPolicy's spec cannot be followed."""
    return any(spec.get(field) == value for broken in BROKEN_SETTINGS for field, value in broken.items())


def upgrade_policy(random: Random) -> Object:
    """Draw a valid upgrade policy."""
    policy: Object = {
        "autoUpgrade": True,
        "maxParallelUpgrades": random.choice((1, 1, 2, 3, 5, 0)),
        "maxUnavailable": random.choice(("25%", "50%", "100%", 1, 2, 3)),
        "podDeletion": {"force": random.random() < 0.5, "deleteEmptyDir": random.random() < 0.5,
                        "timeoutSeconds": random.choice((30, 60, 300, 0))},
    }
    if random.random() < 0.5:
        policy["drain"] = {"enable": True, "force": random.random() < 0.5, "deleteEmptyDir": random.random() < 0.5,
                           "timeoutSeconds": random.choice((60, 300))}
    if random.random() < 0.4:
        policy["waitForCompletion"] = {"podSelector": "app=training", "timeoutSeconds": random.choice((0, 60, 600))}
    return policy


def rollout_policy(random: Random) -> Object:
    """Draw a valid spec of a RolloutPolicy."""
    spec: Object = {"failureBudget": {"nodes": random.choice((0, 0, 1, 3)), "percent": random.choice((0, 0, 10, 50))},
                    "retries": random.choice((0, 1, 3, 5)), "retryBackoff": random.choice(("10s", "1m")),
                    "discoveryGrace": random.choice(("30s", "10m")),
                    "deviceHolders": random.choice(("Hold", "Evict", "Ignore")), "killAtDeadline": random.random() < 0.3}
    if random.random() < 0.4:
        spec["domains"] = {"key": RACK, "mode": random.choice(("Spread", "Whole")), "max": random.choice((1, 1, 2))}
    if random.random() < 0.5:
        spec["deadlines"] = {"pod-restart-required": random.choice(("2m", "5m", "30m")),
                             "validation-required": random.choice(("1m", "5m")), "pod-deletion-required": "5m"}
    # Each of its own, so that what else is drawn stays as it was.
    order = _order(Random(repr(spec)))
    later = _noticed(Random(f"{spec!r}, notice")) | _together(Random(f"{spec!r}, gangs"))
    return spec | order | _newer(order, Random(f"{spec!r}, newer")) | later


def _together(random: Random) -> Object:
    """Draw for how long gangs are spared, or nothing of that."""
    return {"gangs": gangs(random)} if random.random() < 0.25 else {}


def gangs(random: Random) -> Object:
    """Draw for how long gangs are spared."""
    return {"mode": "Together", "until": random.choice(("0s", "30s", "4m", "10m"))}


def _noticed(random: Random) -> Object:
    """Draw how long before pods are evicted they are told, or nothing of that."""
    return {"notice": notice(random)} if random.random() < 0.25 else {}


def _newer(spec: Object, random: Random) -> Object:
    """Draw what came later besides."""
    newer: Object = {}
    if spec.get("waves"):
        first, *others = spec["waves"]
        more: Object = {"approval": "Required"} if random.random() < 0.3 else {}
        more |= {"analysis": checks(random)} if random.random() < 0.4 else {}
        newer["waves"] = [{**first, **more}, *others]
    drawn = {"opportunistic": opportunistic, "prestage": prestage, "undrainable": undrainable}
    return newer | {field: draw(random) for field, draw in drawn.items() if random.random() < 0.25}


def checks(random: Random) -> list[Object]:
    """Draw the checks of a wave."""
    found = [check(random.choice(("10s", "20s")), random.choice(("0s", "15s", "1m")), random.choice((1, 1, 2)))]
    if random.random() < 0.2:
        found.append({"name": "disk", "nodeConditions": [{"type": "DiskPressure"}], "interval": "10s", "for": "10s"})
    return found


def opportunistic(random: Random) -> Object:
    """Draw how long nodes wait until nobody uses them."""
    idle, until = random.choice((("5s", "1m"), ("5s", "4m"), ("30s", "4m"), ("30s", "10m"), ("2m", "10m")))
    return {"idleFor": idle, "until": until}


def prestage(random: Random) -> Object:
    """Draw how images are brought onto nodes."""
    return {"mode": "Image", "parallel": random.choice((1, 2, 10)), "onFailure": random.choice(("Hold", "Hold", "Ignore"))}


def notice(random: Random) -> Object:
    """Draw how long before pods are evicted they are told."""
    return {"before": random.choice(("10s", "10s", "10s", "30s", "1m", "2m")),
            "acknowledge": random.choice(("Optional", "Required"))}


def undrainable(random: Random) -> Object:
    """Draw what becomes of a node whose pods cannot be moved."""
    return {"behaviour": random.choice(("Skip", "Quarantine", "Quarantine", "Fail", "Hold")),
            "after": random.choice(("20s", "1m", "3m")), "maxQuarantined": random.choice((0, 1, 1, 2))}


def seconds(duration: str) -> float:
    """Return a duration of those that are drawn in seconds."""
    return float(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


def _order(random: Random) -> Object:
    """Draw waves, growth and windows, or none."""
    spec: Object = {}
    if random.random() < 0.4:
        canary: Object = {"name": "canary", "nodes": random.choice((1, 1, 2, "10%", "50%"))}
        if random.random() < 0.3:
            canary["soak"] = random.choice(("10s", "1m", "5m"))
        if random.random() < 0.1:
            canary["approval"] = "Required"
        more: Object = {"name": "more", "nodes": random.choice((2, "50%")), "maxUnavailable": random.choice((1, "50%")),
                        "failureBudget": {"nodes": random.choice((0, 1))}}
        spec["waves"] = [canary, more] if random.random() < 0.5 else [canary]
        own = Random(repr(spec["waves"]))  # of its own, so that what else is drawn of a seed stays as it was
        if own.random() < 0.4:
            canary["windows"] = list(own.choice(WINDOWS))
    if random.random() < 0.25:
        spec["growth"] = {"start": random.choice((1, 2)), "factor": random.choice((1, 2, 3))}
    if random.random() < 0.3:
        spec["interop"] = {"nvsentinel": random.random() < 0.7, "slurm": random.random() < 0.7}
        # Of its own, so that what else is drawn of a seed stays as it was.
        spec["interop"]["nodeConditions"] = Random(repr(spec)).random() < 0.6
    if random.random() < 0.25:
        spec |= {"windows": list(random.choice(WINDOWS)), "windowFit": random.choice(("Off", "P90"))}
    return spec


@cache
def first_policy() -> bytes:
    """Return the ClusterPolicy that runs begin with, as JSON."""
    return msgspec.json.encode(sample_policy())


@cache
def crds() -> tuple[Object, ...]:
    """Make the CRDs once for all runs of a process; a sandbox keeps copies."""
    return tuple(map(loosened, all_crds()))


def follow_again(spec: Object) -> None:
    """Take back what made a ClusterPolicy one that cannot be followed."""
    spec.update(sandboxWorkloads={"enabled": False}, cdi={"enabled": True, "nriPluginEnabled": False})
