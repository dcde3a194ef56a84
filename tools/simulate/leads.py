"""What leads to transitions and reasons that seeds seldom meet: runs of some faults and no other.

A lead is for every mode. What its faults are drawn to be is looked for among seeds and times: drawing costs little, playing much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

from gpuward import names
from gpuward.model.states import State
from tools.simulate import wild
from tools.simulate.faults import humans, switches
from tools.simulate.faults.fuzz import ELSEWHERE
from tools.simulate.faults.objects import PROPAGATIONS
from tools.simulate.modes import CRD, MODES, POOLS
from tools.simulate.policies import prestage, rollout_policy, undrainable, upgrade_policy
from tools.simulate.scenario import Fault, Ranges, Scenario, Variation, added_fault, draw

Object = Mapping[str, Any]
Span = tuple[float, float]

SEEDS: Final = 4000
"""So many seeds are looked at for one whose run is fit for a lead."""
MOMENTS: Final = 4000
"""So many times are looked at, a millisecond apart, for one at which a fault is drawn as it should be."""
ANY: Final = (0.0, 1.0)
WHOLE: Final = (0.86, 1.0)
"""The level at which faults of pods are those of every node."""


class Step(NamedTuple):
    """Name a fault of a lead: when it comes, and within what bounds its level, choice and length are drawn."""

    kind: str
    at: float
    level: Span = ANY
    lasts: Span = (0.0, 9999.0)
    pick: Span = ANY
    fits: Callable[[Random], bool] | None = None
    """What else is asked of what the fault draws."""

    def moments(self, seed: int) -> Iterator[str]:
        """Yield when it can come in the run of a seed, as KIND@SECONDS."""
        for number in range(MOMENTS):
            text = f"{self.kind}@{self.at + number / 1000:.3f}"
            if self._fits(seed, added_fault(seed, text)):
                yield text

    def _fits(self, seed: int, fault: Fault) -> bool:
        bounds = ((fault.level, self.level), (fault.seconds, self.lasts), (fault.pick, self.pick))
        if not all(low <= value <= high for value, (low, high) in bounds):
            return False
        return self.fits is None or self.fits(Random(f"{seed}/{fault.at}/{fault.kind}"))


class Lead(NamedTuple):
    """Say what leads to some names (patterns), and in which runs."""

    names: tuple[str, ...]
    steps: tuple[Step, ...]
    work: Callable[[Scenario], bool]
    minutes: float = 4.0
    owned: bool = False
    """Whether it takes drivers that are left to NVIDIADrivers, or at least some to change."""


def _idle(run: Scenario) -> bool:
    return run.rollout is None and set(run.workloads) <= {"web", "daemonset"}


def _busy(run: Scenario) -> bool:
    return run.rollout is None and "inference" in run.workloads and _may_leave(run, "tolerant")


def _busy_and_large(run: Scenario) -> bool:
    return _busy(run) and run.nodes > 3


def _empty_and_large(run: Scenario) -> bool:
    return run.rollout is None and run.nodes > 4 and set(run.workloads) <= {"web"}


def _tolerant(run: Scenario) -> bool:
    return run.rollout is None and "tolerant" in run.workloads and _may_leave(run)


def _gang(run: Scenario) -> bool:
    settings = run.rollout or {}
    return "gangs" in settings and settings["gangs"]["until"] != "0s" and _calm(settings, "gangs") and _may_leave(run, "tolerant")


def _may_leave(run: Scenario, *but: str) -> bool:
    """Tell whether all workloads of a run can be evicted, and leave out some kinds."""
    return not {"holder", "two-budgets", "bare", "empty-dir", "training", *but} & set(run.workloads)


def _limits(**wanted: Any) -> tuple[Step, ...]:
    """Return the steps that change the upgrade policy, for up to two NVIDIADrivers, into one that says all of this."""
    def fits(random: Random) -> bool:
        return _says(upgrade_policy(random), wanted)

    return (Step("change-limits", 91.0, pick=(0.0, 0.49), fits=fits), Step("change-limits", 92.0, pick=(0.51, 1.0), fits=fits))


def _settings(holds: Callable[[Object], bool]) -> Step:
    """Return the step that writes a RolloutPolicy of which something holds."""
    return Step("change-rollout-policy", 86.0, fits=lambda random: holds(rollout_policy(random)))


def _says(found: Object, wanted: Mapping[str, Any]) -> bool:
    return all(found.get(key) in value if isinstance(value, tuple) else
               _says(found.get(key) or {}, value) if isinstance(value, dict) else found.get(key) == value
               for key, value in wanted.items())


def _calm(settings: Object, *but: str) -> bool:
    """Tell whether nothing in a RolloutPolicy holds rollouts up but what is named."""
    holding = {"windows", "opportunistic", "notice", "prestage", "waves", "growth", "gangs", "domains", "undrainable"}
    return not (holding - set(but)) & settings.keys()


def _canary(settings: Object, *has: str, **wanted: Any) -> bool:
    """Tell whether a rollout has a small canary with some fields and no other, and nothing else that holds it up."""
    canary: Object = (settings.get("waves") or ({},))[0]
    if not canary or not _calm(settings, "waves"):
        return False
    return {"soak", "approval", "windows", "analysis"} & canary.keys() == set(has) and _says(canary, {"nodes": 1} | wanted)


def _behaves(*behaviours: str) -> Callable[[Random], bool]:
    return lambda random: undrainable(random)["behaviour"] in behaviours


def _unknown_driver_label(random: Random) -> bool:
    """Tell whether a node would be labelled as having no kind of driver that there is; `level` chooses the key."""
    return random.random() >= ELSEWHERE and random.choice(wild.LABELS) not in ("", "true", "false")


def _relabelled(state: State) -> Span:
    share = 1 / len(humans.RELABELS)
    return humans.RELABELS.index(str(state)) * share + 0.01, (humans.RELABELS.index(str(state)) + 1) * share - 0.01


_KEY: Final = wild.KEYS.index(names.DEPLOY_DRIVER) / len(wild.KEYS)
_ONE_BY_ONE: Final = _limits(maxParallelUpgrades=1, maxUnavailable="100%")
_MANY: Final = _limits(maxParallelUpgrades=(5, 0), maxUnavailable="100%")
_CHANGE: Final = Step("change-driver", 100.0)
_SWITCH: Final = Step("switch-owner", 50.0, (0.5, 1.0))
"""What makes drivers those of NVIDIADrivers, for good, in a mode that begins without."""

LEADS: Final[tuple[Lead, ...]] = (
    Lead(("reason NoNodeMayStart", "reason NodeNotReady"), (
        *_limits(maxUnavailable=1), Step("node-not-ready", 98.0, lasts=(60.0, 400.0)), _CHANGE), _idle),
    Lead(("reason Skipped", "reason NodeNotReady", "reason NodeGone", "reason ParallelLimit"), (
        *_ONE_BY_ONE, Step("skip", 97.0, lasts=(60.0, 900.0), pick=(0.0, 0.3)),
        Step("node-not-ready", 98.0, lasts=(60.0, 400.0), pick=(0.67, 1.0)), _CHANGE,
        Step("node-deleting", 101.0, lasts=(60.0, 300.0), pick=(0.3, 0.6))), _idle),
    Lead(("reason TwoDriverPods", "reason UnknownState", "reason HeldDevices", "reason ProtectedPods", "reason Maintenance"), (
        *_limits(maxParallelUpgrades=1, maxUnavailable="100%", drain=None),
        Step("holder", 97.0, pick=(0.67, 1.0), lasts=(60.0, 900.0)),
        Step("static-pod", 97.1, pick=(0.34, 0.6), lasts=(60.0, 600.0)), _CHANGE,
        Step("second-driver-pod", 101.0, lasts=(60.0, 400.0)), Step("relabel-garbage", 170.0, lasts=(30.0, 600.0)),
        Step("relabel", 185.0, _relabelled(State.NODE_MAINTENANCE_REQUIRED))), _idle),
    Lead(("reason DriverUnplaced", "reason MetadataBehind", "transition upgrade-required -> pod-restart-required"), (
        *_MANY, Step("change-labels", 100.0), Step("too-large-driver", 120.0, lasts=(60.0, 300.0))), _idle),
    Lead(("reason Aborted",), (*_ONE_BY_ONE, Step("command-abort", 100.0, (0.0, 0.1), (60.0, 300.0))), _busy),
    Lead(("reason WaveFailed",), (*_MANY, Step("canary-overdue", 100.0, lasts=(150.0, 300.0))), _busy_and_large),
    Lead(("reason WaveFailed", "reason NewDriverFails", "transition pod-restart-required -> upgrade-failed"), (
        _settings(lambda found: _canary(found) and not {3, 50}.isdisjoint(found["failureBudget"].values()) and _says(
            found, {"deadlines": {"pod-restart-required": "2m"}})), *_MANY,
        Step("driver-never-ready", 98.0, WHOLE, (135.0, 1200.0)), _CHANGE), _idle),
    Lead(("reason WaveSoaking", "reason WaveNotDone"), (
        _settings(lambda found: _canary(found, "soak", soak="1m")), *_MANY, _CHANGE), _idle),
    Lead(("reason ApprovalRequired",), (
        _settings(lambda found: _canary(found, "approval")), *_MANY, _CHANGE, Step("command-approve", 235.0)), _idle),
    Lead(("reason WaveLimit",), (*_MANY, Step("wave-by-wave", 100.0)), _idle),
    Lead(("reason GrowthLimit",), (_settings(
        lambda found: _calm(found, "growth") and _says(found, {"growth": {"start": 1}})), *_MANY, _CHANGE), _idle),
    Lead(("reason AnalysisFailed",), (*_MANY, Step("check-fails", 100.0, (0.0, 0.7), (150.0, 300.0))), _idle),
    Lead(("reason AnalysisUnknown",), (*_MANY, Step("check-unknown", 100.0, (0.0, 0.7), (150.0, 300.0))), _idle),
    Lead(("reason AnalysisRunning",), (*_MANY, Step("checked-rollout", 100.0)), _idle),
    Lead(("reason GangSpared",), (
        *_limits(maxParallelUpgrades=2, maxUnavailable="100%", podDeletion={"force": True}),
        Step("gang-returns", 100.0)), _empty_and_large),
    Lead(("reason GangAwaited",), (
        *_limits(maxParallelUpgrades=(5, 0), maxUnavailable=2, podDeletion={"force": True}),
        Step("cordon", 97.0, lasts=(60.0, 900.0)), _CHANGE), _gang, 3.0),
    Lead(("reason GangAwaited",), (
        *_limits(maxParallelUpgrades=2, maxUnavailable="100%", podDeletion={"force": True}),
        Step("gang-waits", 100.0)), _empty_and_large),
    Lead(("reason StagingFailed", "reason ImageNotStaged"), (
        *_MANY, Step("prestaged-rollout", 100.0, (0.5, 1.0), (120.0, 300.0),
                     fits=lambda random: bool(prestage(random)["onFailure"] == "Hold"))), _idle),
    Lead(("reason NoticeUnanswered", "reason NoticeGiven"), (_settings(lambda found: _calm(found, "notice") and _says(found, {
        "notice": {"before": "10s", "acknowledge": "Required"}})), *_MANY, _CHANGE), _busy),
    Lead(("reason WindowShut",), (_settings(lambda found: _calm(found, "windows") and _says(
        (found.get("windows") or ({},))[0], {"kind": "Deny"})), *_MANY, _CHANGE), _busy),
    Lead(("reason IdleAwaited",), (*_MANY, Step("idle-rollout", 100.0)), _busy),
    Lead(("reason FailureBudget", "reason RetryLater"), (
        *_ONE_BY_ONE, Step("driver-overdue", 100.0, (0.0, 0.4), (180.0, 300.0)), Step("request-upgrade", 215.0)), _idle),
    Lead(("reason Undrainable",), (
        *_MANY, Step("pods-undrainable", 100.0, (0.0, 0.5), (100.0, 300.0), fits=_behaves("Skip"))), _busy),
    Lead(("reason Quarantined",), (
        *_MANY, Step("pods-undrainable", 100.0, (0.0, 0.5), (100.0, 300.0), fits=_behaves("Quarantine"))), _busy),
    Lead(("reason JobsRunning", "transition wait-for-jobs-required -> upgrade-failed"), (
        *_MANY, Step("jobs-undrainable", 100.0, lasts=(100.0, 200.0), fits=_behaves("Fail"))), _idle),
    Lead(("reason BudgetBlocks",), (*_MANY, Step("budget-closes", 95.0, lasts=(60.0, 600.0)), _CHANGE), _busy),
    Lead(("reason BudgetUsedUp",), (
        *_MANY, Step("budget-removed", 93.0, lasts=(10.0, 12.0)), Step("change-driver", 106.0)), _busy),
    Lead(("reason DomainBroken", "reason DomainLimit"), (
        _settings(lambda found: _calm(found, "domains") and _says(found, {"domains": {"mode": "Spread", "max": 1}})), *_MANY,
        Step("node-silent", 93.0, lasts=(100.0, 600.0), pick=(0.0, 0.3)),
        Step("node-not-ready", 94.0, lasts=(100.0, 400.0), pick=(0.34, 0.6)), _CHANGE), _idle),
    Lead(("reason Killing", "reason EvictionRefused"), (
        *_ONE_BY_ONE, Step("pods-overdue", 100.0, (0.0, 0.49), (80.0, 260.0))), _busy),
    Lead(("transition pod-deletion-required -> drain-required", "transition drain-required -> upgrade-failed"), (
        *_limits(maxUnavailable="100%", drain={"enable": True, "timeoutSeconds": 60, "force": True, "deleteEmptyDir": True}),
        Step("pods-overdue", 100.0, (0.5, 1.0), (120.0, 260.0))), _busy),
    Lead(("reason DoesNotStop", "reason DevicePluginStopping"), (
        _settings(lambda found: _calm(found) and _says(found, {"deadlines": {"pod-restart-required": "2m"}})), *_MANY,
        Step("stuck-terminating", 98.0, WHOLE, (180.0, 900.0)),
        Step("operands-off", 100.0, (0.0, 0.2), (180.0, 400.0))), _idle, 5.0),
    Lead(("reason DoesNotStop", "reason DevicePluginStopping"), (*_MANY, Step("device-plugin-overdue", 100.0)), _idle),
    Lead(("reason DriverRepelled",), (*_MANY, Step("driver-repelled", 100.0)), _idle),
    Lead(("reason DriverInUse",), (
        Step("driver-crash", 98.0, WHOLE, (60.0, 1200.0)), Step("delete-driver-pod", 100.0),
        Step("delete-driver-pod", 101.0)), _busy),
    Lead(("reason OperandFailing",), (
        Step("image-pull", 98.0, WHOLE, (60.0, 600.0)), Step("delete-validator-pod", 100.0), Step("delete-validator-pod", 101.0),
        ), _idle),
    Lead(("reason DriverLabelUnknown",), (
        Step("wild-label", 100.0, (_KEY + 0.001, _KEY + 1 / len(wild.KEYS) - 0.001), (30.0, 120.0), fits=_unknown_driver_label),
        Step("delete-driver-pod", 101.0)), _idle),
    Lead(("reason KernelUnknown",), (
        Step("discovery-edited", 95.0, (0.51, 0.66), (200.0, 400.0), (0.71, 1.0)), Step("switch-compilation", 100.0, (0.51, 1.0)),
        ), _idle),
    Lead(("reason DriverRefused",), (
        Step("add-nvidiadriver", 95.0, (0.5, 1.0), fits=lambda random: random.choice(switches.ADDED) == "default-too"),
        Step("node-replaced", 100.0, lasts=(0.0, 3.0)), Step("node-replaced", 102.0, lasts=(0.0, 3.0))), _idle, owned=True),
    Lead(("reason DriverRefused",), (
        Step("add-nvidiadriver", 95.0, (0.5, 1.0), fits=lambda random: random.choice(switches.ADDED) in POOLS),
        Step("edit-selector", 97.0, lasts=(90.0, 300.0), fits=lambda random: not random.choice(switches.SELECTORS)),
        Step("node-replaced", 100.0, lasts=(0.0, 3.0)), Step("node-replaced", 102.0, lasts=(0.0, 3.0))), _idle, owned=True),
    Lead(("reason NotSelected",), (
        Step("edit-selector", 95.0, lasts=(90.0, 300.0)), Step("change-pool", 97.0, (0.91, 1.0)),
        Step("node-replaced", 100.0, lasts=(0.0, 3.0)), Step("node-replaced", 102.0, lasts=(0.0, 3.0))), _idle, owned=True),
    Lead(("reason DriverKept",), (
        Step("pause", 96.0, lasts=(120.0, 600.0)), Step("recreate-nvidiadriver", 100.0, lasts=(60.0, 120.0),
                                                        fits=lambda random: random.choice(PROPAGATIONS[1:]) == "Background"),
        ), _busy, owned=True),
    Lead(("reason DriverOrphaned", "reason DriverPodMissing"), (
        Step("pause", 98.0, lasts=(60.0, 600.0)), Step("delete-driver-daemonset", 100.0, (0.0, 0.69)), _CHANGE,
        Step("delete-driver-daemonset", 130.0, (0.7, 1.0))), _busy),
    Lead(("reason ComesBack", "transition pod-restart-required -> pod-deletion-required"), (
        *_MANY, _CHANGE, *(Step("bare-pod", 103.0 + 3 * number, lasts=(20.0, 900.0)) for number in range(8))), _tolerant),
    Lead(("reason Uncordoned",), (
        *_limits(maxUnavailable="100%", maxParallelUpgrades=(5, 0), podDeletion={"timeoutSeconds": (300, 0), "force": True}),
        Step("stuck-terminating", 98.0, WHOLE, (100.0, 900.0)), _CHANGE,
        *(Step("uncordon", 110.0 + 6 * number) for number in range(6)), *(
            Step("bare-pod", 112.0 + 6 * number, lasts=(60.0, 900.0)) for number in range(5))), _busy),
    Lead(("reason OperandsKept", "reason DriverKept"), (
        Step("operands-off", 95.0, (0.0, 0.2), (60.0, 400.0)), Step("pause", 96.0, lasts=(120.0, 600.0)),
        Step("driver-off", 100.0, lasts=(60.0, 120.0)), Step("delete-nvidiadriver", 101.0),
        Step("recreate-nvidiadriver", 103.0, lasts=(60.0, 120.0))), _busy),
    Lead(("reason MovePaused",), (Step("move-in-pause", 100.0, lasts=(60.0, 300.0)),), _busy, owned=True),
    Lead(("reason OperandsStarting",), (
        *_MANY, Step("image-pull", 95.0, WHOLE, (60.0, 600.0)),
        *(Step("delete-object", 96.0 + number / 2, (0.2, 0.7)) for number in range(8)), Step("change-template", 103.0)), _busy),
    Lead(("reason ReplacementRefused", "reason RefusedElsewhere"), (
        *_limits(maxParallelUpgrades=2, maxUnavailable="100%"),
        Step("api-keeps-driver-pods", 98.0, lasts=(90.0, 200.0)), _CHANGE), _empty_and_large),
    Lead(("reason ReplacementRefused", "reason RefusedElsewhere", "reason WriteRefused", "reason LedgerRefused"), (
        *_ONE_BY_ONE, _CHANGE,
        *(Step("api-error", 101.5 + 6 * number, (0.85, 1.0), (4.0, 5.0)) for number in range(6))), _idle),
    Lead(("transition unknown -> upgrade-failed",), (
        *_MANY, Step("driver-overdue", 100.0, (0.0, 0.49), (220.0, 300.0)), Step("pause", 190.0, lasts=(5.0, 20.0))), _idle),
    Lead(("transition * -> unknown",), tuple(
        Step("operands-off", 100.0 + 25 * number, (0.25, 1.0), (40.0, 60.0)) for number in range(4)), _idle),
    Lead(("transition * -> unknown",), tuple(
        Step(kind, 100.0 + 20 * number, (0.25, 1.0), (70.0, 90.0)) for number, kind in enumerate(["operands-off"] * 5)), _idle),
    Lead(("transition upgrade-failed -> unknown",), (
        *_MANY, Step("driver-overdue", 100.0, (0.0, 0.49), (220.0, 300.0)), Step("operands-off", 190.0, (0.0, 0.2))), _idle),
    Lead(("transition * -> upgrade-done", "transition * -> uncordon-required", "transition uncordon-required -> *"), (
        *(Step("nvidia-takes-over", 100.0 + 12 * number, (0.66, 1.0), (60.0, 600.0)) for number in range(6)),
        Step("relabel", 185.0, _relabelled(State.UNCORDON_REQUIRED))), _idle),
    Lead(("transition * -> upgrade-required",), (
        *(Step("recreate-policy", 100.0 + 60 * number, (0.51, 1.0), (40.0, 55.0)) for number in range(3)),), _idle, 5.0),
    Lead(("transition * -> upgrade-required",), (
        *_MANY, _CHANGE, Step("recreate-policy", 108.0, (0.51, 1.0), (40.0, 55.0)), Step("roll-back", 180.0),
        Step("roll-back", 188.0), Step("recreate-policy", 194.0, (0.51, 1.0), (30.0, 55.0))), _busy),
    Lead(("transition * -> upgrade-required", "transition * -> uncordon-required"), (
        *_limits(maxUnavailable="100%", maxParallelUpgrades=(5, 0), drain={"enable": True, "timeoutSeconds": 300}),
        Step("pods-overdue", 95.0, (0.5, 1.0), (100.0, 260.0)), _CHANGE, Step("roll-back", 112.0), Step("change-driver", 130.0),
        Step("keep-cordon-and-roll-back", 140.0)), _busy),
    Lead(("transition validation-required -> upgrade-done",), (
        Step("cordon", 95.0, lasts=(120.0, 900.0), pick=(0.0, 0.3)), Step("cordon", 96.0, lasts=(120.0, 900.0), pick=(0.67, 1.0)),
        *_MANY, _CHANGE), _idle),
    Lead(("transition validation-required -> upgrade-failed",), (
        *_MANY, Step("validator-overdue", 100.0, (0.3, 1.0), (180.0, 300.0))), _idle),
    Lead(("transition upgrade-failed -> validation-required",), (
        *_MANY, Step("driver-overdue", 100.0, (0.0, 0.49), (150.0, 165.0))), _idle, 5.0),
)


def runs_for(name: str, mode: str, ranges: Ranges) -> Iterator[Variation]:
    """Yield runs in a mode that may lead to a transition or a reason."""
    leads = [lead for lead in LEADS if any(fnmatchcase(name, pattern) for pattern in lead.names)]
    found = [runs_of(lead, mode, ranges) for lead in leads]
    while found:
        for each in tuple(found):
            run = next(each, None)
            if run is None:
                found.remove(each)
            else:
                yield run


def runs_of(lead: Lead, mode: str, ranges: Ranges) -> Iterator[Variation]:
    """Yield the runs of a lead in a mode: those of seeds that are fit for it, each of its faults drawn as it should be."""
    for run in _scenarios(ranges):
        if run.seconds < 60 * lead.minutes or not lead.work(run):
            continue
        steps = (_SWITCH, *lead.steps) if lead.owned and CRD in MODES[mode].switches else lead.steps
        moments = [next(step.moments(run.seed), None) for step in steps]
        if None not in moments:
            yield Variation(run.seed, mode, tuple(text for text in moments if text is not None), bare=True)


@cache
def _scenarios(ranges: Ranges) -> tuple[Scenario, ...]:
    return tuple(draw(seed, ranges) for seed in range(SEEDS))
