"""What is noted of a node's upgrade at each of its steps, and what becomes of that at its end: an entry in the node's history.

Nothing is written for it but what is written anyway: both are parts of the patch in which the node goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.course import MOST_SECONDS, Course
from gpuward.model.history import Ending, encode_history, history_of, kept_out, past_upgrade, with_upgrade
from gpuward.model.reading import read_count
from gpuward.model.record import CordonOwner
from gpuward.model.removal import NO_DRIVER
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.versions import version_of
from gpuward.model.views import PodView
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.step import Move

DIGEST: Final = 8
"""Characters of a driver's configuration digest that tell it from others."""
STEP_OF: Final[Mapping[State, int]] = MappingProxyType({
    State.WAIT_FOR_JOBS_REQUIRED: 0, State.POD_DELETION_REQUIRED: 1, State.DRAIN_REQUIRED: 1, State.POD_RESTART_REQUIRED: 2,
    State.VALIDATION_REQUIRED: 3})
"""Which of the durations a state counts to."""
_EMPTIED: Final = frozenset({State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED})
_ENDED: Final = frozenset({State.DONE, State.FAILED, State.UNKNOWN, State.UPGRADE_REQUIRED})
_GOES_ON: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet"})
"""Controllers whose pods serve on elsewhere: with one that goes no work is lost."""


def note(node: NodeFacts, move: Move, now: float) -> tuple[Course | None, dict[str, str | None]]:
    """Return what is known of a node's upgrade once it follows a move, and the annotation with its history where that changes."""
    known, under_way = node.record.course, node.state in IN_PROGRESS
    if move.to in _ENDED and not under_way and (known is None or not known.began):
        return _at_rest(node, move, now)
    if not (move.started or under_way or known is not None or move.to in IN_PROGRESS):
        return None, {}
    if move.started or known is None or not known.began:
        known = _begun(node, move, now)
    course = _told(_counted(_timed(known, node, now), node, move, now), node)
    course = course.cordoned(now) if move.cordon is CordonOwner.GPUWARD else course
    if move.to not in _ENDED:
        return course, {}
    return _left_out(course, node, move, now), _entry(course, node, move, now)


def _at_rest(node: NodeFacts, move: Move, now: float) -> tuple[Course | None, dict[str, str | None]]:
    """Note of a node that failed, and that our cordon keeps out of service since, when that is over."""
    known = node.record.course
    if known is None or (known.out and _is_out(node, move)):
        return known, {}
    before = node.node.annotations.get(names.UPGRADE_HISTORY)
    text = encode_history(kept_out(history_of(before), known.out_until(now)))
    return None, {} if text is None or text == before else {names.UPGRADE_HISTORY: text}


def _begun(node: NodeFacts, move: Move, now: float) -> Course:
    taken_over = node.state in IN_PROGRESS and bool(node.record.started)
    began = node.record.started if taken_over else now
    ours = node.unschedulable and node.record.cordon is CordonOwner.GPUWARD
    known = node.record.course or Course()
    driver = node.driver
    loaded = version_of(driver.driver_image, driver.placed_by.get(names.DRIVER_KERNEL, "")) if driver is not None else ""
    # The pod of an attempt that failed is of the driver that this one tries again: what the node had is in its history.
    before = _before_failure(node) or loaded or node.node.labels.get(names.DRIVER_VERSION, "")
    return Course(began, known.out or (began if ours else 0.0), known.was_out,
                  before if not node.in_step or move.started else "", asked=move.asked)


def _before_failure(node: NodeFacts) -> str:
    """Return the version that the node had before attempts at the same driver, of which the last one failed."""
    last = next(iter(history_of(node.node.annotations.get(names.UPGRADE_HISTORY))), None)
    if last is None or last.ending is not Ending.FAILED or last.digest != node.target_digest[:DIGEST]:
        return ""
    return last.before


def _timed(course: Course, node: NodeFacts, now: float) -> Course:
    """Count the time in the state that the node leaves."""
    step, since = STEP_OF.get(node.state), node.record.since
    if step is None or not since:
        return course
    jobs, emptied, driver, validated = (
        min(each + (max(0.0, now - since) if number == step else 0.0), MOST_SECONDS) for number, each in enumerate(course.spent))
    return msgspec.structs.replace(course, spent=(jobs, emptied, driver, validated))


