"""The rules about machines: what is loaded there, who uses it, and whether what gpuward says of it is true.

What lasts is judged, not what is on its way: a rule is broken by a state of things that has lasted for so many seconds of calm,
in which one process leads, the API server answers, and no watch lags.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpuward import names
from gpuward.model.plan import NodeStatus
from gpuward.model.states import State
from gpuward.sandbox.machine import DRIVER_READY, GpuMachine
from kubesandbox.errors import NotFound
from tools.simulate.known import turns_drivers_off
from tools.simulate.leaving import Leaving, users_of
from tools.simulate.modes import POOL
from tools.simulate.patience import gives_up_after, staging_pods_with_gpus
from tools.simulate.people import POLICIES, POLICY, is_driver
from tools.simulate.policies import BROKEN_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubesandbox.store import Event
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

LOOK: Final = 10.0
UNDER_WAY: Final = 30.0
"""Seconds for which a write may be under way that was decided before."""
LASTS: Final = {
    "every GPU node is in the totals": 150.0,
    "done means that the driver is loaded and validated": 300.0,
    "a condition that says UpToDate is true": 150.0,
    "without a ClusterPolicy no cordon of ours stays": 90.0,
}
"""Seconds of calm for which something may be untrue: the status follows within 30 s, a driver installs within a minute."""


FINE_LOOKS: Final = 3
GIVEN_UP_LATE: Final = 60.0
"""Seconds of calm by which a node may be given up late."""


class SeenFine(NamedTuple):
    """Hold when a node had what it should have, the version of the store then, and the uid of the node."""

    at: float
    version: int
    uid: str


class Machines:
    """Follow the machines of a run."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self.leaving = Leaving(world)
        self._loaded: dict[str, list[tuple[int, str]]] = {}
        """From which version on which driver was loaded on a node, by the digest of its configuration."""
        self._serving: dict[str, list[tuple[int, bool]]] = {}
        """From which version on a node served, or not: its driver pod was ready and stayed, or users had its driver open."""
        self._came: dict[str, float] = {}
        """When a node served last that had not before."""
        self._validated: dict[str, list[tuple[int, bool]]] = {}
        """From which version on a validator had seen what is loaded on a node, or not."""
        self._untrue: dict[tuple[str, str], float] = {}
        self._disturbed = 0.0
        self._stays: dict[str, tuple[str, int]] = {}
        """In which step a node waits for its pods, and for how many looks."""
        self._fine: dict[str, int] = {}
        """At how many looks in a row a node had what it should have."""
        self._up_to_date: dict[str, SeenFine] = {}

    def machine(self, node: str) -> GpuMachine | None:
        """Return the machine under a node, None where there is none."""
        try:
            return self._world.sandbox.machine(node)
        except NotFound:
            return None

    # What happens.

    def changed(self, event: Event) -> None:
        """Take a change of the store: no driver leaves a machine under a running GPU pod, nor one whose turn has not come."""
        actor = self._world.actor()
        self.leaving.changed(event, actor)
        if event.resource_key == "pods" and event.obj["spec"].get("nodeName"):
            self._note(event.obj["spec"]["nodeName"], event.version)
            if is_driver(event.obj):
                self._driver_pod_changed(event, actor)

    def _note(self, node: str, version: int) -> None:
        machine, loaded = self.machine(node), self._loaded.setdefault(node, [])
        if machine is None:  # of one that is gone nothing can be told, until its node is not Ready for that
            return
        if not loaded or loaded[-1][1] != machine.digest:
            loaded.append((version, machine.digest))
        ready = any(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in self._world.driver_pods(node))
        serves = ready or (bool(machine.driver) and bool(users_of(machine)))
        if serves and not (self._serving.get(node) or [(0, False)])[-1][1]:
            self._came[node] = self._world.now()
        for history, so in ((self._serving, serves), (self._validated, DRIVER_READY in machine.files)):
            seen = history.setdefault(node, [])
            if not seen or seen[-1][1] != so:
                seen.append((version, so))

    def loaded_since(self, node: str, version: int) -> set[str]:
        """Return what was loaded on a node at a version, or at any time since."""
        seen, machine = self._loaded.get(node, []), self.machine(node)
        then = [digest for since, digest in seen if since <= version][-1:]
        now = [machine.digest] if machine is not None else []
        return {*then, *(digest for since, digest in seen if since > version), *now}

    def is_without(self, node: str, version: int) -> bool:
        """Tell whether no driver has served a node since before a version."""
        seen = self._serving.get(node, [])
        return bool(seen) and not seen[-1][1] and seen[-1][0] <= version

    def was_without(self, node: str, version: int) -> bool:
        """Tell whether no driver served a node at a version, or at any time since."""
        seen = self._serving.get(node, [])
        then = [serves for since, serves in seen if since <= version][-1:] or [False]
        return not all((*then, *(serves for since, serves in seen if since > version)))

    def was_validated(self, node: str, version: int) -> bool:
        """Tell whether a validator had seen the driver of a node at a version, or has at any time since it was loaded.

        A container toolkit that starts anew takes the file away and validates it once more.
        """
        machine, seen, loaded = self.machine(node), self._validated.get(node, []), self._loaded.get(node, [])
        then = [so for since, so in seen if since <= version][-1:]
        from_then_on = min(version, loaded[-1][0]) if loaded else version
        return any((*then, *(so for since, so in seen if since > from_then_on))) or (
            machine is not None and DRIVER_READY in machine.files)

    def _driver_pod_changed(self, event: Event, actor: str) -> None:
        pod, node = event.obj, event.obj["spec"]["nodeName"]
        ends = event.type == "DELETED" or bool(pod["metadata"].get("deletionTimestamp"))
        ended = event.old is not None and bool(event.old["metadata"].get("deletionTimestamp"))
        if not ends:
            return
        machine = self.machine(node)
        if ended or machine is None or not machine.driver or not is_ready(event.old or pod):
            return
        why = self.leaving.blame(pod, actor)
        if not why:
            return
        name = pod["metadata"]["name"]
        if users := users_of(machine):
            self._world.watch.breach("no driver leaves a machine under a running GPU pod",
                                     f"{name} goes under {', '.join(users[:3])}: {why}", node)
        sight = self._world.watch.history.now(node)
        # A write may be on its way for long that was decided while the machine had no driver anyway.
        late = self._world.now() - self._came.get(node, -math.inf) < UNDER_WAY
        if sight is not None and not sight.in_progress and not late and not self.leaving.is_unseen(node):
            self._world.watch.breach("no driver is taken off a node whose turn has not come", f"{name} goes: {why}", node)

    # What is said.

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            if self.is_calm():
                self._note_fine()
                self.look()
            else:
                self._fine.clear()
                self._stays.clear()
                self._disturbed = self._world.now()

    def _note_stay(self, node: str, label: str, followed: bool) -> None:
        """Judge for how long a node has waited for its pods in one step, where it is to be given up after a time."""
        after = gives_up_after(self._world, node) if followed else None
        state, looks = self._stays.get(node, ("", 0))
        if after is None or not label or (state and state != label):
            self._stays[node] = ("", 0)
            return
        self._stays[node] = (label, looks + 1)
        if looks * LOOK > after + GIVEN_UP_LATE:
            told = f"it has been in {label} for {looks * LOOK:.0f} s of calm, and {after:.0f} s are its time"
            self._world.watch.breach("a node whose pods cannot be moved is given up in time", told, node)

    def calm_for(self) -> float:
        """Return for how many seconds nothing has kept the operator from knowing, saying and doing what it should."""
        return self._world.now() - self._disturbed if self.is_calm() else 0.0

    def up_to_date(self, node: str) -> SeenFine | None:
        """Return when a node had what it should have last, for long enough that this was known."""
        return self._up_to_date.get(node)

    def _note_fine(self) -> None:
        world = self._world
        for node in world.gpu_nodes():
            sight, wanted = world.watch.history.now(node), self.wanted(node)
            fine = sight is not None and sight.state is State.DONE and wanted and not self.untruth(node, wanted)
            self._fine[node] = self._fine.get(node, 0) + 1 if fine else 0
            if sight is not None and self._fine[node] >= FINE_LOOKS:
                self._up_to_date[node] = SeenFine(world.now(), world.sandbox.store.version, sight.uid)
            self._note_stay(node, sight.label if sight is not None else "", bool(wanted))
            if (who := staging_pods_with_gpus(world, node)) is not None:
                world.watch.breach("a pod for images takes nothing else", f"{who} has GPUs", node)

    def is_calm(self) -> bool:
        """Tell whether nothing keeps the operator from knowing, saying and doing what it should."""
        world = self._world
        running = world.running()
        quiet = not world.troubles and not world.lags and world.latency == world.scenario.latency
        return quiet and running == [world.leader] and world.leader.leads and world.leader.operator.cluster.is_synced

    def look(self) -> None:
        """Judge everything that is said of every node."""
        untrue = {key: message for key, message in self._untruths()}
        self._untrue = {key: self._untrue.get(key, 0.0) + LOOK for key in untrue}
        for (rule, node), lasted in self._untrue.items():
            if lasted > LASTS[rule]:
                self._world.watch.breach(rule, f"{untrue[rule, node]}, for {lasted:.0f} s of calm", node)
                return

    def _untruths(self) -> Iterator[tuple[tuple[str, str], str]]:
        world = self._world
        policy = world.policy_in_force()
        plan = world.leader.operator.plan
        up_to_date = policy is not None and _is_up_to_date(policy)
        for node in world.gpu_nodes():
            sight = world.watch.history.now(node)
            ours = sight is not None and sight.cordoned and sight.cordoned_by and not world.watch.is_overwritten(node)
            if policy is None and ours and self._has_driver(node) and world.state_label(node) != State.FAILED:
                yield ("without a ClusterPolicy no cordon of ours stays", node), "it is cordoned, and its driver is ready"
            wanted = self.wanted(node)
            if not wanted:
                continue
            status = plan.nodes.get(node)
            if status is None:
                yield ("every GPU node is in the totals", node), f"driver {wanted} is for it, and the plan does not know it"
            elif _is_called_fine(status) and (why := self.untruth(node, wanted)):
                yield ("done means that the driver is loaded and validated", node), why
            if up_to_date and (why := self.untruth(node, wanted)):
                yield ("a condition that says UpToDate is true", node), why

    def _has_driver(self, node: str) -> bool:
        return any(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in self._world.driver_pods(node))

    def untruth(self, node: str, wanted: str) -> str:
        """Say what a node lacks that has its driver loaded and validated; nothing if it has everything."""
        machine = self.machine(node)
        if machine is None or machine.driver != wanted:
            return f"driver {(machine.driver if machine else '') or 'none'} is loaded, not {wanted}"
        if not any(is_ready(pod) for pod in self._world.driver_pods(node)):
            return "no driver pod is ready"
        return "" if DRIVER_READY in machine.files else "no validator has seen its driver"

    def wanted(self, name: str) -> str:
        """Return the driver version that people want on a node and nothing keeps from it; empty where there is none."""
        world = self._world
        policy, machine = world.policy_in_force(), self.machine(name)
        if policy is None or machine is None or not machine.gpus or not _is_followed(policy):
            return ""
        if not _may_have_driver(world.node(name)):
            return ""
        driver = policy["spec"]["driver"]
        if not driver.get("useNvidiaDriverCRD"):
            return str(driver["version"])
        chosen = self._chosen(world.node(name))
        return str(chosen["spec"]["version"]) if chosen is not None else ""

    def is_followed(self, uid: str) -> bool:
        """Tell whether anything is made for a policy or an NVIDIADriver: not for one that is refused or in a conflict."""
        drivers = self._world.sandbox.store.list("nvidiadrivers.nvidia.com")
        found = next((each for each in drivers if each["metadata"]["uid"] == uid), None)
        if found is None:
            return True
        return self._world.uses_crd() and _is_followed(found) and not _conflicting(found, drivers)

    def _chosen(self, node: Object) -> Object | None:
        """Return the NVIDIADriver that is for a node; None where there is none, no agreement, or something wrong with it."""
        labels, drivers = node["metadata"].get("labels") or {}, self._world.sandbox.store.list("nvidiadrivers.nvidia.com")
        selecting = [each for each in drivers if not each["spec"].get("default")
                     and (each["spec"].get("nodeSelector") or {}).items() <= labels.items()]
        found = selecting or [each for each in drivers if each["spec"].get("default")]
        if len(found) != 1 or not _is_followed(found[0]):
            return None
        return found[0] if not _conflicting(found[0], drivers) else None


