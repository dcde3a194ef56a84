"""What an NVIDIADriver's status says, in the words of NVIDIA's operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpuward.operands.readiness import about_pods
from gpuward.operands.status import Verdict, missing
from gpuward.policy.unmade import SYNCING_MESSAGE

NOT_READY: Final = "notReady"
NOT_FOLLOWED: Final = frozenset({"ReconcileFailed", "ConflictingNodeSelector"})
"""Reasons of one that cannot be followed as it is."""
NOT_APPLIED: Final = "DriverNotApplied"
"""The reason of one whose driver people ask for and its DaemonSets do not have yet."""
DISABLED: Final = Verdict("disabled", "Reconciled", "useNvidiaDriverCRD is not enabled in ClusterPolicy", ready=False)
READY: Final = Verdict("ready", "Reconciled", "All resources have been successfully reconciled", ready=True)
WAITING: Final = Verdict(NOT_READY, "DriverNotReady", "Waiting for driver pod to be ready", ready=False)


def disabled(pods: int, *, off: bool = False) -> Verdict:
    """Return the verdict on an NVIDIADriver that is not followed; its DaemonSets may still have driver pods, and keep them where
    the ClusterPolicy has drivers switched `off`.
    """
    if not pods:
        return DISABLED
    nodes = "1 node" if pods == 1 else f"{pods} nodes"
    left = f"; its drivers run on {nodes} until "
    left += ("it is deleted: driver.enabled is false in ClusterPolicy" if off
             else "the ClusterPolicy's are made, and are removed if it is deleted before")
    return msgspec.structs.replace(DISABLED, message=DISABLED.message + left)


def refused(problems: Sequence[object], *, misplaced: bool) -> Verdict:
    """Return the verdict on an NVIDIADriver that cannot be followed; `misplaced` if it is about how it chooses its nodes."""
    reason = "ConflictingNodeSelector" if misplaced else "ReconcileFailed"
    return Verdict(NOT_READY, reason, "; ".join(str(problem) for problem in problems), ready=False)


def conflicting(conflict: str, *, node: str, more: str = "") -> Verdict:
    """Return the verdict on one that others are in the way of: on a node, or, without one, as a second default; and on what else
    cannot be followed.
    """
    message = "; ".join(filter(None, (conflict, more)))
    return Verdict(NOT_READY, "ConflictingNodeSelector" if node else "ReconcileFailed", message, ready=False)


def failed(state: str, problem: object) -> Verdict:
    """Return the verdict when its objects cannot be made."""
    return Verdict(NOT_READY, "ReconcileFailed", f"{SYNCING_MESSAGE}{state}: {problem}", ready=False)


def and_failed(verdict: Verdict, state: str, problem: object) -> Verdict:
    """Return a verdict with what is wrong besides, if its objects could not be made either."""
    if not problem:
        return verdict
    return msgspec.structs.replace(verdict, message=f"{verdict.message}; {failed(state, problem).message}")


def behind_machines(daemonset: str) -> Verdict:
    """Return the verdict on one whose host drivers wait until those of the NVIDIADriver that had its name before are gone."""
    message = (f"{WAITING.message}; DaemonSet {daemonset} of an earlier NVIDIADriver with this name keeps its nodes until no "
               "virtual machine uses their GPUs")
    return msgspec.structs.replace(WAITING, message=message)


def judged(waiting: Mapping[str, str], lacking: Sequence[str] = (), behind: str = "") -> Verdict:
    """Return the verdict on one whose DaemonSets may wait for something, which may lack objects that it had, and of which one may
    be `behind` what it asks for, as that says.
    """
    if behind:
        message = f"{WAITING.message}; DaemonSet {behind}"
        return msgspec.structs.replace(WAITING, reason=NOT_APPLIED, message=message)
    if lacking:
        return msgspec.structs.replace(WAITING, message=f"{WAITING.message}; {missing(lacking)}")
    told = next(filter(about_pods, waiting.values()), "")
    return msgspec.structs.replace(WAITING, message=f"{WAITING.message}; {told}") if told else WAITING if waiting else READY


def alone(why: str) -> Verdict:
    """Return the verdict on one that is under no ClusterPolicy."""
    message = f"{why}: drivers run on, and none is upgraded until one is in force"
    return Verdict(NOT_READY, "NoClusterPolicy", message, ready=False)
