"""What might help a node without a driver pod, or with one that does not get ready: that a DaemonSet makes the pod that it owes
the node, that the pod finds its place, and that it starts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from shlex import quote

import msgspec

from gpuward import names
from gpuward.model.listing import listed
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS
from gpuward.model.taints import Taint, tolerated
from gpuward.model.troubles import trouble_of
from gpuward.model.views import DaemonSetView, NodeView, Owner, PodView
from gpuward.model.waits import Failed, RetryLater
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.remedies.fixes import (
    DecisionFacts,
    Fix,
    described,
    end_pods,
    evicts,
    label_node,
    places,
    request_upgrade,
    with_ready,
    without,
)
from gpuward.upgrade.remedies.operand_pod import mended, with_others, with_those_behind
from gpuward.upgrade.remedies.question import SOON, Candidate, Question
from gpuward.upgrade.remedies.rollback import take_back_untried
from gpuward.upgrade.scope import drives
from gpuward.upgrade.validation_off import lacking

replace = msgspec.structs.replace


def make_driver_pod(question: Question, where: str = "") -> Iterator[Candidate]:
    """Get a driver pod onto the node, which is named where it is not the one that people ask about."""
    case, view = question.case, question.view
    ds = next((ds for ds in case.snapshot.daemonsets if drives(ds, case.policy) and not ds.deleting
               and ds.node_selector.items() <= view.labels.items()), None)
    if ds is not None:
        yield from _let_make(ds, "driver", {names.COMPONENT_LABEL: names.DRIVER_COMPONENT}, question, where)


def let_driver_pod_come(question: Question) -> Iterator[Candidate]:
    """Take the taints from the node that keep its next driver pod away, or what validates it."""
    view, taints = question.view, question.node.would_repel
    kept = tuple(taint for taint in view.taints if taint not in taints)

    def without_them(case: DecisionFacts) -> DecisionFacts:
        node = replace(case.snapshot.nodes[view.name], taints=kept)
        return replace(case, snapshot=replace(case.snapshot, nodes={**case.snapshot.nodes, view.name: node}))

    yield Fix(f"take {_named(taints)} from the node, once whoever set {_it(taints)} has finished, or have drivers and operands "
              f"tolerate {_it(taints)}", without_them, _untaint(view, taints))


def make_others_pods(question: Question, nodes: Container[str]) -> Iterator[Candidate]:
    """Get driver pods onto those of some other nodes that are out of service as they have none."""
    for facts in gather(question.case.snapshot, question.case.policy):
        hold = question.plan.holds.get(facts.node.name)
        idle = facts.state not in IN_PROGRESS and facts.node.name != question.view.name
        if idle and facts.node.name in nodes and hold is not None and hold.reason is Reason.DRIVER_POD_MISSING:
            yield from make_driver_pod(replace(question, node=facts, hold=hold), f"node {facts.node.name}")


def _named(taints: Sequence[Taint]) -> str:
    return f"taint {taints[0]}" if len(taints) == 1 else f"taints {listed(taints)}"


def _it(taints: Sequence[Taint]) -> str:
    return "it" if len(taints) == 1 else "them"


def _untaint(node: NodeView, taints: Iterable[Taint]) -> str:
    return f"kubectl taint node {quote(node.name)} {' '.join(quote(f'{taint.key}:{taint.effect}-') for taint in taints)}"


def make_validator_pod(question: Question) -> Iterator[Candidate]:
    """Get a validator pod onto the node."""
    snapshot, view = question.case.snapshot, question.view
    ds = next((ds for ds in snapshot.daemonsets if ds.name == names.VALIDATOR_APP and ds.namespace == snapshot.namespace
               and not ds.deleting), None)
    if ds is not None and names.DEPLOY_VALIDATOR in lacking(view):
        fix = label_node(view, names.DEPLOY_VALIDATOR, None, "let the node have what validates its driver")
        pod = _made(ds, {"app": names.VALIDATOR_APP}, question)
        yield replace(fix, change=lambda case: _with(fix.change(case), pod))
    elif ds is not None and ds.node_selector.items() <= view.labels.items():
        yield from (with_others(fix, question) for fix in _let_make(ds, "validator", {"app": names.VALIDATOR_APP}, question))


def _let_make(
    ds: DaemonSetView, what: str, labels: Mapping[str, str], question: Question, where: str = ""
) -> Iterator[Fix]:
    """Get a DaemonSet to make its pod. What is in its way stands in other objects than are read here, so commands show it."""
    view = question.view
    made = partial(_with, pod=_made(ds, labels, question))
    in_the_way = [taint for taint in view.taints if ds.tolerations is not None and not tolerated((taint,), ds.tolerations)]
    if in_the_way:
        it, place = _it(in_the_way), where or "the node"
        do = (f"take {_named(in_the_way)} from {place}, once whoever set {it} has finished: DaemonSet {ds.ref} does not tolerate "
              f"{it}")
        yield Fix(do, made, _untaint(view, in_the_way))
        return
    if question.now < question.hold.since + SOON and not isinstance(question.hold.what, Failed | RetryLater):
        return
    place = f"on {where}" if where else "here"
    do = f"let DaemonSet {ds.ref} make a {what} pod {place}: a quota, Pod Security, an affinity or a taint may be in the way"
    looks = (f"kubectl describe daemonset {quote(ds.name)} -n {quote(ds.namespace)}", f"kubectl describe node {quote(view.name)}")
    yield Fix(do, made, looks=looks)


def place_driver_pod(question: Question) -> Iterator[Candidate]:
    """Get a driver pod onto the node that it was made for: what it lacks stands in its events."""
    driver = question.node.driver
    if driver is None or question.now < question.hold.since + SOON:
        return
    do = f"let the scheduler place driver pod {driver.name}: its events say what it lacks"
    yield Fix(do, partial(_placed, pod=driver), looks=(described(driver),))


def mend_driver_pod(question: Question) -> Iterator[Candidate]:
    """Get a driver pod to start that does not: what it lacks stands in its events and its log."""
    driver = question.node.driver
    if driver is None:
        return
    yield _mended(driver, f"mend what keeps driver pod {driver.name} from starting")
    yield from take_back_untried(question)
    yield from empty_for_driver(question)


def start_driver_pod(question: Question) -> Iterator[Candidate]:
    """Get a driver pod to start that takes longer than it should."""
    driver = question.node.driver
    if driver is not None and question.now >= question.hold.since + SOON:
        yield _mended(driver, f"see what driver pod {driver.name} does: it pulls its image, builds modules or loads them")
    failure = question.node.record.failure
    if failure is not None and failure.concerns_driver:
        yield from take_back_untried(question)


def stop_driver_pod(question: Question) -> Iterator[Candidate]:
    """Get a driver pod to end that was asked to."""
    driver = question.node.driver
    if driver is not None and driver.deleting and question.now >= question.hold.since + SOON:
        yield end_pods([driver])


def stop_device_plugin(question: Question) -> Iterator[Candidate]:
    """Get a device plugin's pod to end that is about to, or the driver pod, without which its node is not uncordoned."""
    plugin = question.node.leaving or question.node.device_plugin_going
    if plugin is not None and question.now >= question.hold.since + SOON:
        yield end_pods([plugin])


