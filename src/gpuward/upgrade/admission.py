"""The step of a node that waits for its turn, and the move that admits it."""

from __future__ import annotations

from gpuward import names
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.model.waits import Plain
from gpuward.upgrade.done_or_failed import unfinished
from gpuward.upgrade.drain import cordon_annotations, cordon_owner
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.in_use import in_the_way
from gpuward.upgrade.maintenance_step import forgotten
from gpuward.upgrade.recovery import needs_recovery
from gpuward.upgrade.step import Move, Rest, Step, Wait, step
from gpuward.upgrade.uncordon import leftovers
from gpuward.upgrade.validation_off import lacking


@step(State.UPGRADE_REQUIRED)
def leave_queue(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Send a node back whose driver is in step again: the target was rolled back before its turn came, or somebody replaced the
    driver pod and the new driver is loaded. One whose old driver pod is not ready waits for that, disturbed by nobody.

    Not one whose new driver pod does not get ready, as under a GPU pod, which has to leave first. Nor one that failed and got
    another driver pod since: that driver has to be validated.
    """
    if not node.in_step or node.needed or needs_recovery(node) or _is_stuck(node):
        return Rest()
    if _is_loaded(node):
        return Move(State.DONE, annotations=leftovers(node), target=node.target)
    hold = unfinished(node)
    return Rest() if hold is None else Wait(hold)


def _is_loaded(node: NodeFacts) -> bool:
    return node.driver_ready


def _is_stuck(node: NodeFacts) -> bool:
    """Tell whether a driver pod that came while the node waited is not ready, or one cannot load under GPU pods."""
    return (node.replaced and not node.driver_ready) or bool(in_the_way(node))


@step(State.NODE_MAINTENANCE_REQUIRED)
@step(State.POST_MAINTENANCE_REQUIRED)
def leave_to_maintenance(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Leave alone a node that NVIDIA's operator handed to a maintenance operator, and say so: it keeps its slot."""
    return Wait(Hold(Plain(Reason.MAINTENANCE), node.record.since))


def admit(node: NodeFacts) -> Move:
    """Return the move that starts a node's upgrade; the same driver under another template takes the short way."""
    requested = forgotten(node) | ({names.UPGRADE_REQUESTED: None} if node.requested else {})
    if node.restart_only:
        owner = cordon_owner(node)
        return Move(
            State.POD_RESTART_REQUIRED,
            annotations=requested | cordon_annotations(node, owner),
            cordon=owner,
            started=True,
            target=node.target,
            forget=node.retargeted,
            restart=node.target_digest,
        )
    return Move(
        State.CORDON_REQUIRED,
        annotations=requested,
        forced=node.requested or needs_recovery(node) or (node.in_step and _is_stuck(node)),
        started=True,
        target=node.target,
        forget=node.retargeted,
    )


Turn = tuple[bool, bool, float, int, int, int, float, str]


def turn(node: NodeFacts) -> Turn:
    """Return the sort key of the queue: what disturbs least comes first, so that most nodes are done before anything must move.

    Nodes that people keep an operand from which validation needs come last of all: whether it works without is not known.

    Nodes that serve with the driver that they should have, and that somebody asks for all the same, come after those that need
    one; among them that which was upgraded last is the last: whoever asks again and again must not keep others waiting.

    Nodes that failed before come after all others, then idle nodes before those with GPU pods to move or jobs to wait for, few
    pods before many, low priorities before high ones, and pods that ran a short time before those that would lose much; then by
    name.
    """
    failure = node.record.failure
    pods = () if node.restart_only else node.to_evict.pods
    again = node.driver_ready and node.needed and not node.unschedulable
    return (
        bool(lacking(node.node)),
        again,
        node.record.started if again else 0.0,
        failure.attempts if failure and not node.retargeted else 0,
        len({pod.ref for pod in pods} | {job.ref for job in node.jobs}),
        max((pod.priority for pod in pods), default=0),
        -max((pod.created for pod in pods), default=0.0),
        node.node.name,
    )
