"""Play a sequence of changes in a sandbox, in virtual time, and compare the cluster with a fresh install of the last policies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from tests.journeys.stage import Stage, playing

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.fleet import fleet
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.timeloop import run_virtual
from tools.oracle.compare import KINDS, Key, compared, differences
from tools.oracle.history import DEPENDENCES
from tools.oracle.sequence import IMMUTABLE, POLICY, POOLS, REST, Sequence, Wanted, driver_object, policy_object, start
from tools.oracle.values import CONFIG_MAPS, KEYS

Object = dict[str, Any]

QUIET: Final = 240.0
"""Seconds without a write of the operator after which the cluster rests: longer than any pod of a GPU stack takes to start."""
AFTERWARDS: Final = 1800.0
"""Seconds for which it is watched then."""
IN_PART: Final = ("Node", "Namespace", "ClusterPolicy", "NVIDIADriver")
"""Of these the operator writes only some fields, while drivers are upgraded more than once."""
NEVER: Final = 4 * 3600.0


class Verdict(msgspec.Struct, frozen=True):
    """Hold how a sequence ended: what is wrong, one line each, and how much was played."""

    seed: int
    wrong: tuple[str, ...]
    changes: int = 0
    writes: int = 0
    seconds: float = 0.0
    ready: bool = True
    """Whether the fresh install got ready. Where pods can never run, only what is wholly the operator's is compared."""


class PolicyStage(Stage):
    """Play a cluster whose policies are set as a whole, and note what its operator writes."""

    def __init__(self, sequence: Sequence, wanted: Wanted) -> None:
        self.wanted = wanted
        self.sequence = sequence
        self.writes: list[str] = []
        self.written_at = 0.0
        self.in_vain: list[str] = []
        self.rested = True
        super().__init__(3, objects=_surroundings(sequence), interfere=self._note)

    def _note(self, request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        before = self.sandbox.store.version
        answer = proceed()
        asks = request.method == "GET" or "dryRun" in request.query  # a dry run asks what would be written
        if not asks and "/events" not in request.path and "accessreviews" not in request.path:
            self.written_at = self.clock.now()
            self.writes.append(f"{request.method} {request.path}")
            if isinstance(answer, Answer) and answer.status < 300 and self.sandbox.store.version == before:
                self.in_vain.append(self.writes[-1])
        return answer

    def _nodes(self) -> list[Object]:
        nodes = fleet(3, 1)
        for pool, node in zip(POOLS, nodes, strict=False):
            node["metadata"]["labels"]["pool"] = pool
        if self.sequence.workload:
            nodes[1]["metadata"]["labels"][names.WORKLOAD_CONFIG] = self.sequence.workload
        return nodes

    def _policy(self) -> Object:
        return policy_object(self.wanted.policy)

    async def start(self) -> None:
        """Start the sandbox, with the NVIDIADrivers that are wanted."""
        await super().start()
        for name, spec in self.wanted.drivers.items():
            await self.user.create(resources.NVIDIA_DRIVERS, driver_object(name, spec))
            await asyncio.sleep(2)  # the older comes first, and times are whole seconds

    async def change(self, wanted: Wanted) -> None:
        """Make the policies what is wanted."""
        old, self.wanted = self.wanted, wanted
        if wanted.policy != old.policy:
            await self.user.patch_json(resources.CLUSTER_POLICIES, POLICY, _spec(wanted.policy))
        gone = {name for name, spec in old.drivers.items() if not _can_become(spec, wanted.drivers.get(name))}
        for name in sorted(gone):
            await self.user.delete(resources.NVIDIA_DRIVERS, name)
        for name, spec in wanted.drivers.items():
            if name not in old.drivers or name in gone:
                await self._make(name, spec)
            elif spec != old.drivers[name]:
                await self.user.patch_json(resources.NVIDIA_DRIVERS, name, _spec(spec))

    async def _make(self, name: str, spec: Object) -> None:
        key = "nvidiadrivers.nvidia.com"
        await self.until(lambda: self.sandbox.store.find(key, None, name) is None)
        await self.user.create(resources.NVIDIA_DRIVERS, driver_object(name, spec))
        await asyncio.sleep(1)  # as in a fresh install, one that is made later is younger

    async def rests(self) -> bool:
        """Wait until the operator has written nothing for a while; tell whether that came."""
        began = self.written_at = self.clock.now()
        while self.clock.now() - self.written_at < QUIET:
            await asyncio.sleep(max(1.0, QUIET - (self.clock.now() - self.written_at)))
            if self._ended():
                await self.kill_operator()
                raise AssertionError("the operator ended")
            if self.clock.now() - began > NEVER:
                return False
        return True

    def seen(self, wanted: Wanted) -> dict[Key, Object]:
        """Return what is compared where these policies are wanted."""
        store, left_out = self.sandbox.store, [field for each in DEPENDENCES if each.when(wanted) for field in each.fields]
        listed = ({**obj, "kind": resource.kind} for resource in store.resources() if resource.kind in KINDS
                  for obj in store.list(resource.key))
        return compared(listed, tuple(left_out))

    def policies(self) -> list[Object]:
        """Return the ClusterPolicy and the NVIDIADrivers."""
        return [*self.sandbox.store.list("clusterpolicies.nvidia.com"), *self.sandbox.store.list("nvidiadrivers.nvidia.com")]


def _spec(spec: Object) -> list[Object]:
    return [{"op": "replace", "path": "/spec", "value": spec}]


def _surroundings(sequence: Sequence) -> list[Object]:
    """Return what policies refer to, and the CRD of ServiceMonitors where that is installed."""
    where = names.DEFAULT_NAMESPACE
    found: list[Object] = [{"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": where},
                            field: dict.fromkeys(KEYS, "eA==")}
                           for name in CONFIG_MAPS for kind, field in (("ConfigMap", "data"), ("Secret", "data"))]
    return [*found, monitors()] if sequence.monitors else found


