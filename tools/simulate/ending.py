"""The end of a run: every fault stops, the world heals, and within bounded time nothing is left to do."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from gpuward import names
from gpuward.model.explain import arguments
from gpuward.model.marks import ours
from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner, Record, decode_record, format_time
from gpuward.model.states import IN_PROGRESS, State, parse_state
from gpuward.model.told import OURS
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault as PodFault
from tools.simulate.drives import CLUSTER_POLICY
from tools.simulate.known import turns_drivers_off
from tools.simulate.notices import notice_left
from tools.simulate.patience import staging_left
from tools.simulate.people import DEPLOYMENTS, POLICIES, is_driver
from tools.simulate.policies import BROKEN_LIMIT, NVIDIA_DRIVERS, TOO_LARGE, follow_again
from tools.simulate.rules import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

PATIENCE: Final = 6 * 3600.0
"""Seconds of virtual time within which everything must have come to its end."""
QUIET: Final = 180.0
"""Seconds for which nothing may be written then."""
STEP: Final = 20.0
FRESH: Final = 60.0
"""Seconds in which a new process, which knows nothing of what the former one did, must find nothing to do."""
MOST_DUE: Final = 10
"""Times that are waited for, one after the other, before a new process begins."""
CLOCKS: Final = (names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, names.SAFE_LOAD, names.INITIALLY_UNSCHEDULABLE)
"""Annotations that belong to an upgrade under way."""


async def end(world: SimulatedWorld) -> None:
    """Heal the world, wait for its end, and check what is left."""
    world.people_act = True
    heal(world)
    world.people_act = False
    waited = 0.0
    quiet_since, written = 0.0, -1
    while not world.over.is_set():
        if await world.rest(STEP):
            return
        waited += STEP
        writes = sum(process.writes for process in world.processes)
        if writes != written:
            quiet_since, written = waited, writes
        problem = unfinished(world)
        if problem is None and waited - quiet_since >= 60.0:
            break
        if waited >= PATIENCE:
            node, message = problem or ("", "the operator goes on writing")
            world.watch.breach("everything ends", message, node)
            return
    world.watch.resting = True
    if await world.rest(QUIET):
        return
    for node, left in _all_left(world):
        world.watch.breach("nothing is left behind", left, node)
    if (lacking := incomplete(world)) is not None:
        world.watch.breach("the stack is complete", lacking)
    world.watch.resting = False
    if await _past_what_is_due(world):
        return
    world.watch.complete = True
    world.watch.refused = any(hold.reason is Reason.WRITE_REFUSED for hold in world.leader.operator.plan.holds.values())
    world.kill_all()
    world.begin_operator()
    await world.rest(FRESH)


async def _past_what_is_due(world: SimulatedWorld) -> bool:
    """Let a time pass that would change a decision while a new process looks around, as when a pod has been starting for too
    long; return True if the run is over.
    """
    for _ in range(MOST_DUE):
        due = world.leader.operator.plan.wake_at
        left = due - world.now() - world.offset if due is not None else FRESH
        if not 0 <= left < FRESH:
            break
        if await world.rest(left + STEP):
            return True
    return False


def _all_left(world: SimulatedWorld) -> Iterator[tuple[str, str]]:
    """Yield what was left behind, with the node on which it was."""
    if (pod := staging_left(world)) is not None:
        yield "", pod
    for node in world.gpu_nodes():
        if (left := left_behind(world, node) or notice_left(world, node)) is not None:
            yield node, left


def incomplete(world: SimulatedWorld) -> str | None:
    """Say what a pod of the stack would lack if it had to be made anew."""
    store, namespace = world.sandbox.store, names.DEFAULT_NAMESPACE
    for daemonset in store.list("daemonsets.apps", namespace):
        owners = (ref["uid"] for ref in daemonset["metadata"].get("ownerReferences") or ())
        # Drivers of an NVIDIADriver that is gone are to go, and need not come up again on a node that was started anew meanwhile.
        going = names.DRIVERS_GO in (daemonset["metadata"].get("annotations") or {})
        if going or not all(map(world.watch.machines.is_followed, owners)):
            continue
        spec, name = daemonset["spec"]["template"]["spec"], daemonset["metadata"]["name"]
        needs = [("serviceaccounts", namespace, spec.get("serviceAccountName", "")),
                 ("runtimeclasses.node.k8s.io", None, spec.get("runtimeClassName", ""))]
        volumes = [volume["configMap"] for volume in spec.get("volumes") or () if "configMap" in volume]
        needs += [("configmaps", namespace, volume["name"]) for volume in volumes if not volume.get("optional")]
        for resource, place, needed in needs:
            if needed and store.find(resource, place, needed) is None:
                return f"DaemonSet {name} needs {resource} {needed}, which is not there"
    return None


def heal(world: SimulatedWorld) -> None:
    """Stop all that goes wrong. Who was meant to be there stays: skipped nodes, cordons of people, pods that hold nodes."""
    world.end_faults()
    world.troubles.clear()
    world.lags.clear()
    world.usual_latency()
    world.sandbox.faults.clear()
    if world.scenario.stays_broken and world.gpu_nodes():
        world.sandbox.faults.add(PodFault(FaultKind.DRIVER_CRASH, node=world.gpu_nodes()[-1]))
    for process in world.running():
        if process is not world.leader:
            world.kill(process)
    world.begin_operator_if_none()
    for name in world.gpu_nodes():
        world.recover(name)
        world.rediscover(name)
    for workload in ("inference", "two-budgets"):  # there may be no room for pods that went, and so no end to a refusal
        world.set_budget(workload, 2 * world.scenario.nodes)
    world.remove_budget("two-budgets-too")
    for workload in ("training", "holder", "tolerant"):  # nothing ends these, and they may hold a node for ever
        world.remove_workload(workload, DEPLOYMENTS)
    world.break_watches()
    _heal_policies(world)


def _heal_policies(world: SimulatedWorld) -> None:
    """Make policies ones that can be followed and, mostly, ones under which every node can be upgraded."""
    # A node that cannot be upgraded, an approval that nobody gives, or a window that is too short may hold all others.
    world.be_impatient(waves=[], windows=[], undrainable={"behaviour": "Hold"})
    if noticed := (world.rollout_spec() or {}).get("notice"):  # some owners answer never
        world.be_impatient(notice={**noticed, "acknowledge": "Optional"})
    if world.cluster_policy() is not None:
        world.change_policy(follow_again)
    for governor in dict.fromkeys((CLUSTER_POLICY, *world.governors())):
        if world.sandbox.store.find(governor.resource, None, governor.name) is None:
            continue
        if world.scenario.heals_policy or world.upgrade_of(governor).get("maxUnavailable") == BROKEN_LIMIT:
            world.change_driver(governor, _sensible)
            world.annotate_policy(names.RESUMED_AT, format_time(world.now()))
            for word in (names.APPROVED_PLAN, names.ABORTED):
                world.annotate(governor, word, None)
        if world.driver_spec(governor).get("resources") == TOO_LARGE:  # somebody wrote an earlier version of it again
            world.change_driver(governor, lambda spec: spec.update(resources={}))


def _sensible(spec: Object) -> None:
    spec["upgradePolicy"] |= {"autoUpgrade": True, "maxUnavailable": "50%", "maxParallelUpgrades": 2}


def unfinished(world: SimulatedWorld) -> tuple[str, str] | None:
    """Return a node that has not come to its end, and why not."""
    plan = world.leader.operator.plan
    if plan.actions:
        return "", f"the plan has {len(plan.actions)} actions: {plan.actions[0]}"
    for name in world.gpu_nodes():
        if (why := _unfinished(world, name, plan.holds.get(name))) is not None:
            return name, why
    return None


_GOES_ON: Final = (Reason.RETRY_LATER, Reason.IDLE_AWAITED, Reason.IMAGE_NOT_STAGED, Reason.STAGING_FAILED, Reason.NOTICE_GIVEN,
                    Reason.NOTICE_UNANSWERED, Reason.GANG_AWAITED, Reason.GANG_SPARED)
"""What holds a node for a time."""


def _unfinished(world: SimulatedWorld, name: str, hold: Hold | None) -> str | None:
    """Say why a node has not come to its end: by its label, and by what is loaded on its machine."""
    label, paused = world.state_label(name), not _upgrades(world, name)
    state, wanted = parse_state(label), world.watch.machines.wanted(name)
    if hold is not None and hold.reason in _GOES_ON:
        return f"it goes on by itself, after {hold.reason}"
    if hold is not None and (state not in IN_PROGRESS or paused or state in _MAINTENANCE):
        return None
    if state is State.DONE or (not label and (paused or _are_off(world) or not world.driver_pods(name))):
        why = world.watch.machines.untruth(name, wanted) if wanted and not paused else ""
        return f"{why}, and nothing says so" if why else None
    why = f"{hold.reason} {arguments(hold.what)}" if hold is not None else "no reason given"
    return f"it is {label or 'unlabelled'}: {why}"


_MAINTENANCE: Final = (State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED)


def _are_off(world: SimulatedWorld) -> bool:
    """Tell whether drivers are switched off: one that somebody took from its DaemonSet may run on, and is nobody's to upgrade."""
    policy = world.policy_in_force()
    return policy is not None and turns_drivers_off(policy)


