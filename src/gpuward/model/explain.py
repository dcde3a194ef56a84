"""Make sentences of what nodes wait for: decisions hold values, and people read these."""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.model.analysis import WaveAnalysis
from gpuward.model.counting import counted
from gpuward.model.denials import ReplacementRefused
from gpuward.model.domains import DomainLimit
from gpuward.model.gangs import GangAwaited, GangSpared
from gpuward.model.listing import listed
from gpuward.model.mig import MigNotApplied
from gpuward.model.notice import NoticeGiven, NoticeUnanswered
from gpuward.model.obstacles import HoldsDriver, LosesData, NotStartedAgain, Obstacle, OfDaemonSet, SeveralBudgets, StaticPod
from gpuward.model.opportunities import IdleAwaited
from gpuward.model.placement import Placement
from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.sentences import (
    DRIVER_FOLLOWS,
    NO_LIMIT,
    NONE_NOW,
    OF_DOMAINS,
    PART_FAILS,
    PLUGIN_FIRST,
    SENTENCES,
    TAINTED,
    TO_BE_NOTICED,
    UNBEGUN_FIRST,
    UNCOUNTED,
    UNWORKABLE,
    WAVE_SHUT,
    WITH_NOTICE,
)
from gpuward.model.troubles import DriverNow, PodTrouble
from gpuward.model.unserved import DriverLabelUnknown, DriverRefused, KernelUnknown, NotSelected, Unserved, WrongDriverType
from gpuward.model.views import Ref
from gpuward.model.waits import (
    BudgetBlocks,
    BudgetUsedUp,
    ComesBack,
    DriverFollows,
    EvictionRefused,
    Failed,
    FailureBudgetSpent,
    HeldDevices,
    InvalidPolicy,
    Killing,
    Limit,
    Meanwhile,
    MovePaused,
    NewDriverFails,
    NoPolicy,
    OnPod,
    OperandPod,
    Paused,
    Plain,
    PluginFirst,
    ProtectedPods,
    RetryLater,
    Starting,
    WaitsFor,
)
from gpuward.model.waves import Aborted, ApprovalRequired, WaveEmpty, WaveFailed, WaveLimit, WaveNotDone, WaveSoaking, command_for
from gpuward.model.windows import UTC_NAME, WindowShut, moment_in, opening

MOST_USERS = 3
"""Pods that a sentence names."""


def sentence(hold: Hold) -> str:
    """Return what the node waits for, in one sentence."""
    told = counted(_template(hold), arguments(hold.what) | _some_nodes(hold.what))
    return told + _noticed(hold.what) + too_large(hold.what)


def _noticed(what: WaitsFor) -> str:
    """Say how many of the nodes that fill a limit are in service as yet; nothing where none is."""
    count = what.noticed if isinstance(what, Limit | WaveLimit | DomainLimit) else 0
    wait, its = ("waits", "its") if count == 1 else ("wait", "their")
    return f"; {count} of them {wait} for the end of {its} notice" if count else ""


def _some_nodes(what: WaitsFor) -> dict[str, object]:
    """Return the nodes that a limit names as people read them: some of those that count, and how many more there are."""
    match what:
        case (Limit(nodes=found, used=count) | FailureBudgetSpent(nodes=found, failed=count) | WaveLimit(nodes=found, used=count)
              | WaveFailed(nodes=found, failed=count) | WaveNotDone(nodes=found, awaited=count)):
            field = "nodes"
        case DomainLimit(nodes=found, domains=(), used=count) | GangAwaited(nodes=found, others=count):
            field = "nodes"
        case DomainLimit(domains=found, used=count):
            field = "domains"
        case _:
            return {}
    return {field: listed(found, of=count)} if found else {}


def _by_content(what: BudgetBlocks | BudgetUsedUp | NewDriverFails | NoticeGiven) -> str:
    if isinstance(what, NoticeGiven):
        return TO_BE_NOTICED if what.before else SENTENCES[what.reason]
    if isinstance(what, NewDriverFails):
        return PART_FAILS if what.part else SENTENCES[what.reason]
    if isinstance(what, BudgetUsedUp):
        return SENTENCES[what.reason] if what.allowed else NONE_NOW
    return UNWORKABLE if what.failure else SENTENCES[what.reason]


