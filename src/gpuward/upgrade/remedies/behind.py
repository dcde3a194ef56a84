"""What helps a node that waits for its turn behind one that is in trouble: to look at that one, before more nodes may start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from shlex import quote

import msgspec

from gpuward import names
from gpuward.model.driver import is_driver_pod
from gpuward.model.listing import listed
from gpuward.model.policy import MaxUnavailable
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import PodView
from gpuward.model.waits import Limit
from gpuward.upgrade.remedies.fixes import DecisionFacts, Dial, Fix, with_ready
from gpuward.upgrade.remedies.question import Candidate, Question
from gpuward.upgrade.remedies.rollback import take_back
from gpuward.upgrade.undrainable import in_quarantine

MOST_NODES = 2
"""Nodes that a person is sent to, or that are named."""
Find = Callable[[Question], Iterator[Candidate]]
replace = msgspec.structs.replace


def after_troubles(find: Find) -> Find:
    """Return what looks at nodes in trouble first, and takes back a driver that does not come up on one; who lets more nodes get
    such a driver is told what that risks.
    """
    def found(question: Question) -> Iterator[Candidate]:
        for name in _in_trouble(question)[:MOST_NODES]:
            yield _look(question, name)
        failing = [name for name in _in_trouble(question) if _fails(question, name) and not question.plan.nodes[name].podless]
        if not failing:
            yield from find(question)
            return
        yield from take_back(question)
        nodes = listed(failing, MOST_NODES) if failing[1:] else f"node {failing[0]}"
        risk = f"the new driver does not come up on {nodes}, and more nodes get it all the same"
        yield from (_warned(each, risk) for each in find(question))
    return found


def quarantined(question: Question, nodes: Iterable[str]) -> Iterator[Candidate]:
    """Yield what sends a person to those of some nodes that are quarantined, and so keep room of their domain."""
    there, policy = question.case.snapshot.nodes, question.case.policy
    records = ((name, there[name].record) for name in nodes if name in there)
    kept = [name for name, record in records if record is not None and in_quarantine(record, policy)]
    yield from (look_at(name, "which is quarantined") for name in kept[:MOST_NODES])


def out_of_service(question: Question) -> Iterator[Candidate]:
    """Yield what sends a person to nodes that no upgrade brings back into service and that no other fix is for, such as one
    whose label says nothing that asks for a driver.
    """
    limit, there = question.hold.what, question.case.snapshot.nodes
    if not isinstance(limit, Limit) or limit.reason is not Reason.NO_NODE_MAY_START:
        return
    sent = _in_trouble(question)[:MOST_NODES]
    others = [name for name in limit.nodes if name in there and name not in sent and _needs_a_look(question, name)]
    for name in others[:MOST_NODES]:
        yield Fix(f"look at node {name}, which no upgrade brings back", partial(_serving, name=name),
                  looks=(f"gpuward explain {quote(name)}",))


def _needs_a_look(question: Question, name: str) -> bool:
    node, status = question.case.snapshot.nodes[name], question.plan.nodes.get(name)
    if status is None or status.hold is None or status.quarantined or not status.hold.reason.needs_person:
        return False
    is_broken = status.hold.reason is Reason.NODE_NOT_READY and not node.unschedulable  # that one is to be got Ready
    return not is_broken and status.hold.reason is not Reason.VALIDATION_OFF


def _serving(case: DecisionFacts, name: str) -> DecisionFacts:
    """Return the facts as if a node that somebody has looked at took no room: what brings it back is its own matter."""
    nodes = case.snapshot.nodes
    limit = MaxUnavailable(count=case.policy.max_unavailable.of(len(nodes)))
    others = {each: node for each, node in nodes.items() if each != name}
    return replace(case, snapshot=replace(case.snapshot, nodes=others), policy=replace(case.policy, max_unavailable=limit))


def _in_trouble(question: Question) -> list[str]:
    """Return the nodes that take up room of the limits until somebody looks at them."""
    held = question.plan.holds
    return [name for name, status in sorted(question.plan.nodes.items()) if name in question.case.snapshot.nodes
            and name != question.view.name and not status.quarantined
            and (_fails(question, name) or (status.state in IN_PROGRESS and name in held and held[name].reason.needs_person))]


def _fails(question: Question, name: str) -> bool:
    """Tell whether the new driver does not come up on a node."""
    status = question.plan.nodes[name]
    if status.state in IN_PROGRESS:
        return status.hold is not None and status.hold.reason is Reason.DRIVER_FAILING
    return status.state is State.FAILED and status.failure is not None and status.failure.concerns_driver


def _look(question: Question, name: str) -> Fix:
    failed = question.plan.nodes[name].state is State.FAILED
    return look_at(name, "whose upgrade failed" if failed else "which is under way and needs somebody")


def look_at(name: str, what: str) -> Fix:
    """Return the fix that sends a person to another node."""
    return Fix(f"look at node {name}, {what}", partial(_done, name=name), looks=(f"gpuward explain {quote(name)}",))


def _done(case: DecisionFacts, name: str) -> DecisionFacts:
    """Return the facts once a node has its driver, and serves."""
    node = case.snapshot.nodes[name]
    ours = node.record is not None and node.record.cordon is CordonOwner.GPUWARD
    done = replace(node, labels={**node.labels, names.UPGRADE_STATE: str(State.DONE)}, record=None, ready=True,
                   unschedulable=node.unschedulable and not ours)
    there, target = case.snapshot.pods.get(name, ()), node.record.target if node.record is not None else ""
    pods = tuple(_replaced(pod, target) if target and is_driver_pod(pod, case.snapshot.namespace) else pod for pod in there)
    case = replace(case, snapshot=replace(case.snapshot, nodes={**case.snapshot.nodes, name: done},
                                          pods={**case.snapshot.pods, name: pods}))
    for pod in pods:
        case = with_ready(case, pod)
    return case


def _replaced(pod: PodView, revision: str) -> PodView:
    """Return a driver pod as its successor will be."""
    return replace(pod, labels={**pod.labels, names.REVISION_HASH: revision}, deleting=False)


def _warned(candidate: Candidate, risk: str) -> Candidate:
    if isinstance(candidate, Fix):
        return candidate
    at, then = candidate.at, candidate.then

    def opened(count: int) -> Fix:
        fix = at(count)
        return fix.risking("; ".join(filter(None, (risk, fix.risk))))

    def finer(count: int) -> Dial:
        assert then is not None
        told = _warned(then(count), risk)
        assert isinstance(told, Dial)
        return told

    return replace(candidate, at=opened, then=None if then is None else finer)