def _counted(course: Course, node: NodeFacts, move: Move, now: float) -> Course:
    """Count the pods that are about to be evicted, and take off those that were to be, and are still there."""
    pods, lost = course.evicted, course.lost
    if node.state in _EMPTIED:
        since = node.record.since
        stayed = [pod for pod in _to_go(node, node.state) if pod.created <= since]
        pods, lost = pods - len(stayed), lost - sum(_work(pod, since) for pod in stayed)
    if move.to in _EMPTIED:
        going = _to_go(node, move.to)
        pods, lost = pods + len(going), lost + sum(_work(pod, now) for pod in going)
    if (pods, lost) == (course.evicted, course.lost):
        return course
    return msgspec.structs.replace(course, evicted=max(0, pods), lost=min(max(0.0, lost), MOST_SECONDS))


def _to_go(node: NodeFacts, state: State) -> list[PodView]:
    pods: Iterable[PodView] = (node.to_evict if state is State.POD_DELETION_REQUIRED else node.to_drain).pods
    return [pod for pod in pods if not (pod.deleting or pod.finished)]


def _work(pod: PodView, at: float) -> float:
    """Return the GPU-seconds that are lost with a pod: it had run for so long, and none takes up where it was."""
    goes_on = pod.owner is not None and pod.owner.kind in _GOES_ON
    if goes_on or not pod.started or not pod.uses_gpu or pod.idle_claim:
        return 0.0
    return max(0.0, at - pod.started) * max(1, pod.gpus)


def _told(course: Course, node: NodeFacts) -> Course:
    """Note what the node gets, as far as that is known now, and how many GPUs it has: discovery may take its labels away."""
    to = NO_DRIVER if node.removing or node.record.target == NO_DRIVER else node.target_version
    gpus = read_count(node.node.labels.get(names.GPU_COUNT, ""))
    return msgspec.structs.replace(
        course.sent_to(to), digest=node.target_digest[:DIGEST] or course.digest, gpus=max(gpus, course.gpus))


def _is_out(node: NodeFacts, move: Move) -> bool:
    """Tell whether our cordon keeps a node out of service after a move."""
    cordoned = (node.unschedulable or move.cordon is not None) and not move.uncordon
    return cordoned and move.to in (State.FAILED, State.UPGRADE_REQUIRED)


def _left_out(course: Course, node: NodeFacts, move: Move, now: float) -> Course | None:
    """Return what is kept after the end of an attempt: that the node is out of service still."""
    return Course(out=now) if course.out and _is_out(node, move) else None


def _entry(course: Course, node: NodeFacts, move: Move, now: float) -> dict[str, str | None]:
    """Return the history with the upgrade that ends; nothing where nobody was disturbed and nothing changed."""
    ending = _ending(course, node, move)
    if _is_removed(course, node, move):
        course = msgspec.structs.replace(course, to=NO_DRIVER, digest="")
    if ending is Ending.BACK and not (course.out or course.was_out or course.evicted):
        return {}
    failed_in = str(node.state) if ending is Ending.FAILED and node.state in IN_PROGRESS else ""
    past = past_upgrade(course, move.driver or node.record.driver, now, ending, failed_in)
    before = history_of(node.node.annotations.get(names.UPGRADE_HISTORY))
    text = encode_history(with_upgrade(before, past))
    return {} if text is None else {names.UPGRADE_HISTORY: text}


def _ending(course: Course, node: NodeFacts, move: Move) -> Ending:
    if move.to is State.FAILED:
        return Ending.FAILED
    if move.to is State.DONE:
        return Ending.BACK if node.untouched and not node.record.forced else Ending.DONE
    return Ending.DONE if _is_removed(course, node, move) else Ending.BACK


def _is_removed(course: Course, node: NodeFacts, move: Move) -> bool:
    """Tell whether a node is left without the driver that it had, whatever it was sent to, as when its NVIDIADriver was deleted
    meanwhile: where none is known to have been there, none was removed.
    """
    return move.to is State.UNKNOWN and node.driver is None and (bool(course.before) or node.record.target == NO_DRIVER)



