"""The rules about what a RolloutPolicy lets nodes wait for: checks of a canary, GPUs that nobody uses, images; judged by what was
asked, evicted, pulled and made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpuward import names
from gpuward.model.states import State
from gpuward.sandbox.gpus import devices_wanted
from tools.simulate.known import known_settings
from tools.simulate.leaving import users_of
from tools.simulate.people import is_driver
from tools.simulate.policies import is_broken, seconds
from tools.simulate.process import UNDER_WAY
from tools.simulate.prometheus import Mood, Told
from tools.simulate.said import is_paused
from tools.simulate.waves import is_later, is_promoted, waves_since

if TYPE_CHECKING:
    from tools.simulate.process import Process
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]

REQUESTS: Final = (names.UPGRADE_REQUESTED, names.SAFE_LOAD)
LEAVING: Final = (State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED)
NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")


def nobody_goes_past_a_canary_whose_check_has_not_passed(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node of a later wave before the Prometheus has answered for long enough that the first one is well."""
    after, terms = change.after.memory(), world.watch.ledger.terms(change.node, change.before)
    if after is None or not terms or (sent := world.watch.sent.get(after.target)) is None:
        return None
    waves = waves_since(change.history, sent.version)
    checks = [check for check in (waves[0].get("analysis") or () if waves else ()) if "promql" in check]
    if not checks or not (tried := is_later(change, waves, world)):
        return None
    if is_promoted(change, after.target):
        return None
    owners = change.history.owners(change.node, change.writer)
    asked = world.watch.asked_since(after.target)
    own = {name for name in change.history.nodes() if change.history.owners(name, change.writer) & owners}
    told = [each for each in world.prometheus.told if each.at >= asked and not own.isdisjoint(NAME.findall(each.query))]
    for check in checks:
        if not _has_passed(told, seconds(check["for"]), terms[0].at):
            shown = ", ".join(f"{each.mood} at {each.at - world.began:.1f}" for each in told[-4:])
            return f"{', '.join(tried[:3])} were sent to {after.target} before, and the check was answered: {shown or 'never'}"
    return None


def _has_passed(told: Sequence[Told], lasts: float, granted: float) -> bool:
    """Tell whether the answers up to some moment shortly before a grant were good for long enough."""
    first = last = None
    for each in told:
        if each.at > granted:
            break
        if each.mood is not Mood.PASSES:
            if last is not None and each.at >= granted - UNDER_WAY and first is not None and last - first >= lasts:
                return True
            first = last = None
            continue
        first, last = first if first is not None else each.at, each.at
    return first is not None and last is not None and last - first >= lasts - 0.1


def forbidden_before_idle(pod: Object, node: str, process: Process, world: SimulatedWorld) -> str | None:
    """Say why no pod of a node may be evicted yet: nodes are to be upgraded when nobody uses them, for a time that is not up, and
    a process has known that for a while.
    """
    watch = world.watch
    seen, sight, machine = watch.machines.up_to_date(node), watch.history.now(node), watch.machines.machine(node)
    if seen is None or sight is None or machine is None or not machine.driver or sight.uid != seen.uid:
        return None
    settings, version, _ = watch.history.setting("opportunistic")
    if settings is None or any(map(is_broken, watch.history.settings_since(version))) or watch.is_overwritten(node):
        return None
    if any(spec.get("opportunistic") is None for knew in process.lately() for spec in watch.history.settings(knew)):
        return None
    asked, memory = watch.asked_for(node) >= seen.at, sight.memory()
    if watch.began.get(node, 0) <= version or asked or memory is None or memory.forced:
        return None
    pods = world.driver_pods(node)
    if len(pods) != 1 or pods[0]["metadata"].get("deletionTimestamp") or not _is_ready(pods[0]):
        return None  # its driver was touched: what comes to the node is evicted as ever
    if any(each.writer is None and each.in_progress for each in watch.history.sights(node) if each.version > seen.version):
        return None
    values, first = watch.history.wanted_since("opportunistic")
    if memory.waiting and watch.history.wanted_at("opportunistic", memory.waiting):
        first = min(first, memory.waiting)  # no process saw the setting away: it would have forgotten
    began = max(seen.at, first)
    left = began + min(seconds(each["until"]) for each in values) - world.now()
    if left <= 0 or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return None
    return f"it has not waited since before {began - world.began:.1f}, and nobody is to be evicted for {left:.0f} s more"


