"""Sequences of changes of the policies: drawn from NVIDIA's schemas, and what the policies are after each of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path as File
from random import Random
from typing import Any, Final

import msgspec
import yaml

from gpuward import names
from gpuward.crd import decode, validate
from gpuward.crd.generate import all_crds
from gpuward.errors import PolicyError
from gpuward.operands.facts import ClusterFacts, NodeKernel
from gpuward.operands.render import render
from gpuward.sandbox.samples import IMAGES, sample_policy
from tools.oracle.values import BRANCHES, CONFIG_MAPS, DRIVERS, KEYS, Path, Schema, places, value

Object = dict[str, Any]

POLICY: Final = "cluster-policy"
DEFAULT: Final = "default"
POOLS: Final = ("a", "b")
"""NVIDIADrivers for the nodes labelled `pool: <name>`; the one named `default` is for all others."""
MODES: Final[tuple[tuple[Path, tuple[Any, ...]], ...]] = (
    (("driver", "enabled"), (True, False)), (("driver", "useNvidiaDriverCRD"), (True, True, False)),
    (("driver", "usePrecompiled"), (True, False)), (("driver", "version"), (*DRIVERS, *BRANCHES)),
    (("driver", "upgradePolicy", "autoUpgrade"), (True, True, False)),
    (("sandboxWorkloads", "enabled"), (True, False)), (("sandboxWorkloads", "mode"), ("kubevirt", "kata")),
    (("sandboxWorkloads", "defaultWorkload"), ("container", "vm-passthrough", "vm-vgpu")),
    (("vgpuManager",), ({"enabled": True, "repository": "registry.example", "image": "vgpu-manager", "version": "580.1"},
                        {"enabled": False})),
    (("cdi",), ({}, {"enabled": False}, {"enabled": True, "nriPluginEnabled": True}, {"enabled": True, "default": True})),
    (("psa", "enabled"), (True, False)), (("daemonsets", "updateStrategy"), ("RollingUpdate", "OnDelete")),
    (("mig", "strategy"), ("none", "single", "mixed")), (("operator", "runtimeClass"), ("nvidia", "nvidia-legacy")),
    (("hostPaths",), ({}, {"rootFS": "/host"}, {"driverInstallDir": "/opt/driver"})),
    (("devicePlugin", "config"), ({}, {"name": CONFIG_MAPS[0], "default": KEYS[0]}, {"name": CONFIG_MAPS[1], "default": ""})),
    (("migManager", "config"), ({"name": "", "default": "all-disabled"}, {"name": CONFIG_MAPS[0], "default": ""})),
)
"""What changes which objects there are: drawn more often than its share of the fields."""
IMMUTABLE: Final = ("driverType", "usePrecompiled")
FACTS: Final = ClusterFacts(
    namespace=names.DEFAULT_NAMESPACE, os_tag="ubuntu22.04", host_os_tag="ubuntu22.04", has_gpu_nodes=True,
    has_service_monitor_crd=True,
    kernels=(NodeKernel("5.15.0-101-generic", "ubuntu22.04", "ubuntu22.04"),),
    config_maps=dict.fromkeys(CONFIG_MAPS, KEYS), secrets=frozenset(CONFIG_MAPS))
AT_ONCE: Final = 0.0
MOMENTS: Final = (1.0, 5.0, 20.0, 60.0, 180.0)
"""Seconds after which the next change comes although the cluster does not rest yet."""
REST: Final = -1.0


class Change(msgspec.Struct, frozen=True):
    """Set or remove a field of the ClusterPolicy, or of an NVIDIADriver; without a path, make an NVIDIADriver or delete it."""

    driver: str = ""
    path: Path = ()
    to: Any = None
    """None where the field is removed, or the NVIDIADriver deleted."""
    after: float = REST
    """Seconds until the next change."""

    def __str__(self) -> str:
        what = f"NVIDIADriver {self.driver}" if self.driver else "ClusterPolicy"
        done = "removed" if self.to is None else f"= {self.to!r}"
        then = {REST: "and rest", AT_ONCE: "with the next"}.get(self.after, f"and {self.after:g} s")
        return f"{what} {'.'.join(self.path)} {done}, {then}"


class Wanted(msgspec.Struct, frozen=True):
    """Hold the specs of all policies at one time."""

    policy: Object
    drivers: Mapping[str, Object] = {}


class Sequence(msgspec.Struct, frozen=True):
    """Hold one run: what the cluster has, and the changes."""

    seed: int
    monitors: bool
    """Whether ServiceMonitors are installed."""
    workload: str
    """What one of the nodes is for, by its label; empty without a label."""
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        has = f"{'ServiceMonitors' if self.monitors else 'no ServiceMonitors'}, gpu-2 for {self.workload or 'nothing special'}"
        numbered = (f"  {number}. {change}" for number, change in enumerate(self.changes, 1))
        return "\n".join([f"seed {self.seed}: {has}", *numbered])

    def steps(self) -> Iterator[tuple[Wanted, tuple[Change, ...]]]:
        """Yield what is wanted after each of the changes that come together, and these."""
        wanted, together = start(), list[Change]()
        for change in self.changes:
            wanted = changed(wanted, change)
            together.append(change)
            if change.after != AT_ONCE:
                yield wanted, tuple(together)
                together = []
        if together:
            yield wanted, tuple(together)

    @property
    def last(self) -> Wanted:
        """Return what is wanted in the end."""
        wanted = start()
        for change in self.changes:
            wanted = changed(wanted, change)
        return wanted


@cache
def schema(kind: str) -> Schema:
    """Return the schema of the spec of a kind."""
    crd = next(crd for crd in all_crds() if crd["spec"]["names"]["kind"] == kind)
    found: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def start() -> Wanted:
    """Return what is wanted first."""
    return Wanted(sample_policy()["spec"])


def example_driver() -> Object:
    """Return the spec of the example NVIDIADriver."""
    file = File(__file__).parents[2] / "examples" / "nvidiadriver.yaml"
    spec: Object = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
    return spec


def changed(wanted: Wanted, change: Change) -> Wanted:
    """Return what is wanted after a change; one of an NVIDIADriver that is not there changes nothing."""
    if not change.driver:
        return msgspec.structs.replace(wanted, policy=_with(wanted.policy, change.path, change.to))
    drivers = dict(wanted.drivers)
    if not change.path and change.to is None:
        drivers.pop(change.driver, None)
    elif not change.path:
        drivers.setdefault(change.driver, change.to)
    elif change.driver in drivers:
        drivers[change.driver] = _with(drivers[change.driver], change.path, change.to)
    return msgspec.structs.replace(wanted, drivers=drivers)


def _with(spec: Object, path: Path, to: Any) -> Object:
    whole = copy.deepcopy(spec)
    inner, (*way, last) = whole, path
    for key in way:
        inner = inner.setdefault(key, {})
    if to is None:
        inner.pop(last, None)
    else:
        inner[last] = copy.deepcopy(to)
    return whole


def can_be_followed(wanted: Wanted) -> bool:
    """Tell whether all policies are valid, and no two of them contradict each other."""
    try:
        policy = decode.cluster_policy(policy_object(wanted.policy))
        drivers = [decode.nvidia_driver(driver_object(name, spec)) for name, spec in wanted.drivers.items()]
        if validate.cluster_policy(policy) or any(map(validate.nvidia_driver, drivers)):
            return False
        states = render(policy, FACTS, IMAGES)
    except PolicyError:
        return False
    claims = [(driver.spec.default, *sorted(driver.spec.node_selector.items())) for driver in drivers]
    return all(state.error is None for state in states) and len(claims) == len(set(claims))


def policy_object(spec: Object) -> Object:
    """Return the ClusterPolicy with a spec."""
    return {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": POLICY}, "spec": spec}


def driver_object(name: str, spec: Object) -> Object:
    """Return an NVIDIADriver with a spec."""
    return {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": name}, "spec": spec}


def draw(seed: int, most: int = 6) -> Sequence:
    """Draw a sequence of changes: some that nobody can follow are among them, but the last policies can be followed."""
    random = Random(f"sequence {seed}")
    wanted, changes = start(), list[Change]()
    length = random.randint(1, most)
    while len(changes) < length:
        change = _change(random, wanted)
        after = changed(wanted, change)
        if after == wanted or (not can_be_followed(after) and random.random() < 0.9):
            continue
        wanted = after
        changes.append(change)
    found = Sequence(seed, random.random() < 0.5, random.choice(("", "", "", "vm-passthrough", "container")), tuple(changes))
    while not can_be_followed(found.last):
        found = msgspec.structs.replace(found, changes=found.changes[:-1])
    return found


def _change(random: Random, wanted: Wanted) -> Change:
    kind, after = random.random(), random.choice((AT_ONCE, REST, REST, random.choice(MOMENTS)))
    if kind < 0.3:
        path, choices = random.choice(MODES)
        return Change("", path, random.choice(choices), after)
    if kind < 0.5:
        return _driver_change(random, wanted, after)
    fields = [place for place in places(schema("ClusterPolicy")) if kind > 0.6 or place[0][-1] == "enabled"]
    path, of_field = random.choice(fields)
    if random.random() < 0.1 and path[0] not in schema("ClusterPolicy")["required"]:
        return Change("", path[:random.randint(1, len(path))], None, after)
    return Change("", path, value(random, of_field, path), after)


def _driver_change(random: Random, wanted: Wanted, after: float) -> Change:
    name = random.choice((DEFAULT, *POOLS))
    if name not in wanted.drivers:
        chosen: Object = {"default": True} if name == DEFAULT else {"default": False, "nodeSelector": {"pool": name}}
        spec = {**example_driver(), "version": random.choice(DRIVERS), "usePrecompiled": random.random() < 0.3, **chosen}
        return Change(name, (), spec, after)
    if random.random() < 0.25:
        return Change(name, (), None, after)
    fields = [place for place in places(schema("NVIDIADriver")) if place[0][0] not in IMMUTABLE]
    version: tuple[Path, Schema] = ("version",), schema("NVIDIADriver")["properties"]["version"]
    path, of_field = random.choice(fields) if random.random() < 0.7 else version
    if random.random() < 0.1 and path[0] not in ("version", "nodeSelector", "default"):
        return Change(name, path, None, after)
    return Change(name, path, value(random, of_field, path), after)
