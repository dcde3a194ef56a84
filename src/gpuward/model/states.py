"""The states of a driver upgrade and the table of legal transitions between them.

A node's state is the value of its label `nvidia.com/gpu-driver-upgrade-state`. The names are NVIDIA's, and no other value is
ever written. A node walks the main route

    unknown/upgrade-done -> upgrade-required -> cordon-required -> wait-for-jobs-required -> pod-deletion-required
        [-> drain-required] -> pod-restart-required -> validation-required -> uncordon-required -> upgrade-done

with eight ways off it: a restart that changes nothing about the driver goes from upgrade-required straight to
pod-restart-required; a target that was rolled back sends an undisturbed node straight to uncordon-required or upgrade-done;
a GPU pod that turns up just before the driver is replaced sends the node back to pod-deletion-required; a node that somebody
set to uncordon-required by hand is validated first; every step that can go wrong leads to upgrade-failed, from where it is
tried again; a failed node that lost its label in a pause gets it back; a node whose driver has yet to be replaced goes back to
upgrade-required when its ClusterPolicy goes away; and a node that no driver DaemonSet selects any more loses its state.
`TRANSITIONS` holds all of it; anything else is a bug and raises.
"""

from __future__ import annotations

from enum import StrEnum

from gpuward.errors import IllegalTransition


class State(StrEnum):
    """Name a step of the upgrade as the node label spells it; an absent label is UNKNOWN."""

    UNKNOWN = ""
    UPGRADE_REQUIRED = "upgrade-required"
    CORDON_REQUIRED = "cordon-required"
    WAIT_FOR_JOBS_REQUIRED = "wait-for-jobs-required"
    POD_DELETION_REQUIRED = "pod-deletion-required"
    DRAIN_REQUIRED = "drain-required"
    NODE_MAINTENANCE_REQUIRED = "node-maintenance-required"
    POST_MAINTENANCE_REQUIRED = "post-maintenance-required"
    POD_RESTART_REQUIRED = "pod-restart-required"
    VALIDATION_REQUIRED = "validation-required"
    UNCORDON_REQUIRED = "uncordon-required"
    DONE = "upgrade-done"
    FAILED = "upgrade-failed"


_UNDISTURBED = frozenset({State.UNCORDON_REQUIRED, State.DONE})
"""Where a node goes whose driver turned out to need no change before it was touched."""

TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNKNOWN: frozenset({State.UPGRADE_REQUIRED, State.DONE, State.FAILED}),
    State.DONE: frozenset({State.UPGRADE_REQUIRED, State.UNKNOWN}),
    State.UPGRADE_REQUIRED: frozenset(
        {State.CORDON_REQUIRED, State.POD_RESTART_REQUIRED, State.DONE, State.UNKNOWN}
    ),
    State.CORDON_REQUIRED: frozenset({State.WAIT_FOR_JOBS_REQUIRED, State.UPGRADE_REQUIRED, State.UNKNOWN}) | _UNDISTURBED,
    State.WAIT_FOR_JOBS_REQUIRED: frozenset(
        {State.POD_DELETION_REQUIRED, State.UPGRADE_REQUIRED, State.FAILED, State.UNKNOWN}
    ) | _UNDISTURBED,
    State.POD_DELETION_REQUIRED: frozenset(
        {State.POD_RESTART_REQUIRED, State.DRAIN_REQUIRED, State.UPGRADE_REQUIRED, State.FAILED, State.UNKNOWN}
    ) | _UNDISTURBED,
    State.DRAIN_REQUIRED: frozenset(
        {State.POD_RESTART_REQUIRED, State.UPGRADE_REQUIRED, State.FAILED, State.UNKNOWN}
    ) | _UNDISTURBED,
    State.POD_RESTART_REQUIRED: frozenset(
        {State.VALIDATION_REQUIRED, State.POD_DELETION_REQUIRED, State.UPGRADE_REQUIRED, State.FAILED, State.UNKNOWN}
    ),
    State.VALIDATION_REQUIRED: frozenset(
        {State.UNCORDON_REQUIRED, State.DONE, State.POD_RESTART_REQUIRED, State.FAILED, State.UNKNOWN}
    ),
    State.UNCORDON_REQUIRED: frozenset({State.DONE, State.VALIDATION_REQUIRED, State.UNKNOWN}),
    State.FAILED: frozenset({State.UPGRADE_REQUIRED, State.VALIDATION_REQUIRED, State.UNKNOWN}),
    State.NODE_MAINTENANCE_REQUIRED: frozenset(),
    State.POST_MAINTENANCE_REQUIRED: frozenset(),
}
"""Legal next states. The two maintenance states belong to NVIDIA's requestor mode: gpuward reads them and leaves them alone."""

AT_REST: frozenset[State] = frozenset({State.UNKNOWN, State.DONE})
"""States of nodes about which nothing has to be done."""

IN_PROGRESS: frozenset[State] = frozenset(
    {State.CORDON_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED,
     State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED, State.POD_RESTART_REQUIRED,
     State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED}
)
"""States that use one of the `maxParallelUpgrades` slots."""

MAINTENANCE: frozenset[State] = frozenset({State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED})
"""States in which a maintenance operator has a node: it is left to that one."""

UNDISTURBED: frozenset[State] = frozenset(
    {State.CORDON_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED}
)
"""States in progress in which the driver pod has not been touched yet."""


def parse_state(label: str | None) -> State | None:
    """Return the state that a label value names, or None for a value that is not one of NVIDIA's."""
    try:
        return State(label or "")
    except ValueError:
        return None


def check_transition(before: State, after: State) -> None:
    """Raise IllegalTransition unless the table allows going from `before` to `after`."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(f"{before or 'unknown'} -> {after or 'unknown'} is not in the transition table")
