"""What the condition `DriverUpgrade` of a policy says of the fleet: one reason, and who is held by what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from gpuward.model.abandoned import told_of_abandoned
from gpuward.model.departed import SOON
from gpuward.model.driver_images import DriverImages, ImageMissing, told_of_missing
from gpuward.model.explain import sentence, too_large
from gpuward.model.plan import Counts, Hold, NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.removal import DeletionUnseen
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import AT_REST, IN_PROGRESS, State
from gpuward.model.waits import NewDriverFails

CONDITION = "DriverUpgrade"
MOST_NODES = 3
"""Nodes named for each reason."""
MOST_IMAGES = 30
"""Missing images named: who reads the condition takes all others to be there. Precompiled drivers have one for each kernel."""
_ENDED = AT_REST | {State.FAILED}
"""States of nodes that are neither under way nor wait to be."""


_BEGINNING = frozenset({Reason.TEMPLATE_SETTLING, Reason.IMAGE_NOT_STAGED})
"""What nodes wait for at the beginning of a rollout that goes well."""
_STOPS = {Reason.ABORTED: "Aborted", Reason.PLAN_DIFFERS: "PlanDiffers",
          Reason.FAILURE_BUDGET: "FailureBudgetExceeded", Reason.WAVE_FAILED: "WaveFailed", Reason.WAVE_EMPTY: "WaveEmpty",
          Reason.ANALYSIS_FAILED: "AnalysisFailed",
          Reason.NEW_DRIVER_FAILS: "NewDriverFails", Reason.REFUSED_ELSEWHERE: "ReplacementRefused",
          Reason.EVICTION_FORBIDDEN: "EvictionForbidden",
          Reason.TEMPLATE_EDITED: "TemplateEdited", Reason.NO_NODE_MAY_START: "NoNodeMayStart"}
"""What is said of a rollout that one thing stops, the most important first."""

_QUOTED = frozenset({Reason.TEMPLATE_EDITED, Reason.REFUSED_ELSEWHERE, Reason.EVICTION_FORBIDDEN, Reason.LEDGER_REFUSED,
                     Reason.NO_NODE_MAY_START, Reason.WINDOW_SHUT, Reason.DOMAIN_BROKEN, Reason.ABORTED, Reason.PLAN_DIFFERS,
                     Reason.WAVE_FAILED, Reason.WAVE_EMPTY, Reason.WAVE_SOAKING,
                     Reason.ANALYSIS_FAILED, Reason.ANALYSIS_UNKNOWN, Reason.ANALYSIS_RUNNING,
                     Reason.APPROVAL_REQUIRED, Reason.WAVE_NOT_DONE, Reason.PAUSED})
"""Reasons of the fleet that say nothing without what they quote."""

_ONCE = {Reason.COMES_BACK: "is tried again once those pods are gone, or no longer tolerate the cordon",
         Reason.DOES_NOT_STOP: "is given back once that pod has gone",
         Reason.DRIVER_REPELLED: "is tried again once a driver pod may come there",
         Reason.VALIDATION_OFF: "is tried again once a validator may get ready there",
         Reason.DRIVER_POD_MISSING: "is tried again once a driver pod is made there",
         Reason.DRIVER_UNPLACED: "is tried again once its driver pod finds a place there",
         Reason.NODE_NOT_READY: "is tried again once it is Ready",
         Reason.SKIPPED: "is tried again once it is skipped no more",
         Reason.ABORTED: "is tried again with another driver, or once the abort is taken back"}
"""What has to come before a node is tried again whose upgrade has failed."""

_PATIENT = (Reason.ANALYSIS_UNKNOWN, Reason.APPROVAL_REQUIRED, Reason.WAVE_SOAKING, Reason.ANALYSIS_RUNNING, Reason.IDLE_AWAITED,
            Reason.GANG_SPARED, Reason.WINDOW_SHUT)
"""What a rollout waits for as a whole, the most important first; nodes of later waves wait for earlier ones meanwhile."""

HOLDS_ALL = frozenset({*_STOPS.values(), *map(str, _PATIENT), "Paused"})
"""Reasons of the condition that hold the rollout as a whole."""
GOES_ON = frozenset({"Progressing", "UpToDate", "NodesFailed"})
"""Reasons after which nothing does; between two nodes others come and go."""


class Rollout(msgspec.Struct, frozen=True):
    """Hold the condition: True while on every managed node the target driver is loaded and validated."""

    status: str
    reason: str
    message: str
    generation: int = 0
    """Of the policy that it is about: whoever waits for the condition after an edit must not meet an older one."""


def rollout_of(plan: Plan) -> Rollout:
    """Return how the driver upgrade of the fleet stands, the most important reason first."""
    if not plan.nodes:
        return Rollout("Unknown", "NoNodes", "No node has a driver that is managed: the condition Ready says what is missing")
    reason = reason_of(plan)
    off = "; automatic upgrades are off" if reason == "UpToDate" and not plan.auto_upgrade else ""
    return Rollout("True" if reason == "UpToDate" else "False", reason, _message(plan) + off)


def reason_of(plan: Plan) -> str:
    """Return the reason of the condition where there are nodes."""
    reasons, counts = Counter(hold.reason for hold in plan.holds.values()), plan.counts
    if reasons[Reason.INVALID_POLICY]:
        return "InvalidPolicy"
    if not plan.auto_upgrade:
        return "UpToDate" if counts.up_to_date == counts.total else "Paused"
    if reasons[Reason.NEW_DRIVER_FAILS] and _stops_a_part(plan):
        reasons[Reason.NEW_DRIVER_FAILS] = 0
    if stopped := next((told for held, told in _STOPS.items() if reasons[held]), ""):
        return stopped
    if _under_way(plan):
        return "Progressing"
    if waiting := [status for status in plan.nodes.values() if status.state not in _ENDED]:
        held = {status.hold.reason if status.hold is not None else Reason.TEMPLATE_SETTLING for status in waiting}
        patient = next((str(one) for one in _PATIENT if one in held), "")
        patient = patient if held <= {*_PATIENT, Reason.WAVE_NOT_DONE} else ""
        return "Progressing" if held & _BEGINNING else patient or "Blocked"
    if counts.failed:
        return "NodesFailed"
    if counts.up_to_date == counts.total:
        return "UpToDate"
    goes_on = reasons[Reason.TEMPLATE_SETTLING] or any(
        isinstance(hold.what, DeletionUnseen) and hold.what.why == SOON for hold in plan.holds.values())
    return "Progressing" if goes_on else "DriversNotReady"


def _stops_a_part(plan: Plan) -> bool:
    """Tell whether a new driver that fails stops the nodes of some DaemonSets alone, and others go on."""
    found = [hold.what for hold in plan.holds.values() if isinstance(hold.what, NewDriverFails)]
    stopped = {what.node for what in found}
    return bool(found) and all(what.part for what in found) and any(
        name not in stopped and status.state not in _ENDED
        and (status.hold is None or not (isinstance(status.hold.what, NewDriverFails) or status.hold.reason.needs_person
                                         or status.hold.lasts))
        for name, status in plan.nodes.items())


def held_up(rollout: Rollout, reason: str, why: str) -> Rollout:
    """Return the condition where nodes are not even upgraded to the driver that people ask for; without a reason it stays. One
    that is False keeps its own reason, and says so too: in a pause nobody would learn of it.
    """
    if not why or rollout.status == "Unknown":
        return rollout
    reason = reason if rollout.status == "True" else rollout.reason
    return msgspec.structs.replace(rollout, status="False", reason=reason, message=f"{why}; apart from that {rollout.message}")


def without_drivers(rollout: Rollout, snapshot: Snapshot) -> Rollout:
    """Return the condition where the ClusterPolicy has drivers switched off: no node is managed, and nothing is missing."""
    if rollout.status != "Unknown":
        return rollout
    off = f"driver.enabled is false: no drivers are managed{told_of_abandoned(snapshot)}"
    return msgspec.structs.replace(rollout, message=off)


def without_policy(rollout: Rollout) -> Rollout:
    """Return what stands in the condition's place where no ClusterPolicy is there to have one."""
    if rollout.status != "Unknown":
        return rollout
    return msgspec.structs.replace(rollout, message="no ClusterPolicy is in force: no driver is managed")