def is_ready(pod: Object) -> bool:
    """Tell whether a pod is ready."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


def _conflicting(driver: Object, drivers: list[Object]) -> bool:
    """Tell whether another NVIDIADriver may be in this one's way on some node: then it starts nothing anywhere."""
    if driver["spec"].get("default"):
        return sum(bool(each["spec"].get("default")) for each in drivers) > 1
    mine = (driver["spec"].get("nodeSelector") or {}).get(POOL)
    others = [each for each in drivers if each is not driver and not each["spec"].get("default")]
    return any((other["spec"].get("nodeSelector") or {}).get(POOL) in (mine, None) or mine is None for other in others)


def _is_followed(policy: Object) -> bool:
    spec = policy["spec"].get("driver") or policy["spec"]
    refused = (policy["spec"].get("sandboxWorkloads") or {}).get("enabled")
    broken = (spec.get("upgradePolicy") or {}).get("maxUnavailable") == BROKEN_LIMIT
    return not (policy["metadata"].get("deletionTimestamp") or refused or broken or turns_drivers_off(policy))


def _may_have_driver(node: Object) -> bool:
    labels, spec = node["metadata"].get("labels") or {}, node["spec"]
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions") or ())
    tainted = any(taint.get("effect") == "NoExecute" for taint in spec.get("taints") or ())
    seen = any(labels.get(key) == "true" for key in names.NFD_GPU_LABELS)
    told = all(key in labels for key in (names.NFD_KERNEL, names.NFD_OS_ID, names.NFD_OS_VERSION))
    deployed = labels.get(names.DEPLOY_DRIVER) == "true" and labels.get(names.DEPLOY_OPERANDS) != "false"
    return ready and seen and told and deployed and not tainted and not node["metadata"].get("deletionTimestamp")


def _is_called_fine(status: NodeStatus) -> bool:
    """Tell whether a node is said to have what it should have."""
    return status.up_to_date or (status.state is State.DONE and status.hold is None)


def _is_up_to_date(policy: Object) -> bool:
    conditions = (policy.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "DriverUpgrade" and one["status"] == "True" for one in conditions)


__all__ = ["POLICIES", "POLICY", "Machines", "is_ready"]