def _upgrades(world: SimulatedWorld, node: str) -> bool:
    """Tell whether the driver of a node is upgraded without being told to."""
    governor = world.governor_of(node)
    return governor is not None and bool(world.upgrade_of(governor).get("autoUpgrade", governor.resource != POLICIES))


def left_behind(world: SimulatedWorld, name: str) -> str | None:
    """Say what an upgrade left on a node that is done or has nothing to do with drivers, or what it has left undone."""
    node = world.node(name)
    state = parse_state(world.state_label(name))
    if state not in (State.DONE, State.UNKNOWN):
        return None
    annotations = node["metadata"].get("annotations") or {}
    sight = world.watch.history.now(name)
    cordoned = sight is not None and sight.cordoned and sight.cordoned_by is not None
    # That a cordon was there before may be said for as long as it is there.
    clocks = [key for key in CLOCKS if key != names.INITIALLY_UNSCHEDULABLE or cordoned or not node["spec"].get("unschedulable")]
    if not cordoned and (told := _told(node)):
        return f"what is for other controllers: {', '.join(told)}"
    # Where our memory of the upgrade was overwritten, they are taken for those of somebody else's.
    forgotten = sight is not None and sight.memory() is None and world.watch.is_overwritten(name)
    # A driver whose NVIDIADrivers are in a conflict waits to be loaded until they are not: nothing is begun for it.
    if (held := world.leader.operator.plan.holds.get(name)) is not None and held.reason is Reason.DRIVER_REFUSED:
        clocks.remove(names.SAFE_LOAD)
    # On a node that is not the operator's to upgrade, what people write stays.
    if state is State.UNKNOWN:
        clocks = [key for key in clocks if not world.watch.annotated_by_people(name, key)]
    if (stray := [key for key in clocks if key in annotations]) and not forgotten:
        return f"annotations of an upgrade on a node that is {state or 'unlabelled'}: {', '.join(stray)}"
    # Nobody can tell whose cordon it is once the memory of it is gone; it is left to people then.
    if state is State.DONE and cordoned and not world.watch.is_overwritten(name):
        return "a cordon of ours"
    if state is State.DONE and not world.watch.is_overwritten(name):
        text = annotations.get(names.UPGRADE_RECORD)
        if text is None and not _called_done_by_people(world, name):
            return "no record"
        record = Record(State.DONE) if text is None else decode_record(text)
        if record.cordon is CordonOwner.GPUWARD or record.failure is not None or record.state is not State.DONE:
            return f"its record: {text}"
    return _out_of_date(world, name) if state is State.DONE and _upgrades(world, name) else None