def unchecked(rollout: Rollout, images: DriverImages | None) -> Rollout:
    """Return the condition with a driver's image of which nobody knows whether it exists, while nodes are yet to get a driver: no
    node waits for the answer, so that a mistyped version would empty the first of them.
    """
    if images is None or not images.unknown or rollout.status != "False":
        return rollout
    image, why = next(iter(images.unknown.items()))
    more = f" (and {len(images.unknown) - 1} more)" if len(images.unknown) > 1 else ""
    told = f"whether image {image} exists is not known{more}: {why}; no node waits for the answer"
    return msgspec.structs.replace(rollout, message=f"{rollout.message}; {told}")


def beside(rollout: Rollout, told: str) -> Rollout:
    """Return the condition with what holds no node up, and somebody may have to look at."""
    return msgspec.structs.replace(rollout, message=f"{rollout.message}; {told}") if told else rollout


def warned(rollout: Rollout, warnings: Sequence[str]) -> Rollout:
    """Return the condition with what people should know of their limits, while nodes are yet to get a driver."""
    if rollout.status != "False" or not warnings:
        return rollout
    return msgspec.structs.replace(rollout, message="; ".join((rollout.message, *warnings)))


def progress(counts: Counts, skipped: int = 0) -> str:
    """Say how many nodes have the driver that they should have, and where the others stand."""
    told = counts.up_to_date + counts.in_progress + counts.pending + counts.failed + counts.outdated + counts.unserved + skipped
    rest = counts.total - told
    text = f"{goal(counts)}, {counts.in_progress} in progress"
    text += f", {counts.pending} pending, {counts.failed} failed"
    text += f", {counts.outdated} on another driver" if counts.outdated else ""
    text += f", {counts.unserved} that no driver is for" if counts.unserved else ""
    text += f", {skipped} skipped" if skipped else ""
    return text + (f", {rest} not ready" if rest > 0 else "")


