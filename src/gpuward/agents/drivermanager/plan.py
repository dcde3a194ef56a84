"""What the driver manager does next: a function of what is so. Each step may be the last one of a process that is killed, and
another start goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from gpuward import names
from gpuward.agents.drivermanager.facts import Facts, Settings
from gpuward.agents.drivermanager.operands import DRA, TOOLKIT, is_toolkit, pause_dra, pause_labels
from gpuward.agents.drivermanager.steps import (
    Clean,
    Cordon,
    Evict,
    Finish,
    GiveUp,
    SetLabels,
    Step,
    UnbindVfio,
    Unload,
    Wait,
    WaitFor,
)
from gpuward.agents.host import DeviceUser
from gpuward.model.obstacles import HoldsDriver, LosesData, NotStartedAgain, Obstacle, OfDaemonSet
from gpuward.model.pauses import restore_labels
from gpuward.model.views import PodView, Ref
from gpuward.model.workloads import Workload, workload_of
from gpuward.upgrade.evictable_pods import EvictablePods

VGPU_HOST: Final = "nvidia_vgpu_vfio"
"""The module that only the host driver of vGPUs has."""


def next_step(facts: Facts, settings: Settings, overdue: Set[Wait] = frozenset()) -> Step:
    """Return the next step. `overdue` are the waits whose time is up in this attempt."""
    if facts.stuck and Wait.KERNEL in overdue:
        return GiveUp(facts.stuck)
    replaced = facts.loaded and not stays(facts, settings)
    if replaced and (step := (not facts.cordoned and _kept_by_machines(facts, overdue)) or _empty(facts, settings, overdue)):
        return step  # machines first: the driver that works would be gone, and none could come
    if facts.loaded and (step := _without_operands(facts, settings, overdue)) is not None:
        return step
    if replaced and facts.validations:
        return _without_validations(facts, overdue)
    if (step := _without_dra_plugin(facts, overdue)) is not None:
        return step
    if replaced:
        if Wait.MODULES in overdue:
            return GiveUp(facts.undone or _kept(facts))
        return Unload(facts.modules, Wait.MODULES)
    if facts.mounted or facts.pid_file:
        return GiveUp(facts.undone or "the driver's root cannot be detached") if Wait.ROOT in overdue else Clean()
    return _leave(facts, settings, overdue)


def stays(facts: Facts, settings: Settings) -> bool:
    """Tell whether the driver that is loaded is the one that is to be installed."""
    return facts.loaded and not settings.reinstall and bool(settings.digest) and facts.digest == settings.digest


def give_back(facts: Facts, settings: Settings) -> Finish:
    """Return what gives the node back, whatever came of it. Where the operator upgrades the node, the cordon is its own."""
    return Finish(restore_labels(facts.labels, settings.custom_label, *facts.noted_labels),
                  uncordon=facts.cordoned and not facts.policy,
                  forget=facts.noted and not facts.cordoned, forget_pause=facts.pause_noted)


def _empty(facts: Facts, settings: Settings, overdue: Set[Wait]) -> Step | None:
    drains = settings.auto_drain and not facts.policy
    evicts = (settings.eviction and not facts.policy) or (drains and bool(facts.labels.get(names.DEPLOY_PREFIX + DRA)))
    step = None if facts.to_evict.empty or not evicts else _evict(facts, overdue, drains=drains)
    if evicts and not (facts.cordoned or isinstance(step, GiveUp)) and (users := _users_that_stay(facts, drains=drains)):
        return _in_use(users, overdue)  # who would come back is evicted again with each attempt, and for nothing
    if evicts and (step := _cordoned(facts, step)) is not None:
        return step
    if facts.claimants and facts.labels.get(names.DEPLOY_PREFIX + DRA):
        return GiveUp(f"{_pods(facts.claimants)} hold claims of NVIDIA's DRA driver: they have to end first")
    if users := users_of_gpus(facts):
        if Wait.DEVICES not in overdue or not drains or facts.to_drain.empty or _users_that_stay(facts, drains=drains):
            return _in_use(users, overdue)
        return _cordoned(facts, _drain(facts, overdue))
    return None


def _in_use(users: str, overdue: Set[Wait]) -> Step:
    if Wait.DEVICES in overdue:
        return GiveUp(f"the GPUs are in use by {users}: stop them, or let the operator empty the node")
    return WaitFor(Wait.DEVICES, f"the GPUs are in use by {users}")


def _users_that_stay(facts: Facts, *, drains: bool) -> str:
    """Name whom no eviction and no drain ends: modules of others, processes of the host, static pods, DaemonSets that stay."""
    asked = (facts.to_evict, facts.to_drain) if drains else (facts.to_evict,)
    go = {pod.uid for pods in asked for pod in (*pods.pods, *(each.pod for each in pods.blocked))}
    stay = tuple(user for user in facts.device_users if user.pod_uid not in go)
    return ", ".join(filter(None, [*_modules(facts), _users(stay)]))


def _cordoned(facts: Facts, step: Step | None) -> Step | None:
    """Return the step once the node is cordoned: else pods that go come again, to be evicted again."""
    return step if facts.unschedulable or isinstance(step, GiveUp) else Cordon()


def users_of_gpus(facts: Facts) -> str:
    """Name who uses the driver: modules of others, processes, and pods that were given GPUs or are virtual machines."""
    seen = {user.pod_uid for user in facts.device_users}
    machines = facts.machines if _serves_machines(facts) else ()
    idle = tuple(pod for pod in (*facts.gpu_pods, *machines) if pod.uid not in seen)
    return ", ".join(filter(None, [*_modules(facts), _users(facts.device_users), _named(idle) if idle else ""]))


def _serves_machines(facts: Facts) -> bool:
    """Tell whether virtual machines may use the driver that is loaded: else what has such a name is a network device."""
    return workload_of(facts.labels) in (Workload.VM_PASSTHROUGH, Workload.VM_VGPU) or VGPU_HOST in facts.modules


def _evict(facts: Facts, overdue: Set[Wait], *, drains: bool) -> Step:
    users = facts.to_evict
    if Wait.EVICTION not in overdue and not users.blocked:
        return _ask(users, Wait.EVICTION)
    if drains:
        return _drain(facts, overdue)
    if users.blocked:
        return GiveUp(f"{_blocked(users)}, and may not be evicted")
    return GiveUp(f"{_pods(users.pods, facts.refused)} use GPUs and did not go in time")


def _drain(facts: Facts, overdue: Set[Wait]) -> Step:
    drained = facts.to_drain
    if drained.blocked:
        return GiveUp(f"the node cannot be drained: {_blocked(drained)}")
    if Wait.DRAIN in overdue:
        return GiveUp(f"the node could not be drained in time: {_pods(drained.pods, facts.refused)} did not go")
    return _ask(drained, Wait.DRAIN)


def _ask(going: EvictablePods, wait: Wait) -> Step:
    to_ask = tuple(pod.ref for pod in going.pods if not pod.deleting)
    return Evict(to_ask, wait) if to_ask else WaitFor(wait, f"{_pods(going.pods)} have to end")


def _without_operands(facts: Facts, settings: Settings, overdue: Set[Wait]) -> Step | None:
    """Return what makes the operands go, the toolkit last: as it ends it restarts containerd, and what the kubelet asks to end
    meanwhile it asks again 10 s later.
    """
    labels = pause_labels(facts.labels, settings.custom_label)
    if others := {label: value for label, value in labels.items() if label != TOOLKIT}:
        return SetLabels(others)
    if before := tuple(pod for pod in facts.operands if not is_toolkit(pod)):
        return _wait_for_operands(before, overdue)
    if labels:
        return SetLabels(labels)
    return _wait_for_operands(facts.operands, overdue) if facts.operands else None


def _wait_for_operands(pods: tuple[PodView, ...], overdue: Set[Wait]) -> Step:
    if Wait.OPERANDS in overdue:
        return GiveUp(f"the operands {_pods(pods)} did not end in time")
    return WaitFor(Wait.OPERANDS, f"the operands {_pods(pods)} have to end")


def _without_validations(facts: Facts, overdue: Set[Wait]) -> Step:
    """Return what makes the pods go by which the validator tries a GPU: one may hang on it, and hold the driver for ever."""
    if Wait.OPERANDS in overdue:
        return GiveUp(f"the validator's {_pods(facts.validations, facts.refused)} did not end in time")
    return _ask(EvictablePods(facts.validations), Wait.OPERANDS)


def _without_dra_plugin(facts: Facts, overdue: Set[Wait]) -> Step | None:
    if labels := pause_dra(facts.labels):
        return SetLabels(labels)
    if facts.dra_plugins:
        if Wait.DRA_PLUGIN in overdue:
            return GiveUp(f"the DRA driver's {_pods(facts.dra_plugins)} did not end in time")
        return WaitFor(Wait.DRA_PLUGIN, f"the DRA driver's {_pods(facts.dra_plugins)} has to end")
    return None


def _leave(facts: Facts, settings: Settings, overdue: Set[Wait]) -> Step:
    if facts.vfio and not stays(facts, settings) and not _are_where_they_belong(facts):
        if (step := _kept_by_machines(facts, overdue)) is not None:
            return step
        if Wait.VFIO in overdue:
            return GiveUp(facts.undone or f"{', '.join(facts.vfio)} cannot be taken from the driver for virtual machines")
        return UnbindVfio(facts.vfio)
    if facts.mofed and not stays(facts, settings):
        if Wait.MOFED in overdue:
            return GiveUp(f"Mellanox' driver is not ready: {facts.mofed}")
        return WaitFor(Wait.MOFED, f"Mellanox' driver: {facts.mofed}")
    if facts.nouveau and not stays(facts, settings):
        if Wait.NOUVEAU in overdue:
            return GiveUp(f"{facts.undone or 'the module nouveau is in use'}, and no driver of NVIDIA's can be loaded beside it: "
                          "keep it from being loaded (modprobe.blacklist=nouveau) and restart the node")
        return Unload(("nouveau",), Wait.NOUVEAU)
    return give_back(facts, settings)


def _kept_by_machines(facts: Facts, overdue: Set[Wait]) -> Step | None:
    if not facts.vfio or _are_where_they_belong(facts) or not (users := _users_of_machines(facts)):
        return None
    said = f"{', '.join(facts.vfio)} may be in use by virtual machines: {users}"
    return GiveUp(said) if Wait.MACHINES in overdue else WaitFor(Wait.MACHINES, said)


def _users_of_machines(facts: Facts) -> str:
    """Name who would lose devices that are bound to a driver for virtual machines. Which of them a pod has it does not say: on a
    node for containers one that is ready and has none open has a network device.
    """
    seen = {user.pod_uid for user in facts.machine_users}
    idle = tuple(pod for pod in facts.machines if pod.uid not in seen and (_serves_machines(facts) or not pod.ready))
    return ", ".join([*([_users(facts.machine_users)] if facts.machine_users else []), *([_named(idle)] if idle else [])])


def _are_where_they_belong(facts: Facts) -> bool:
    """Tell whether devices stay with virtual machines, on a node that is for them: the vfio-manager only comes anew there."""
    return facts.labels.get(names.DEPLOY_VFIO_MANAGER) == "true" and bool(_users_of_machines(facts))


def _named(pods: tuple[PodView, ...]) -> str:
    return f"{'pod' if len(pods) == 1 else 'pods'} {_pods(pods)}"


def _pods(pods: tuple[PodView, ...], refused: Mapping[Ref, str] = {}) -> str:
    shown = [f"{pod.namespace}/{pod.name}" + (f" ({refused[pod.ref]})" if pod.ref in refused else "") for pod in pods[:5]]
    return ", ".join(shown) + (f" and {len(pods) - 5} more" if len(pods) > 5 else "")


def _blocked(users: EvictablePods) -> str:
    return "; ".join(f"pod {held.pod.namespace}/{held.pod.name} {_obstacle(held.why)}" for held in users.blocked[:3])


def _obstacle(why: Obstacle) -> str:
    match why:
        case LosesData():
            return "would lose the data of its emptyDir volumes (DRAIN_DELETE_EMPTYDIR_DATA=true permits it)"
        case NotStartedAgain():
            return "has no controller that would start it again (DRAIN_USE_FORCE=true permits it)"
        case OfDaemonSet(name):
            return f"belongs to DaemonSet {name}"
        case HoldsDriver(how):
            return f"holds the driver by {how}"
        case _:
            return "is a static pod"


def _users(users: tuple[DeviceUser, ...]) -> str:
    said = [f"process {user.pid} ({user.command}) of {f'pod {user.pod or user.pod_uid}' if user.pod_uid else 'the host'}"
            for user in users[:5]]
    return ", ".join(said) + (f" and {len(users) - 5} more" if len(users) > 5 else "")


def _kept(facts: Facts) -> str:
    if found := ", ".join(filter(None, [*_modules(facts), _users((*facts.device_users, *facts.going_users))])):
        return f"the driver's modules are in use by {found}: stop them"
    # Those before it have gone: it is the kernel that uses it, as nvidia_peermem's memory, or a console on nvidia_drm.
    return (f"the module {facts.modules[0]} is in use, by no process that can be seen from here: "
            "see `lsmod` and `dmesg` on the node, or else restart the node")


def _modules(facts: Facts) -> list[str]:
    return [f"the module {name}" for name in facts.holders]