def _told(node: Object) -> tuple[str, ...]:
    """Return what on a node, which has no notice, is ours and for other controllers."""
    marks = ours(node["metadata"].get("labels") or {}, node["metadata"].get("annotations") or {})
    conditions = [one["type"] for one in node["status"].get("conditions") or () if str(one.get("message")).startswith(OURS)]
    return (*marks.labels, *marks.annotations, *conditions)


def _is_told_why_there_is_none(world: SimulatedWorld, name: str) -> bool:
    """Tell whether a node may get no driver, as while NVIDIADrivers are in a conflict, and gpuward says that it has none."""
    hold = world.leader.operator.plan.holds.get(name)
    if hold is not None and hold.reason is Reason.DRIVER_UNPLACED:
        return _is_kept_too_large(world, name)
    told = hold is not None and hold.reason in (Reason.DRIVER_POD_MISSING, Reason.DRIVER_REFUSED)
    return told and not world.watch.machines.wanted(name)


def _is_kept_too_large(world: SimulatedWorld, name: str) -> bool:
    """Tell whether a driver asks for more than there is, and the edit that corrects it is not followed, as in a conflict."""
    owner = world.node(name)["metadata"].get("labels", {}).get(names.DRIVER_OWNER, "")
    found = world.sandbox.store.find(NVIDIA_DRIVERS, None, owner) if owner else None
    if found is None or found["spec"].get("resources") == TOO_LARGE:
        return False
    conditions = (found.get("status") or {}).get("conditions") or ()
    refused = any(one["type"] == "Error" and one["status"] == "True" for one in conditions)
    daemonsets = world.sandbox.store.list("daemonsets.apps", names.DEFAULT_NAMESPACE)
    made = (ds["spec"]["template"]["spec"]["containers"] for ds in daemonsets
            if any(ref["uid"] == found["metadata"]["uid"] for ref in ds["metadata"].get("ownerReferences") or ()))
    # As the API server stores it: 1000 is 1k.
    return refused and any(one.get("resources") == {"requests": {"cpu": "1k"}} for containers in made for one in containers)


def _called_done_by_people(world: SimulatedWorld, name: str) -> bool:
    """Tell whether somebody else than the operator wrote that a node is done, of which nothing need be remembered then."""
    sights = world.watch.history.cordons(name, world.sandbox.store.version)
    done = list(takewhile(lambda sight: sight.state is State.DONE, sights))
    return bool(done) and done[-1].writer is None


def _out_of_date(world: SimulatedWorld, name: str) -> str | None:
    """Say that a node that is done runs another driver than it should."""
    daemonsets = world.sandbox.store.list("daemonsets.apps", names.DEFAULT_NAMESPACE)
    wanted = {digest_of(ds["spec"]["template"]["spec"]) for ds in daemonsets if is_driver(ds)}
    found = [digest_of(pod["spec"]) for pod in world.driver_pods(name)]
    if not found:
        return None if _is_told_why_there_is_none(world, name) else "it has no driver pod"
    hold = world.leader.operator.plan.holds.get(name)
    told = hold is not None and hold.reason is Reason.TWO_DRIVER_PODS
    return None if set(found) <= wanted or told else "its driver is out of date"


__all__ = ["end", "heal", "left_behind", "unfinished"]
