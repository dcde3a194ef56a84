"""What might help a node of which only the driver pod is to be restarted, and that waits for an operand that holds the driver."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from shlex import quote

import msgspec

from gpuward import names
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS
from gpuward.model.views import DaemonSetView, Owner, PodView
from gpuward.upgrade.module_holders import holder_daemonsets
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix, request_upgrade
from gpuward.upgrade.remedies.operand_pod import mended
from gpuward.upgrade.remedies.question import SOON, Candidate, Question

replace = msgspec.structs.replace


def holders_of(question: Question) -> list[tuple[DaemonSetView, PodView | None]]:
    """Return the DaemonSets whose pods are to hold the node's driver, each with its pod there, those first that have none."""
    known, view = holder_daemonsets(question.case.snapshot), question.view
    there = {pod.owner.uid: pod for pod in question.case.snapshot.pods.get(view.name, ()) if pod.owner is not None}
    found = [(ds, there.get(ds.uid)) for ds in question.case.snapshot.daemonsets
             if ds.uid in known and ds.node_selector.items() <= view.labels.items()]
    return sorted(found, key=lambda each: each[1] is not None)


def start_holder(question: Question, risk: str) -> Iterator[Candidate]:
    """Get a pod ready that holds the driver, or go on without. Where driver pods are not made that is no way: another node would
    lose its driver.
    """
    if question.now >= question.hold.since + SOON:
        for ds, pod in holders_of(question)[:1]:
            yield _started(ds, pod, question)
    if not any(_lacks_driver_pod(question, name) for name in question.plan.holds):
        do = "ask for an upgrade of this node, which replaces its driver pod"
        yield request_upgrade(question.view, do).risking(risk)


def _started(ds: DaemonSetView, pod: PodView | None, question: Question) -> Fix:
    made = pod or PodView(ds.namespace, f"{ds.name}-{question.view.name}", node=question.view.name, phase="Running",
                          owner=Owner("DaemonSet", ds.name, ds.uid), created=question.now)
    newest = {**made.labels, names.TEMPLATE_GENERATION: str(ds.template_generation)}
    made = replace(made, ready=True, deleting=False, labels=newest)
    change = partial(_with, pod=made)
    if pod is not None and not pod.ready:
        return replace(mended(pod), change=change)
    do = (f"let DaemonSet {ds.ref} make its pod here" if pod is None else f"let DaemonSet {ds.ref} replace pod {pod.name}, which "
          "has an older template, as it does with one pod after the other")
    return Fix(f"{do}: its events say what keeps it from that", change,
               looks=(f"kubectl describe daemonset {quote(ds.name)} -n {quote(ds.namespace)}",))


def _with(case: DecisionFacts, pod: PodView) -> DecisionFacts:
    others = tuple(each for each in case.snapshot.pods.get(pod.node, ()) if each.ref != pod.ref)
    return replace(case, snapshot=replace(case.snapshot, pods={**case.snapshot.pods, pod.node: (*others, pod)}))


def _lacks_driver_pod(question: Question, name: str) -> bool:
    """Tell whether a node under way waits for a driver pod for longer than a DaemonSet takes to make one."""
    hold, status = question.plan.holds[name], question.plan.nodes.get(name)
    return (hold.reason is Reason.DRIVER_POD_MISSING and status is not None and status.state in IN_PROGRESS
            and question.now >= hold.since + SOON)