def _template(hold: Hold) -> str:
    match hold.what:
        case Limit(limit=0):
            return NO_LIMIT
        case Plain(reason=Reason.DRIVER_POD_MISSING, taints=taints) if taints:
            return TAINTED
        case Limit(noticed=noticed) if noticed and hold.reason in WITH_NOTICE:
            return WITH_NOTICE[hold.reason]
        case BudgetBlocks() | BudgetUsedUp() | NewDriverFails() | NoticeGiven():
            return _by_content(hold.what)
        case PluginFirst(offers=offers):
            return PLUGIN_FIRST if offers else UNBEGUN_FIRST
        case DriverFollows():
            return DRIVER_FOLLOWS
        case WindowShut(wave=wave) if wave:
            return WAVE_SHUT
        case DomainLimit(domains=domains) if domains:
            return OF_DOMAINS[hold.reason]
        case (EvictionRefused(attempts=None) | ReplacementRefused(attempts=None) | ComesBack(times=None) | Failed(step=None)
              | Paused(is_known=False)):
            return UNCOUNTED[hold.reason]
    return SENTENCES[hold.reason]


def arguments(what: WaitsFor) -> dict[str, object]:
    """Return what the sentence of a wait leaves open, by the names that it has there. Recordings keep digests of this."""
    match what:
        case Plain() | Paused():
            return _plain(what)
        case NotSelected() | DriverRefused() | WrongDriverType() | DriverLabelUnknown() | KernelUnknown():
            return _unserved(what)
        case Starting() | MigNotApplied():
            return _starting(what)
        case Limit() | DomainLimit():
            return _limit(what)
        case NoPolicy():
            return {"what": what.why, "then": _MEANWHILE[what.meanwhile]}
        case InvalidPolicy():
            return {"what": what.policy}
        case (MovePaused() | WindowShut() | IdleAwaited() | GangSpared() | Aborted() | ApprovalRequired() | WaveEmpty()
              | WaveSoaking() | WaveAnalysis() | NoticeGiven() | NoticeUnanswered()):
            return _later(what)
        case Failed() | RetryLater():
            return _failed(what)
        case OnPod():
            return _on_pod(what)
        case _:
            told = {field: _told(value) for field, value in msgspec.structs.asdict(what).items()}
            return told if told.get("part") else {key: value for key, value in told.items() if key != "part"}


def _plain(what: Plain | Paused) -> dict[str, object]:
    if isinstance(what, Paused):
        return {"why": str(what.why)} if what.is_known else {}
    if what.taints:
        return {"taints": f"taint{'s' if len(what.taints) > 1 else ''} {', '.join(what.taints)}"}
    return {"label": names.UPGRADE_SKIP} if what.reason is Reason.SKIPPED else {}


def _limit(what: Limit | DomainLimit) -> dict[str, object]:
    if isinstance(what, DomainLimit):
        out = f"; out of service: {', '.join(what.nodes)}" if what.nodes else ""
        return {"domain": what.domain, "used": what.used, "limit": what.limit, "nodes": ", ".join(what.nodes),
                "domains": ", ".join(what.domains), "out": out}
    whose = f" of NVIDIADriver {what.driver}" if what.driver else ""
    return {"used": what.used, "limit": what.limit, "nodes": ", ".join(what.nodes), "whose": whose}


def too_large(what: WaitsFor) -> str:
    """Say that the domain of a node, or a gang there, is larger than a limit lets go at once, where it is to go whole."""
    if not isinstance(what, Limit):
        return ""
    field = "maxParallelUpgrades" if what.reason is Reason.PARALLEL_LIMIT else "maxUnavailable"
    only = f"and {field} lets only {what.limit} go at once"
    domain, gang = what.large, what.gang
    told = f"; domain {domain.name} has {domain.size} nodes, {only}" if domain is not None else ""
    return told + (f"; {gang.name} has pods on {gang.size} nodes, {only}" if gang is not None else "")


