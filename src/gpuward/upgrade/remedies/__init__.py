"""Say what would help a node that is held. Every fix is tried on paper first: what does not change the decision is not said.

`candidates` knows what people can do about each reason, `fixes` how the facts look once they have done it. Here the upgrade is
decided again on those facts, at the same time, and what becomes of the node is put into words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, islice

import msgspec

from gpuward.model.explain import sentence
from gpuward.model.plan import Hold, NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import BESIDE_THE_DRIVER, Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.waits import OnBudget, OnPod
from gpuward.model.waves import WaveNotDone
from gpuward.upgrade.decide import decide
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.remedies.candidates import candidates
from gpuward.upgrade.remedies.fixes import DecisionFacts, Dial, Fix
from gpuward.upgrade.remedies.question import Question
from gpuward.upgrade.remedies.whose import spoils

MOST_REMEDIES = 6
MOST_PAIRS = 10
"""Pairs of fixes that are tried; each try decides about the whole fleet."""
MOST_STEPS = 31
"""By how much a limit is raised at most: far down the queue of a large fleet a node just waits for its turn."""
_ALIKE = {
    "a pod": frozenset({Reason.PROTECTED_PODS, Reason.HELD_DEVICES}),
    "its turn": frozenset(reason for reason in Reason if reason.is_turn) | {Reason.NO_NODE_MAY_START, Reason.DOMAIN_BROKEN},
    "failures": frozenset({Reason.FAILURE_BUDGET, Reason.NEW_DRIVER_FAILS, Reason.REFUSED_ELSEWHERE,
                           Reason.EVICTION_FORBIDDEN}),
}
"""Reasons that are as good as the same: to wait for another one of them is no progress."""
ON_THE_WAY = frozenset({Reason.DRIVER_POD_MISSING, Reason.DRIVER_ORPHANED, Reason.TEMPLATE_SETTLING})
"""What a node waits for before it is upgraded, without anybody's help."""


class Remedy(msgspec.Struct, frozen=True):
    """Hold something that would help a node: what to do, what becomes of the node then, and the commands that do it."""

    do: str
    then: str
    commands: tuple[str, ...]
    after: DecisionFacts
    """The facts once it is done."""
    risk: str = ""
    """What is lost by it."""


def remedies(snapshot: Snapshot, policy: UpgradePolicy, now: float, name: str) -> tuple[Remedy, ...]:
    """Return what would help a node, cheapest and least dangerous first; nothing for a node that is not held."""
    plan = decide(snapshot, policy, now)
    status = plan.nodes.get(name)
    if status is None or status.hold is None:
        return ()
    node = next(facts for facts in gather(snapshot, policy) if facts.node.name == name)
    trial = _Trial(name, plan, DecisionFacts(snapshot, policy), now)
    return tuple(islice(_found(trial, Question(node, status.hold, trial.case, plan, now)), MOST_REMEDIES))


def _found(trial: _Trial, question: Question) -> Iterator[Remedy]:
    """Try each fix alone, and then those that change nothing alone in pairs."""
    idle: list[Fix] = []
    helped = False
    for candidate in candidates(question):
        if isinstance(candidate, Dial) and candidate.last_resort and helped:
            continue
        fix = trial.smallest(candidate) if isinstance(candidate, Dial) else candidate
        if fix is None:
            continue
        if (remedy := trial.remedy([fix])) is not None:
            helped = True
            yield remedy
        else:
            idle.append(fix)
    pairs = (trial.remedy(pair) for pair in islice(combinations(idle, 2), MOST_PAIRS))
    yield from (remedy for remedy in pairs if remedy is not None)


class _Trial:
    """Decide again with fixes applied."""

    def __init__(self, name: str, before: Plan, case: DecisionFacts, now: float) -> None:
        self.name = name
        self.before = before
        self.case = case
        self.now = now

    def remedy(self, fixes: Iterable[Fix]) -> Remedy | None:
        """Return the remedy that fixes are together, or None if they change nothing for the better."""
        fixes = tuple(fixes)
        case = self.case
        for fix in fixes:
            case = fix.change(case)
        after = decide(case.snapshot, case.policy, self.now)
        if not helps(self.before, after, self.name) or spoils(self.case, case, self.name):
            return None
        then = outlook(self.before.nodes[self.name], after.nodes[self.name], after)
        do = ", and ".join(fix.do for fix in fixes) + (f": {fixes[0].alone}" if len(fixes) == 1 and fixes[0].alone else "")
        risk = "; ".join(dict.fromkeys(fix.risk for fix in fixes if fix.risk))
        return Remedy(do, then, tuple(command for fix in fixes for command in fix.commands), case, risk)

    def smallest(self, dial: Dial) -> Fix | None:
        """Return the smallest step of a dial that helps; every larger one then does too."""
        low, high = dial.low, min(dial.high, dial.low + MOST_STEPS)
        if low > high or not self._helps(dial.at(high)):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._helps(dial.at(middle)):
                high = middle
            else:
                low = middle + 1
        return dial.at(low) if dial.then is None else self.smallest(dial.then(low))

    def _helps(self, fix: Fix) -> bool:
        case = fix.change(self.case)
        return helps(self.before, decide(case.snapshot, case.policy, self.now), self.name)