def goal(counts: Counts) -> str:
    """Say how many nodes are as they should be: nodes whose driver is to go are none that could be up to date."""
    stay = counts.total - counts.removing
    told = [f"{counts.up_to_date} of {stay} nodes up to date"] if stay or not counts.removing else []
    every = counts.removing + counts.removed
    told += [f"drivers are being removed: {counts.removed} of {every} nodes have none any more"] if counts.removing else []
    return ", ".join(told)


def staged(counts: Counts) -> str:
    """Say how many of the nodes that wait have the images of their next driver; nothing where none are brought there."""
    if not counts.staging:
        return ""
    return f", {counts.staged} of {counts.staging} waiting nodes have the next driver's images"


def _under_way(plan: Plan) -> bool:
    """Tell whether a node is under way, before or after this plan: between two nodes a rollout is not blocked."""
    every = plan.nodes.values()
    return (any(status.state in IN_PROGRESS and not status.quarantined for status in every)
            or any(status.before in IN_PROGRESS and not status.quarantined for status in every)
            or any(map(_is_announced, every)))


def _is_announced(status: NodeStatus) -> bool:
    """Tell whether a node has its place among those under way, and waits for the end of its notice."""
    return status.hold is not None and status.hold.reason is Reason.NOTICE_GIVEN


def _message(plan: Plan) -> str:
    counts = plan.counts
    left = str(plan.estimate or "")
    skipped = sum(status.state is State.UPGRADE_REQUIRED and status.hold is not None and status.hold.reason is Reason.SKIPPED
                  for status in plan.nodes.values())
    text = progress(counts, skipped) + staged(counts) + (f"; {left}" if left else "") + _failing(plan)
    held: dict[tuple[Reason, bool], list[str]] = defaultdict(list)
    for name, hold in sorted(plan.holds.items()):
        held[hold.reason, hold.reason.is_waited_for and not hold.is_trouble].append(name)
    for told, waits in (("waiting", True), ("held", False)):
        parts = [_held(reason, held[reason, waits]) for reason in Reason if (reason, waits) in held]
        text += f"; {told}: {', '.join(parts)}" if parts else ""
    quoted = min((hold for hold in plan.holds.values() if hold.reason in _QUOTED), key=_importance, default=None)
    text += _absent(plan)
    large = next(filter(None, (too_large(hold.what) for hold in plan.holds.values())), "")
    return text + (f"; {sentence(quoted)}" if quoted is not None else "") + (
        large if quoted is None or not too_large(quoted.what) else "")


def _absent(plan: Plan) -> str:
    """Name the images that nodes wait for: only the operator has asked their registries."""
    missing = {hold.what.image: hold.what for _, hold in sorted(plan.holds.items()) if isinstance(hold.what, ImageMissing)}
    return "".join(f"; {told_of_missing(each)}" for each in list(missing.values())[:MOST_IMAGES])


def _importance(hold: Hold) -> int:
    """Order what is quoted: what the condition's reason names before what other nodes wait for, and that before earlier waves."""
    stops = list(_STOPS)
    return stops.index(hold.reason) if hold.reason in _STOPS else len(stops) + (hold.reason is Reason.WAVE_NOT_DONE)


def _failing(plan: Plan) -> str:
    """Name the nodes whose upgrade has failed, how often, and the last cause: one that is tried again looks like any other."""
    failed = sorted((-status.failure.attempts, name) for name, status in plan.nodes.items() if status.failure is not None)
    told = [_failure(name, plan.nodes[name]) for _, name in failed[:MOST_NODES]]
    left = len(failed) - MOST_NODES
    more = [f"and {left} more node{'s' if left > 1 else ''} that failed"] if left > 0 else []
    return "".join(f"; {each}" for each in (*told, *more))


def _failure(name: str, status: NodeStatus) -> str:
    failure = status.failure
    assert failure is not None
    times = "once" if failure.attempts == 1 else f"{failure.attempts} times"
    return f"{name} has failed {times}, last in {failure.state} ({failure.cause}), and {_outcome(status, failure.attempts)}"


def _outcome(status: NodeStatus, attempts: int) -> str:
    """Say what becomes of a node whose upgrade has failed."""
    if status.state in IN_PROGRESS:
        return f"is in attempt {attempts + 1}"
    if status.failed and (status.hold is None or status.hold.reason is Reason.FAILED):
        return "is not tried again by itself"
    reason = status.hold.reason if status.hold is not None else None
    return _ONCE.get(reason, "is tried again by itself") if reason is not None else "is tried again by itself"


def _held(reason: Reason, nodes: list[str]) -> str:
    if reason.concerns_fleet:
        return f"{len(nodes)} {reason}"
    more = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
    return f"{len(nodes)} {reason} ({', '.join(nodes[:MOST_NODES])}{more})"