def _later(
    what: MovePaused | WindowShut | IdleAwaited | GangSpared | Aborted | ApprovalRequired | WaveEmpty | WaveSoaking
    | WaveAnalysis | NoticeGiven | NoticeUnanswered
) -> dict[str, object]:
    if isinstance(what, IdleAwaited):
        now = f" (now pod {what.pod} does, {what.pods} in all)" if what.pod is not None else " (now none does)"
        return {"idle_for": _span(what.idle_for), "now": now, "evicts": moment_in(what.evicts, UTC_NAME)}
    if isinstance(what, GangSpared):
        return {"gang": what.gang, "pod": str(what.pod), "node": what.node, "evicts": moment_in(what.evicts, UTC_NAME)}
    if isinstance(what, NoticeGiven | NoticeUnanswered):
        return _notice(what)
    if isinstance(what, WaveEmpty):
        return {"wave": what.wave, "labels": what.labels, "promote": command_for("promote", what.driver)}
    if isinstance(what, Aborted | ApprovalRequired | WaveSoaking):
        return _of_wave(what)
    if isinstance(what, WaveAnalysis):
        return _analysed(what)
    if isinstance(what, MovePaused):
        return {"to": destination(what.to, what.before)}
    found: dict[str, object] = {"opens": opening(what)}
    return {**found, "wave": what.wave} if what.wave else found


def _of_wave(what: Aborted | ApprovalRequired | WaveSoaking) -> dict[str, object]:
    command = command_for("resume" if isinstance(what, Aborted) else "approve", what.driver)
    if isinstance(what, WaveSoaking):
        then = f"; then it waits for approval: {command}" if what.approval else ""
        return {"wave": what.wave, "until": moment_in(what.ends, what.zone), "then": then}
    if isinstance(what, Aborted):
        return {"by": what.by or "somebody", "at": moment_in(what.at, UTC_NAME), "command": command}
    state = "has no node (see its nodeSelector), so that nothing has been tried" if what.empty else "is done"
    if what.left:
        state = f"is waited for no longer, with {what.done} of its {what.total} nodes done"
    return {"wave": what.wave, "state": state, "command": command}


def _analysed(what: WaveAnalysis) -> dict[str, object]:
    now = "it has not been measured yet"
    if what.good:
        now = f"it has passed since {moment_in(what.good, what.zone)}" + (f": {what.told}" if what.told else "")
    elif what.failures:
        now = f"{what.failures} of {what.limit} failures are counted, the last: {what.told}"
    return {"wave": what.wave, "check": what.check, "told": what.told, "failures": what.failures, "lasts": _span(what.lasts),
            "now": now, "resume": command_for("resume", what.driver), "promote": command_for("promote", what.driver)}


def _notice(what: NoticeGiven | NoticeUnanswered) -> dict[str, object]:
    begins = moment_in(what.begins, UTC_NAME)
    who = str(what.pod) + (f" and {what.pods - 1} more" if what.pods > 1 else "")
    every = "once all have acknowledged it"
    when = every
    if isinstance(what, NoticeGiven) and not what.required:
        when = f"{_span(what.before)} after that, or {every}" if what.before else f"from {begins} on, or {every}"
    return {"id": what.id, "begins": begins, "when": when, "who": who, "of": what.of}