def monitors() -> Object:
    """Return the CRD of ServiceMonitors, which may say anything."""
    gvr = resources.SERVICE_MONITORS
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{gvr.plural}.{gvr.group}"},
            "spec": {"group": gvr.group, "scope": "Namespaced",
                     "names": {"kind": "ServiceMonitor", "listKind": "ServiceMonitorList", "plural": gvr.plural,
                               "singular": "servicemonitor"},
                     "versions": [{"name": gvr.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}}


def play(sequence: Sequence) -> Verdict:
    """Play a sequence, and a fresh install of what it ends with; tell what is wrong."""
    wrong: list[str] = []
    totals = [0, 0.0]
    last = sequence.last

    async def changes() -> dict[Key, Object]:
        stage = PolicyStage(sequence, start())
        async with playing(stage):
            await _rests(stage, wrong)
            for wanted, together in sequence.steps():
                await _step(stage, wanted, together[-1].after, wrong)
            await _rests(stage, wrong)
            await _end(stage, last)
            seen = await _watched(stage, last, wrong)
            totals[:] = len(stage.writes), stage.clock.now()
            return seen

    async def fresh() -> tuple[dict[Key, Object], bool]:
        async with playing(PolicyStage(sequence, last)) as stage:
            await _rests(stage, wrong)
            ready = all(obj["status"]["state"] in ("ready", "disabled") for obj in stage.policies())
            return await _watched(stage, last, wrong), ready

    found = run_virtual(changes)
    there, ready = run_virtual(fresh)
    if not ready:
        wrong = [line for line in wrong if "at rest" not in line]
        found, there = _wholly_ours(found), _wholly_ours(there)
    wrong += differences(found, there)
    return Verdict(sequence.seed, tuple(wrong), len(sequence.changes), int(totals[0]), totals[1], ready)


def _can_become(old: Object, new: Object | None) -> bool:
    """Tell whether an edit makes an NVIDIADriver what is wanted: two changes at once may have deleted it and made it anew."""
    return new is not None and all(old.get(field) == new.get(field) for field in IMMUTABLE)


def _wholly_ours(seen: dict[Key, Object]) -> dict[Key, Object]:
    return {key: obj for key, obj in seen.items() if key[0] not in IN_PART}


async def _step(stage: PolicyStage, wanted: Wanted, after: float, wrong: list[str]) -> None:
    before, rested, count = stage.seen(stage.wanted), stage.rested, len(stage.writes)
    await stage.change(wanted)
    stage.rested = after == REST
    if after != REST:
        await stage.rest(after)
        return
    await _rests(stage, wrong)
    if rested:
        now = stage.seen(stage.wanted)
        same = {key for key in before.keys() & now.keys() if before[key] == now[key] and key[0] not in IN_PART}
        wrong += [f"a write for nothing: {write}" for write in stage.writes[count:] if _concerns(write, same)]


def _concerns(write: str, keys: set[Key]) -> bool:
    kind, name = write.split("/")[-2:]
    return any(key[0].lower() == kind.removesuffix("s").removesuffix("se") and key[2] == name for key in keys)


async def _rests(stage: PolicyStage, wrong: list[str]) -> None:
    if not await stage.rests():
        wrong.append("it does not come to rest")
    wrong += [f"a write that changed nothing: {write}" for write in stage.in_vain]
    stage.in_vain.clear()


async def _end(stage: PolicyStage, last: Wanted) -> None:
    """Delete the pods that nobody replaces but a person, where the last policies leave that to people."""
    by_hand = not automatic(last) or "MetadataBehind" in str(stage.policies())
    on_delete = last.policy.get("daemonsets", {}).get("updateStrategy") == "OnDelete"
    if not by_hand and not on_delete:
        return
    for pod in stage.pods():
        is_driver = "driver" in str((pod["metadata"].get("labels") or {}).get("app"))
        if is_driver if by_hand and not on_delete else is_driver <= by_hand:
            await stage.user.delete(resources.PODS, pod["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.rests()


def automatic(wanted: Wanted) -> bool:
    """Tell whether drivers are replaced by the operator."""
    if wanted.policy.get("sandboxWorkloads", {}).get("enabled"):
        return False
    if wanted.policy["driver"].get("useNvidiaDriverCRD"):
        return all(spec.get("upgradePolicy", {}).get("autoUpgrade", True) for spec in wanted.drivers.values())
    return bool(wanted.policy["driver"].get("upgradePolicy", {}).get("autoUpgrade"))


async def _watched(stage: PolicyStage, last: Wanted, wrong: list[str]) -> dict[Key, Object]:
    """Return what is compared, after a time in which nothing may be written."""
    count = len(stage.writes)
    await stage.rest(AFTERWARDS)
    wrong += [f"a write at rest: {write}" for write in stage.writes[count:]]
    return stage.seen(last)