def helps(before: Plan, after: Plan, name: str) -> bool:
    """Tell whether a node gets on: into another state that is no failure, or to wait for something else."""
    was, becomes = before.nodes[name], after.nodes.get(name)
    if becomes is None or (becomes.state is State.FAILED and was.state is not State.FAILED):
        return False
    if becomes.hold is None or becomes.state is not was.state:
        return True
    if becomes.hold.reason is Reason.UNDECIDED:
        return False
    same = was.hold is not None and _waits_for(was.hold) == _waits_for(becomes.hold)
    return not same or (becomes.hold.reason.is_turn and _moves(after) and not _moves(before))


def _waits_for(hold: Hold) -> tuple[object, ...]:
    """Return what a node waits for: the same pod in its way, or its turn, for another reason is no progress."""
    reason = next((name for name, reasons in _ALIKE.items() if hold.reason in reasons), hold.reason)
    pod = hold.what.pod if isinstance(hold.what, OnPod) else None
    return reason, pod, hold.what.budget if isinstance(hold.what, OnBudget) else None


def _moves(plan: Plan) -> bool:
    """Tell whether the rollout goes on, so that a place in the queue comes to something."""
    return any(status.state in IN_PROGRESS and not (status.hold is not None and status.hold.reason.needs_person)
               for status in plan.nodes.values())


def outlook(before: NodeStatus, after: NodeStatus, plan: Plan | None = None) -> str:
    """Say what becomes of a node in a plan."""
    if after.hold is None and before.hold is not None and before.hold.reason in BESIDE_THE_DRIVER:
        return "nothing is wrong with this node then"
    if after.state is State.DONE and after.hold is None:
        return "this node is up to date then" if after.up_to_date else "the upgrade of this node is over then"
    if after.state in IN_PROGRESS and before.state not in IN_PROGRESS:
        return "this node starts at once"
    if after.hold is None:
        return "this node goes on at once"
    if after.hold.reason in (Reason.ANALYSIS_RUNNING, Reason.BUDGET_USED_UP):
        return f"then this node waits: {sentence(after.hold)}"
    if after.hold.reason is Reason.SKIPPED:
        return "this node keeps the driver that it has, and no rollout waits for it"
    if after.hold.reason.is_turn and (plan is None or not _waits_for_failed(after.hold, plan)):
        place = f" ({ordinal(after.turn)})" if after.turn else ""
        return f"this node then waits for its turn{place}{_shut_before(after.hold, plan)}"
    if after.state in IN_PROGRESS:
        return f"this node goes on: it {_from_it(sentence(after.hold))}"
    if after.hold.reason.in_passing or after.hold.reason in ON_THE_WAY:
        return f"then this node goes on: it {_from_it(sentence(after.hold))}"
    return f"this node is then held by something else: {sentence(after.hold)}"


def _waits_for_failed(hold: Hold, plan: Plan) -> bool:
    """Tell whether a node of the wave that is waited for has failed and is not tried again by itself: no turn comes then."""
    nodes = hold.what.nodes if isinstance(hold.what, WaveNotDone) else ()
    return any(held is not None and held.reason is Reason.FAILED for held in map(plan.holds.get, nodes))


def _shut_before(hold: Hold, plan: Plan | None) -> str:
    """Say that the nodes of the wave before wait for a window, where they all do."""
    nodes = hold.what.nodes if isinstance(hold.what, WaveNotDone) and plan is not None else ()
    holds = [plan.holds.get(node) for node in nodes] if plan is not None else []
    first = next(iter(holds), None)
    shut = all(each is not None and each.reason is Reason.WINDOW_SHUT for each in holds)
    return f", behind nodes that wait, too: {sentence(first)}" if first is not None and shut else ""


def _from_it(text: str) -> str:
    return text if text.startswith(("waits ", "replaces ")) else f"waits: {text}"


def ordinal(number: int) -> str:
    """Return a place in a queue as people say it: 1st, 2nd, 3rd, 4th."""
    tens, ones = number // 10 % 10, number % 10
    return f"{number}{'th' if tens == 1 else {1: 'st', 2: 'nd', 3: 'rd'}.get(ones, 'th')}"