def _is_ready(pod: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


def gives_up_after(world: SimulatedWorld, node: str) -> float | None:
    """Return how long a node may wait for its pods before it serves again or fails; None where it may wait, or does not."""
    settings, version, _ = world.watch.history.setting("undrainable")
    behaviour, sight = (settings or {}).get("behaviour"), world.watch.history.now(node)
    if behaviour not in ("Skip", "Fail") or any(map(is_broken, world.watch.history.settings_since(version))):
        return None
    if sight is None or sight.state not in LEAVING or is_paused(world.leader, world, node):
        return None
    pods = world.driver_pods(node)
    untouched = len(pods) == 1 and not pods[0]["metadata"].get("deletionTimestamp") and _is_ready(pods[0])
    return seconds(settings.get("after", "60m")) if untouched and sight.ready else None


# Images.


def is_staging(pod: Object) -> bool:
    """Tell whether a pod has images pulled, and does nothing else."""
    return (pod["metadata"].get("labels") or {}).get("app") == names.STAGING_APP


def wrong_staging_pod(pod: Object, process: Process, world: SimulatedWorld) -> str | None:
    """Say what is wrong with a pod that an operator makes to have images pulled, or that it makes it now."""
    spec, node = pod["spec"], _meant_for(pod)
    for container in spec["containers"]:
        rights = container.get("securityContext") or {}
        if rights.get("privileged") or container.get("volumeMounts") or (rights.get("capabilities") or {}).get("add"):
            return f"container {container['name']} has rights"
        if {"name": names.VISIBLE_DEVICES, "value": "void"} not in (container.get("env") or ()):
            return f"container {container['name']} may be given GPUs"
    if devices_wanted(spec) or any(spec.get(field) for field in ("volumes", "resourceClaims", "hostPID", "priorityClassName")):
        return "it asks for more than images"
    view = world.watch.history.view(node, process)
    # An idle node is moved though upgrades are off, where its NVIDIADriver is gone.
    moves = view is not None and bool(view.owner) and world.watch.history.is_gone(process, view.owner)
    if is_paused(process, world, node) and not moves:
        return "upgrades are off"
    if view is not None and view.skipped:
        return "the node is to be skipped"
    # Those for an earlier driver go in the very pass that makes these.
    own = pod["metadata"]
    others = [meta for meta in (each["metadata"] for each in _staging_pods(world) if _pulls(each, world))
              if meta["uid"] != own["uid"] and int(meta["resourceVersion"]) <= process.known["pods"]
              and meta["labels"].get(names.STAGING_IMAGES) == own["labels"].get(names.STAGING_IMAGES)]
    settings = known_settings(process, world.watch.history)
    most = max((_prestage(spec).get("parallel", 10) for spec in settings if spec is not None), default=None)
    if most is not None and None not in settings and len(others) >= most:
        return f"{len(others)} others are there, and {most} may be"
    return None


def _prestage(spec: Object) -> Object:
    found: Object = spec.get("prestage") or {}
    return found


def _staging_pods(world: SimulatedWorld) -> Iterator[Object]:
    return (pod for pod in world.sandbox.store.list("pods", names.DEFAULT_NAMESPACE) if is_staging(pod))


def _pulls(pod: Object, world: SimulatedWorld) -> bool:
    """Tell whether a pod that nobody has deleted has yet to have an image pulled."""
    machine = world.watch.machines.machine(_meant_for(pod))
    lacking = machine is not None and any(container["image"] not in machine.images for container in pod["spec"]["containers"])
    return lacking and not pod["metadata"].get("deletionTimestamp")


def _meant_for(pod: Object) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def staging_left(world: SimulatedWorld) -> str | None:
    """Name a pod for images that stayed behind, or that has GPUs."""
    found = next((pod["metadata"]["name"] for pod in _staging_pods(world)), None)
    return None if found is None else f"pod {found}, which has images pulled"


def staging_pods_with_gpus(world: SimulatedWorld, node: str) -> str | None:
    """Name a pod for images that has GPUs of a machine."""
    machine = world.watch.machines.machine(node)
    users = machine.users.values() if machine is not None else ()
    return next((who for who in users if who.startswith(f"{names.DEFAULT_NAMESPACE}/{names.STAGING_APP}")), None)


def nobody_starts_before_its_images_are_there(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node that serves for a driver whose image it has yet to pull, where that is to be there before."""
    after, terms = change.after.memory(), world.watch.ledger.terms(change.node, change.before)
    machine = world.watch.machines.machine(change.node)
    if not change.admits or after is None or not terms or machine is None or not machine.driver or not machine.digest:
        return None
    for knower in terms[0].granters:
        for spec in known_settings(knower, change.history):
            wanted = _prestage(spec) if spec is not None else {}
            if wanted.get("mode") != "Image" or wanted.get("onFailure", "Hold") != "Hold":
                return None
    out = world.watch.machines.was_without(change.node, change.writer.known["pods"]) and not users_of(machine)
    out = out or not world.watch.machines.wanted(change.node)  # it is to lose its driver
    if out or world.watch.annotated_by_people(change.node, names.STAGED) or world.watch.is_overwritten(change.node):
        return None
    spec = _revised(after.target, world)
    if spec is None or _driver_of(spec) in ("", machine.digest) or _is_in_step(change, spec, world):
        return None
    images = [str(container["image"]) for container in (*(spec.get("initContainers") or ()), *spec["containers"])]
    lacking = [image for image in images if image not in machine.images]
    return f"{', '.join(lacking)} is not there" if lacking else None


def _revised(target: str, world: SimulatedWorld) -> Object | None:
    """Return what driver pods of a revision are, unless several revisions are called so."""
    revisions = world.sandbox.store.list("controllerrevisions.apps", names.DEFAULT_NAMESPACE)
    found = [each for each in revisions if (each["metadata"].get("labels") or {}).get(names.REVISION_HASH) == target]
    return found[0]["data"]["spec"]["template"]["spec"] if len(found) == 1 else None


def _is_in_step(change: NodeChange, spec: Object, world: SimulatedWorld) -> bool:
    """Tell whether the node has a driver pod that brings the same driver: that one pulls its own images."""
    return any(_driver_of(pod["spec"]) == _driver_of(spec) for pod in world.driver_pods(change.node) if is_driver(pod))


def _driver_of(spec: Object) -> str:
    from tools.simulate.rules import digest_of

    return digest_of(spec)


def most_quarantined(settings: Sequence[Object | None], every: Sequence[Object]) -> int:
    """Return how many nodes may be quarantined, beside those that the limits of a rollout allow. Settings that are deleted stay
    in force for a minute, and for another one where the operator is restarted within that.
    """
    unsure = None in settings or {} in settings
    found = [spec.get("undrainable") or {} for spec in (every if unsure else settings) if spec is not None]
    return max((int(each.get("maxQuarantined", 1)) for each in found if each.get("behaviour") == "Quarantine"), default=0)


NODE_RULES: Sequence[Callable[[NodeChange, SimulatedWorld], str | None]] = (
    nobody_goes_past_a_canary_whose_check_has_not_passed, nobody_starts_before_its_images_are_there,
)


