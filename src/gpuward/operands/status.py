"""What a ClusterPolicy's status says: the state, and the pair of conditions that goes with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuward.errors import PolicyError
from gpuward.labels.discovery import how_to_label
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.operands.readiness import about_pods, about_templates
from gpuward.operands.rollout import CONDITION as ROLLOUT
from gpuward.operands.rollout import Rollout
from gpuward.policy.unmade import FAILED_MESSAGE, NOT_FOLLOWED

READY_MESSAGE = "ClusterPolicy is ready as all resources have been successfully reconciled"
NO_GPU_MESSAGE = "No GPU node found, watching for new nodes to join the cluster."
NO_NFD_MESSAGE = f"No NFD labels found: {how_to_label()}"
UPGRADING_MESSAGE = (
    "NVIDIADriver upgrade has not completed; one or more NVIDIADriver-owned Nodes are marked pending, in-progress, or failed"
)
MISSING = "missing: "
"""How the part of a message begins that names objects which are not there."""
RIGHTS_MISSING = "RightsMissing"
"""The type of the condition that is there for as long as gpuward lacks rights that it can do without."""
LONGEST_MESSAGE = 32_768
"""Characters of a condition's message that the CRDs allow, as those of metav1.Condition."""
_COUNT = re.compile(r"\b[1-9]\d*\b")
_NAMED = re.compile(r"\([^()]*\)")
_PASSING = re.compile(r"; waiting: [^;]*")


class Verdict(msgspec.Struct, frozen=True):
    """Hold the state, and the condition that is True: its type, its reason and its message."""

    state: str
    reason: str
    message: str
    ready: bool
    rights: str = ""
    """Which rights are missing that gpuward can do without."""


def invalid(problems: Sequence[PolicyError]) -> Verdict:
    """Return the verdict on a policy that cannot be followed: every field at fault, its value and what to write."""
    return Verdict("notReady", NOT_FOLLOWED, "; ".join(str(problem) for problem in problems), ready=False)


def failed(state: str, problem: object) -> Verdict:
    """Return the verdict when the objects of one state cannot be made."""
    return Verdict("notReady", NOT_FOLLOWED, f"{FAILED_MESSAGE}{state}: {problem}", ready=False)


def judged(unready: Mapping[str, str], *, has_nfd_labels: bool, has_gpu_nodes: bool, upgrading: bool = False,
           lacking: Sequence[str] = ()) -> Verdict:
    """Return the verdict on states of which some are not ready; `upgrading` is for nodes that NVIDIADrivers own.

    The message begins as NVIDIA's, with the states' names; then it says what the first of them wait for, those before
    others whose new template waits for pods that are not ready, and names objects that are `lacking`, since whoever deleted them,
    or keeps them from being made, has to know.
    """
    waiting = " ".join(unready)
    if waiting or upgrading:
        message = "ClusterPolicy is not ready" + (f"; states not ready: [{waiting}]" if waiting else "")
        message += f"; {UPGRADING_MESSAGE}" if upgrading else ""
        message += f"; {missing(lacking)}" if lacking else ""
        first = sorted(unready.items(), key=lambda one: not about_templates(one[1]))
        message += "".join(f"; {state}: {why}" for state, why in first[:MOST_NAMED] if about_pods(why))
        return Verdict("notReady", "OperandNotReady", message, ready=False)
    if not has_nfd_labels:
        return Verdict("ready", "NFDLabelsMissing", NO_NFD_MESSAGE, ready=True)
    if not has_gpu_nodes:
        return Verdict("ready", "NoGPUNodes", NO_GPU_MESSAGE, ready=True)
    return Verdict("ready", "Reconciled", READY_MESSAGE, ready=True)


def missing(objects: Sequence[str]) -> str:
    """Say which objects are missing."""
    return f"{MISSING}{listed(objects, MOST_NAMED)}"


def differs_in_words_only(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Tell whether a status says the same as the current one but for its messages: those change often during a rollout."""

    def bare(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        keys = ("type", "status", "reason", "observedGeneration")
        return [tuple(one.get(key) for key in keys) for one in status.get("conditions") or ()]

    return wanted["state"] == current.get("state") and bare(wanted) == bare(current)


def differs_in_phase(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Tell whether the messages of two statuses tell of different things, and not only of how far these have come."""
    return _phases(wanted) != _phases(current)


def _phases(status: Mapping[str, Any]) -> dict[str, str]:
    """Return the messages by condition without numbers but 0, what is in parentheses, and reasons that end by themselves."""
    return {one.get("type", ""): _phase(one.get("message") or "") for one in status.get("conditions") or ()}


def _phase(message: str) -> str:
    while (bare := _NAMED.sub("*", message)) != message:
        message = bare
    return _PASSING.sub("", _COUNT.sub("some", message))


def status_of(
    verdict: Verdict, current: Mapping[str, Any], namespace: str, now: float, rollout: Rollout | None = None,
    generation: int = 0,
) -> dict[str, Any] | None:
    """Return the status to write, or None when the current one says the same. An empty `namespace` is left out.

    The pair of conditions is NVIDIA's: the one that holds carries reason and message, the other one the other's name. A Ready
    that is False has the message too, since many look at no other condition. Their
    lastTransitionTime moves only when their status does. Ours of the driver upgrade stays as it is while `rollout` is not known.
    With a `generation` the pair says which one of the object it is about. Missing rights are a condition of their own.
    """
    before = {condition.get("type"): condition for condition in current.get("conditions") or ()}
    holding = {"status": "True", "reason": verdict.reason, "message": verdict.message}
    other = {"status": "False", "reason": "Error", "message": verdict.message}
    if verdict.ready:
        other |= {"reason": "Ready", "message": ""}
    about = {"observedGeneration": generation} if generation else {}
    conditions = [
        _condition("Ready", holding if verdict.ready else other, before.get("Ready"), now) | about,
        _condition("Error", other if verdict.ready else holding, before.get("Error"), now) | about,
    ]
    if rollout is not None:
        content = {"status": rollout.status, "reason": rollout.reason, "message": rollout.message}
        seen = {"observedGeneration": rollout.generation} if rollout.generation else {}
        conditions.append(_condition(ROLLOUT, content, before.get(ROLLOUT), now) | seen)
    elif ROLLOUT in before:
        conditions.append(dict(before[ROLLOUT]))
    if verdict.rights:
        content = {"status": "True", "reason": "Forbidden", "message": verdict.rights}
        conditions.append(_condition(RIGHTS_MISSING, content, before.get(RIGHTS_MISSING), now))
    wanted = {"state": verdict.state, **({"namespace": namespace} if namespace else {}), "conditions": conditions}
    return None if all(current.get(key) == value for key, value in wanted.items()) else wanted


def _condition(kind: str, content: Mapping[str, str], before: Mapping[str, Any] | None, now: float) -> dict[str, Any]:
    moved = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if before is not None and before.get("status") == content["status"]:
        moved = before.get("lastTransitionTime", moved)
    return {"type": kind, **content, "message": clipped(content["message"]), "lastTransitionTime": moved}


def clipped(message: str) -> str:
    """Return a message that a condition can have: one that is longer would have the whole status refused."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE - 3]}..."