def empty_for_driver(question: Question) -> Iterator[Candidate]:
    """Get the pods off the node under which no driver can be loaded."""
    if not question.node.to_evict.empty and question.node.state not in IN_PROGRESS:
        do = "ask for an upgrade of this node: pods use its GPUs, and no driver can be replaced under them"
        leaving = question.node.to_evict
        yield request_upgrade(question.view, do).risking(evicts([*leaving.pods, *(held.pod for held in leaving.blocked)]))
    machines, driver = question.node.machines, question.node.driver
    if machines and driver is not None:
        first, many = machines[0], f" (1 of {len(machines)})" if machines[1:] else ""
        yield Fix(f"end the virtual machines that have its GPUs, or wait for their end: {first.ref}{many}",
                  lambda case: with_ready(without(case, places(machines)), driver),
                  looks=(described(first),), risk="what they compute is lost")


def mend_validator_pod(question: Question) -> Iterator[Candidate]:
    """Get a validator pod ready that takes longer than it should."""
    pod = next((pod for pod in question.node.live_validators if not pod.ready), None)
    if question.node.operands and question.node.operands[0] != pod and trouble_of(question.node.operands[0]):
        fix = with_those_behind(mended(question.node.operands[0]), question.node.operands[0], question)
        yield fix if pod is None else replace(fix, change=lambda case: with_ready(fix.change(case), pod))
    elif pod is not None and question.now >= question.hold.since + SOON:
        yield _mended(pod, f"repair what keeps validator pod {pod.name} from getting ready")


def _mended(pod: PodView, do: str) -> Fix:
    command = mended(pod).command
    looks = tuple(dict.fromkeys((described(pod), command)))
    return Fix(do, partial(with_ready, pod=pod), looks=looks)


def _made(ds: DaemonSetView, labels: Mapping[str, str], question: Question) -> PodView:
    """Return the pod that the DaemonSet would make."""
    given = {**labels, names.REVISION_HASH: question.node.target}
    return PodView(ds.namespace, f"{ds.name}-{question.view.name}", node=question.view.name, labels=given, phase="Running",
                   owner=Owner("DaemonSet", ds.name, ds.uid), ready=True, created=question.now)


def _placed(case: DecisionFacts, pod: PodView) -> DecisionFacts:
    waiting = tuple(each for each in case.snapshot.pods.get("", ()) if each.ref != pod.ref)
    placed = replace(pod, node=pod.meant_for, meant_for="", phase="Running", ready=True, waiting="")
    return _with(replace(case, snapshot=replace(case.snapshot, pods={**case.snapshot.pods, "": waiting})), placed)


def _with(case: DecisionFacts, pod: PodView) -> DecisionFacts:
    pods = {**case.snapshot.pods, pod.node: (*case.snapshot.pods.get(pod.node, ()), pod)}
    return replace(case, snapshot=replace(case.snapshot, pods=pods))