def _span(seconds: float) -> str:
    whole = round(seconds)
    parts = ((whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def _told(value: object) -> object:
    if isinstance(value, Ref | PodTrouble):
        return str(value) if isinstance(value, Ref) else trouble(value)
    return ", ".join(value) if isinstance(value, tuple) else value


def _on_pod(what: OnPod) -> dict[str, object]:
    told = {field: _told(value) for field, value in msgspec.structs.asdict(what).items()}
    match what:
        case OperandPod():
            return {"pod": what.pod.name}
        case BudgetBlocks(failure=""):
            del told["failure"]  # recordings of before there was such a thing have none
        case HeldDevices():
            return {**told, "owner": f"{what.owner.kind} {what.owner.name}" if what.owner else "no owner"}
        case ProtectedPods():
            return {**told, "why": obstacle(what.why)}
        case EvictionRefused():
            return {**told, "attempts": "an unknown number of" if what.attempts is None else what.attempts}
        case Killing():
            return {**told, "refused": f"; its deletion is refused: {what.refused}" if what.refused is not None else ""}
        case ComesBack():
            why = ", as they tolerate the cordon" if what.tolerates_cordon else ""
            owner = f"{what.owner.kind} {what.owner.name}"
            times = "an unknown number of" if what.times is None else what.times
            return {"pod": str(what.pod), "owner": owner, "times": times, "why": why}
    return told


def _unserved(what: Unserved) -> dict[str, object]:
    told = {"then": "" if what.pod is None else f" after {what.pod.name}, which runs on"}
    if isinstance(what, NotSelected):
        refused = "".join(f"; NVIDIADriver {name} cannot be followed, see its condition" for name in what.refused)
        return {**told, "refused": refused}
    if isinstance(what, WrongDriverType):
        told = {"then": _kept(what)} if what.kept else told
        return {**told, "driver": what.driver, "driver_type": what.driver_type}
    if isinstance(what, KernelUnknown):
        then = "keeps the driver that it has, and is not upgraded" if what.kept else f"gets no driver pod{told['then']}"
        says = f"says {what.label}, and its kubelet {what.kernel}" if what.label else "is missing"
        return {"then": then, "label": names.NFD_KERNEL, "says": says}
    if isinstance(what, DriverLabelUnknown):
        return {**told, "label": names.DEPLOY_DRIVER, "value": what.value}
    why = f"NVIDIADriver {what.driver} cannot be followed"
    if what.conflict is None:
        return {**told, "why": f"{why}, see its condition"}
    return {**told, "why": f"{why}, {what.conflict}" if what.driver else str(what.conflict)}


def _kept(what: WrongDriverType) -> str:
    if what.kept == what.driver:
        return f" but those of an earlier NVIDIADriver {what.kept}, and no upgrade"
    return f" but those of NVIDIADriver {what.kept}, which is not for it any more, and no upgrade"


def _starting(what: Starting | MigNotApplied) -> dict[str, object]:
    if isinstance(what, MigNotApplied):
        return what.told()
    if what.reason is Reason.DRIVER_IN_USE:
        more = f" and {len(what.users) - MOST_USERS} more" if len(what.users) > MOST_USERS else ""
        return {"pod": what.pod.name, "users": ", ".join(map(str, what.users[:MOST_USERS])) + more}
    if what.reason in (Reason.DRIVER_FAILING, Reason.OPERAND_FAILING):
        return {"pod": what.pod.name, "trouble": trouble(what.trouble)}
    why = trouble(what.trouble)
    return {"pod": what.pod.name, "waiting": f" ({why})" if why else ""}


def _failed(what: Failed | RetryLater) -> dict[str, object]:
    step = "an unknown step" if what.step is None else what.step
    told: dict[str, object] = {"cause": what.cause, "step": step, "now": _now(what.now)}
    return told | {"retry": what.retry, "retries": what.retries} if isinstance(what, RetryLater) else told


def _now(driver: DriverNow | None) -> str:
    if driver is None or not driver.pod:
        return "" if driver is None else "; it has no driver pod now"
    how = "ready" if driver.ready else f"not ready: {trouble(driver.trouble)}" if driver.trouble else "not ready"
    return f"; its driver pod is {driver.pod} now, {how}"


def trouble(found: PodTrouble) -> str:
    """Return what is wrong with a pod."""
    if found.waiting or not found.restarts:
        restarts = f"{found.restarts} restart{'s' if found.restarts > 1 else ''}" if found.restarts else ""
        return ", ".join(filter(None, (found.waiting, restarts)))
    return f"it was restarted {'once' if found.restarts == 1 else f'{found.restarts} times'}"


def destination(to: Placement, before: Placement) -> str:
    """Return what a node is moved to, that is placed otherwise before."""
    if to.owner != before.owner:
        return f"NVIDIADriver {to.owner}" if to.owner else "the removal of its driver"
    return f"a driver for {to.os}" + (f" with kernel {to.kernel}" if to.kernel else "")


def obstacle(why: Obstacle) -> str:
    """Return why a pod may not be evicted, and what would permit it."""
    match why:
        case StaticPod():
            return "it is a static pod: remove its manifest from the node"
        case OfDaemonSet():
            return f"DaemonSet {why.name} would start it again: take the node out of its node selector"
        case LosesData():
            return f"it has an emptyDir volume: set upgradePolicy.{why.setting}.deleteEmptyDir if its data may be lost"
        case NotStartedAgain():
            return f"no controller would start it again: set upgradePolicy.{why.setting}.force if it may be lost"
        case HoldsDriver():
            return (f"it holds the driver without asking for a GPU ({why.how}): end it, or set deviceHolders: Evict or Ignore in "
                    "the RolloutPolicy")
        case SeveralBudgets():
            return f"disruption budgets {', '.join(map(str, why.budgets))} cover it, and the API allows for one"


_MEANWHILE = {
    Meanwhile.NOTHING: "",
    Meanwhile.CORDONED: "; the node stays cordoned until its new driver is ready",
    Meanwhile.UNVALIDATED: "; its new driver is ready, and is validated then",
}
