"""The upgrade controller: the driver upgrade's decision, and its log lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

import structlog

from gpuward import names
from gpuward.controllers.lines import alike, headline, named
from gpuward.controllers.planning import Planner
from gpuward.model.actions import CreatePod, EvictPod, PatchNode
from gpuward.model.driver import is_driver_pod
from gpuward.model.explain import sentence
from gpuward.model.passes import Pass
from gpuward.model.plan import Hold, NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.staging import staging_record
from gpuward.model.states import AT_REST, IN_PROGRESS, State
from gpuward.model.views import PodView
from gpuward.model.waits import Starting
from gpuward.operands import rollout
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.pods import covers
from gpuward.report.versions import wanted_versions
from gpuward.upgrade.removals import losing
from gpuward.upgrade.scope import concerns

STEPS: Final = {
    State.UNKNOWN: "{n:node leaves|nodes leave} the driver upgrade",
    State.UPGRADE_REQUIRED: "{n:node needs|nodes need} the new driver {driver}",
    State.DONE: "{n:node runs|nodes run} the driver that is wanted",
    State.FAILED: "Driver upgrade of {n:node|nodes} has failed",
}
"""What is said of nodes that enter these states."""
STARTS: Final = "{n:node starts its|nodes start their} upgrade to driver {driver}"
LOSES: Final = "{n:node is|nodes are} to lose the driver, and none comes after it"
STARTS_LOSING: Final = "{n:node starts|nodes start} to lose the driver, and none comes after it"
GIVEN_BACK: Final = "{n:node that no NVIDIADriver has goes|nodes that no NVIDIADriver has go} back into service"
PULLS: Final = "{n:node begins|nodes begin} to pull the images of the next driver, before the upgrade"
NOT_YET: Final = "{n:node has|nodes have} no driver to upgrade yet"
"""What is said of nodes that enter `upgrade-done` before a driver is loaded there, as in an installation."""
NOTICED: Final = "{n:node is|nodes are} given notice before pods are evicted"
TAKEN_BACK: Final = "{n:node has|nodes have} no notice any more: no pods are evicted for now"
PULLED: Final = "{n:node has|nodes have} the images of the next driver"
NOT_PULLED: Final = "{n:node|nodes} cannot get the images of the next driver"
GOES_ON: Final = "{n:node goes|nodes go} on to {state}"
GONE: Final = "{n:node was|nodes were} deleted in mid-upgrade"


class UpgradeController:
    """Upgrade the drivers of a fleet."""

    name: Final = "controllers.Upgrade"

    def __init__(self) -> None:
        self._planner = Planner()
        self._last = Plan()

    def decide(self, snapshot: Snapshot, policies: PoliciesInForce, now: float) -> Plan:
        """Return the plan for the fleet under the policies in force; nothing to do until all pods that matter are known."""
        if not covers(snapshot.followed, policies.upgrades):
            return self._last.waiting()
        self._last = self._planner.decide(policies.as_decided_on(snapshot), policies.upgrades, now)
        return self._last


IS_HELD: Final = "{n:node is|nodes are} held"
HELD: Final = {Reason.SKIPPED: "Skipping {n:node|nodes}", Reason.OPERAND_FAILING: "operand fails on {n:node|nodes}",
               Reason.MIG_NOT_APPLIED: "MIG layout is not applied on {n:node|nodes}"}
"""What is said of nodes that are passed over, or on which something else is wrong, and that are not just held."""


class UpgradeLog:
    """Log each state entered, each eviction, and each node passed over, once; the same of many nodes in one line."""

    def __init__(self) -> None:
        self._log = structlog.get_logger(source=UpgradeController.name)
        self._said: dict[str, str] = {}
        """What was said last, without what changes all the time while it is so."""
        self._holds_all = ""
        """What was said last to hold the rollout as a whole."""
        self._under_way: dict[str, State] = {}
        """Nodes that were under way in the last pass, and their states."""

    def __call__(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass."""
        plan = seen.decision
        if plan is None:
            return
        for outcome in seen.outcomes:
            if isinstance(outcome.action, EvictPod) and not outcome.dropped:
                self._log_eviction(outcome.action, outcome.error)
        self._log_states(seen)
        self._log_gone(seen)
        self._log_rollout(plan, policed=seen.policies.policy.view is not None)
        self._log_staging(seen)
        self._log_notices(seen)
        held = {name: status.hold for name, status in plan.nodes.items()
                if status.hold is not None and (status.hold.lasts or status.hold.repels
                                                or _is_passed_over(status, status.hold.reason))}
        skipped = {name: sentence(hold) for name, hold in held.items()}
        known = {name: _gist(hold) for name, hold in held.items()}
        fresh = ((HELD.get(held[name].reason, IS_HELD), name) for name, gist in known.items() if self._said.get(name) != gist)
        for (text, why), nodes in alike(((text, skipped[name]), name) for text, name in fresh).items():
            self._log.warning(headline(text, nodes), **named(nodes), reason=why)
        others = {f"NVIDIADriver {name}": why for name, why in plan.troubles.items()}
        others |= {f"pod {pod.name}": f"the driver pod has no node: {pod.waiting}" for pod in _unplaced(seen.snapshot)}
        for name, why in others.items():
            if self._said.get(name) != why:
                kind, _, bare = name.partition(" ")
                self._log.warning(f"{kind[0].upper()}{kind[1:]} is held", **{kind: bare}, reason=why)
        self._said = known | others

    def _log_eviction(self, action: EvictPod, error: str) -> None:
        if error:
            self._log.info("Eviction refused", node=action.node, pod=str(action.pod), error=error)
        else:
            self._log.info("Evicted pod", node=action.node, pod=str(action.pod))

    def _log_gone(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Tell of nodes that were deleted in mid-upgrade: nothing else does."""
        gone = ((state, name) for name, state in self._under_way.items() if name not in seen.snapshot.nodes)
        for state, nodes in alike(gone).items():
            self._log.warning(headline(GONE, nodes), **named(nodes), state=str(state))
        plan = seen.decision or Plan()
        self._under_way = {name: status.state for name, status in plan.nodes.items()
                           if status.state in IN_PROGRESS and name in seen.snapshot.nodes}

    def _log_rollout(self, plan: Plan, *, policed: bool) -> None:
        """Tell when something else holds the rollout as a whole than before, or nothing any more."""
        reason = rollout.reason_of(plan) if plan.nodes else ""
        if reason == Reason.PAUSED and not policed and all(hold.reason is not Reason.PAUSED for hold in plan.holds.values()):
            reason = str(Reason.NO_POLICY)
        if reason in {*rollout.HOLDS_ALL, str(Reason.NO_POLICY)} and reason != self._holds_all:
            self._log.info("Driver upgrade is held", reason=reason, message=rollout.rollout_of(plan).message)
            self._holds_all = reason
        elif reason in rollout.GOES_ON and self._holds_all:
            self._log.info("Driver upgrade is held no longer", before=self._holds_all)
            self._holds_all = ""

    def _log_staging(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        done = [outcome.action for outcome in seen.outcomes if outcome.written]
        pulling = [action.node.name for action in done if isinstance(action, CreatePod)]
        told = ((action.annotations.get(names.STAGED), action.node.name) for action in done if isinstance(action, PatchNode))
        ended = ((record.failed, node) for text, node in told if text and (record := staging_record({names.STAGED: text})))
        if pulling:
            self._log.info(headline(PULLS, pulling), **named(pulling))
        for why, nodes in alike(ended).items():
            if why:
                self._log.warning(headline(NOT_PULLED, nodes), **named(nodes), reason=why)
            else:
                self._log.info(headline(PULLED, nodes), **named(nodes))

    def _log_notices(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        done = [outcome.action for outcome in seen.outcomes if outcome.written]
        told = [action for action in done if isinstance(action, PatchNode) and names.NOTICE in action.annotations]
        given = [action.node.name for action in told if action.annotations[names.NOTICE] is not None]
        taken = [action.node.name for action in told if action.annotations[names.NOTICE] is None and action.events
                 and not action.entered]
        for text, nodes in ((NOTICED, given), (TAKEN_BACK, taken)):
            if nodes:
                self._log.info(headline(text, nodes), **named(nodes))

    def _log_states(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        patches = [outcome.action for outcome in seen.outcomes
                   if isinstance(outcome.action, PatchNode) and outcome.action.entered and outcome.written]
        starting = [patch.node.name for patch in patches if _starts(patch)]
        drivers = wanted_versions(starting, seen.snapshot, seen.policies) if starting else {}
        told = _without_another(starting, seen.snapshot, seen.policies)
        driverless = {patch.node.name for patch in patches if not any(
            is_driver_pod(pod, seen.snapshot.namespace) and pod.ready for pod in seen.snapshot.pods.get(patch.node.name, ()))}
        for (entered, change, driver, instead), nodes in alike(_steps(patches, drivers, told, driverless)).items():
            last = entered[-1]
            starts = last is not State.UPGRADE_REQUIRED
            text = STARTS if driver and starts else STEPS.get(last, GOES_ON)
            text = text if instead is None else STARTS_LOSING if starts and instead is LOSES else instead
            log = self._log.warning if last is State.FAILED else self._log.info
            line = headline(text, nodes, driver=driver, state=last).rstrip()
            log(line, **named(nodes), states=[str(state) for state in entered], change=change)


def _without_another(nodes: Sequence[str], snapshot: Snapshot, policies: PoliciesInForce) -> dict[str, str]:
    """Return what is said of those of the nodes that are to have no other driver than they have."""
    lose = frozenset[str]()
    for policy in policies.upgrades if nodes else ():
        own = [name for name in nodes if name in snapshot.nodes and concerns(policy, snapshot.nodes[name])]
        if policy.unowned:
            return dict.fromkeys(own, GIVEN_BACK) | dict.fromkeys(lose, LOSES)
        lose |= losing(own, snapshot, policy)
    return dict.fromkeys(lose, LOSES)


_Step = tuple[tuple[State, ...], str, str, str | None]


def _steps(patches: Iterable[PatchNode], drivers: Mapping[str, str], told: Mapping[str, str], driverless: Set[str]
           ) -> Iterator[tuple[_Step, str]]:
    """Yield what happened to each node: the states that it entered, from where to where, for which driver, and what else is said
    of one that starts (`told`), or that has nothing to be upgraded.
    """
    for patch in patches:
        name, starts = patch.node.name, _starts(patch)
        instead = told.get(name) if starts else NOT_YET if patch.entered == (State.DONE,) and name in driverless else None
        yield (patch.entered, patch.why, "" if instead or not starts else drivers.get(name, ""), instead), name


def _starts(patch: PatchNode) -> bool:
    """Tell whether a node is to have another driver from now on, or is the next to get it."""
    waited = patch.expect_labels.get(names.UPGRADE_STATE) == State.UPGRADE_REQUIRED
    return State.UPGRADE_REQUIRED in patch.entered or (waited and patch.entered[-1] in IN_PROGRESS)


def _gist(hold: Hold) -> str:
    """Return what of a hold is worth a line: a container that restarts is in the same trouble, however often it has, and whether
    it waits, runs or has just ended.
    """
    what = hold.what
    if isinstance(what, Starting) and what.trouble.restarts:
        return f"{hold.reason} {what.pod}"
    return sentence(hold)


def _unplaced(snapshot: Snapshot) -> list[PodView]:
    """Return the driver pods that the scheduler could not place; one that it has not looked at yet is no matter.

    While driver pods that nobody owns are replaced by those of an NVIDIADriver, these wait for their nodes by design.
    """
    found = [pod for pod in snapshot.pods.get("", ()) if pod.waiting and is_driver_pod(pod, snapshot.namespace)]
    pods = (pod for on_node in snapshot.pods.values() for pod in on_node)
    if found and any(pod.orphan and is_driver_pod(pod, snapshot.namespace) for pod in pods):
        return []
    return found


def _is_passed_over(status: NodeStatus, reason: Reason) -> bool:
    """Tell whether others go on before a node: one that is not Ready while nobody is upgraded is skipped by nobody."""
    return reason.passed_over and not (reason is Reason.NODE_NOT_READY and status.state in AT_REST)
