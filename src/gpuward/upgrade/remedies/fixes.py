"""What people can do about a held node: each fix in words, as a command where there is one, and the facts once it is done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from shlex import quote

import msgspec

from gpuward import names
from gpuward.model.budgets import BudgetView
from gpuward.model.listing import MOST_NAMED, all_of, listed
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView

replace = msgspec.structs.replace


class DecisionFacts(msgspec.Struct, frozen=True):
    """Hold what a decision is made on."""

    snapshot: Snapshot
    policy: UpgradePolicy


class Fix(msgspec.Struct, frozen=True):
    """Hold one thing that a person could do."""

    do: str
    change: Callable[[DecisionFacts], DecisionFacts]
    """Return the facts as they would be."""
    command: str = ""
    risk: str = ""
    """What is lost by it."""
    looks: tuple[str, ...] = ()
    """Commands that show what is wrong, where no command can do it."""
    alone: str = ""
    """What becomes of other nodes, if nothing else is done."""

    @property
    def commands(self) -> tuple[str, ...]:
        """Return its commands in their order."""
        return (*self.looks, *((self.command,) if self.command else ()))

    def followed_by(self, other: Fix) -> Fix:
        """Return this fix and another one as one."""
        command = " && ".join(filter(None, (self.command, other.command)))
        risk = "; ".join(filter(None, (self.risk, other.risk)))
        return Fix(f"{self.do}, and {other.do}", lambda case: other.change(self.change(case)), command, risk,
                   (*self.looks, *other.looks))

    def told(self, do: str) -> Fix:
        """Return this fix in other words."""
        return replace(self, do=do)

    def retold(self, command: str) -> Fix:
        """Return this fix with another command that does it."""
        return replace(self, command=command)

    def risking(self, risk: str) -> Fix:
        """Return this fix with what is lost by it."""
        return replace(self, risk=risk)


class Dial(msgspec.Struct, frozen=True):
    """Hold a number that a person could raise: the smallest one that helps is looked for between two bounds."""

    low: int
    high: int
    at: Callable[[int], Fix]
    last_resort: bool = False
    """Whether it is of interest only where nothing else helps."""
    then: Callable[[int], Dial] | None = None
    """The dial of a second number, for the smallest value of the first one: `at` then takes the second one to be high enough."""


# Nodes.


def label_node(node: NodeView, key: str, value: str | None, do: str) -> Fix:
    """Return the fix that sets a node's label, or removes it."""
    command = f"kubectl label node {quote(node.name)} " + (f"{key}-" if value is None else f"{key}={value} --overwrite")
    return Fix(do, partial(_edit, name=node.name, labels={key: value}), command)


def label_node_with(node: NodeView, labels: Mapping[str, str], do: str) -> Fix:
    """Return the fix that sets labels of a node."""
    said = " ".join(f"{key}={quote(value)}" for key, value in sorted(labels.items()))
    command = f"kubectl label node {quote(node.name)} {said} --overwrite"
    return Fix(do, partial(_edit, name=node.name, labels=dict(labels)), command)


def start_anew(node: NodeView, do: str) -> Fix:
    """Return the fix that asks for an upgrade by the state label, as NVIDIA documents it for failed nodes."""
    return label_node(node, names.UPGRADE_STATE, str(State.UPGRADE_REQUIRED), do)


def try_again(node: NodeView, do: str) -> Fix:
    """Return the fix that has a failed node tried again."""
    return replace(start_anew(node, do), command=f"gpuward retry {quote(node.name)}")


def request_upgrade(node: NodeView, do: str) -> Fix:
    """Return the fix that asks for an upgrade by annotation."""
    change = partial(_edit, name=node.name, annotations={names.UPGRADE_REQUESTED: "true"})
    return Fix(do, change, f"kubectl annotate node {quote(node.name)} {names.UPGRADE_REQUESTED}=true --overwrite")


def push_image(image: str) -> Fix:
    """Return the fix that puts an image into its registry."""
    def change(case: DecisionFacts) -> DecisionFacts:
        images = case.snapshot.images
        if images is None:
            return case
        missing = {name: said for name, said in images.missing.items() if name != image}
        found = replace(images, missing=missing, passed=images.passed | {image})
        return replace(case, snapshot=replace(case.snapshot, images=found))
    return Fix(f"push the image {image} to its registry", change)


def uncordon(node: NodeView) -> Fix:
    """Return the fix that makes a node schedulable again."""
    change = partial(_edit, name=node.name, unschedulable=False)
    return Fix(f"uncordon node {node.name}, if it may serve again", change, f"kubectl uncordon {quote(node.name)}",
               "pods are scheduled to it at once, whatever whoever cordoned it is doing there")


def repair(node: NodeView) -> Fix:
    """Return the fix that makes a node answer again; how to do that nobody can tell from here."""
    change = partial(_edit, name=node.name, ready=True)
    return Fix(f"get node {node.name} Ready again", change, looks=(f"kubectl describe node {quote(node.name)}",))


def _edit(
    case: DecisionFacts, name: str, labels: Mapping[str, str | None] = {}, annotations: Mapping[str, str | None] = {},
    **fields: bool,
) -> DecisionFacts:
    node = case.snapshot.nodes[name]
    edited = replace(node, labels=_patched(node.labels, labels), annotations=_patched(node.annotations, annotations), **fields)
    return replace(case, snapshot=replace(case.snapshot, nodes={**case.snapshot.nodes, name: edited}))


def _patched(old: Mapping[str, str], new: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**old, **new}.items() if value is not None}


# Pods.


def delete_pods(pods: Collection[PodView]) -> Fix:
    """Return the fix that deletes pods of one node for good."""
    command = " && ".join(f"kubectl delete pod {quote(pod.name)} -n {quote(pod.namespace)}" for pod in pods)
    do = f"delete {'pods' if len(pods) > 1 else 'pod'} {all_of([pod.ref for pod in pods])}"
    return Fix(do, partial(without, gone=places(pods)), command, ends(pods))


def ends(pods: Collection[PodView]) -> str:
    """Say what is lost with pods that end."""
    bare = [str(pod.ref) for pod in pods if pod.owner is None]
    lost = f"this ends the pod{'s: what they have' if len(pods) > 1 else ': what it has'} not saved is lost, emptyDir volumes too"
    gangs = list(dict.fromkeys(pod.gang for pod in pods if pod.gang))
    others = f"; other pods of {listed(gangs, MOST_NAMED)} may not go on without it" if gangs else ""
    return lost + (f"; no controller starts {', '.join(bare)} again" if bare else "") + others


def evicts(pods: Collection[PodView]) -> str:
    """Say what an upgrade ends that is asked for; nothing where no pod has to leave."""
    if not pods:
        return ""
    return f"the upgrade ends the pods that use GPUs on this node: {listed([pod.ref for pod in pods], MOST_NAMED)}"


def leave_daemonset(node: NodeView, pod: PodView) -> Fix:
    """Return the fix for a pod that its DaemonSet would start again wherever it may."""
    owner = f"{pod.namespace}/{pod.owner.name}" if pod.owner else pod.namespace
    do = f"take node {node.name} out of the node selector of DaemonSet {owner}, which made pod {pod.ref}"
    return Fix(do, partial(without, gone=places([pod])), risk=ends([pod]))


def remove_static_pod(node: NodeView, pod: PodView) -> Fix:
    """Return the fix for a pod that the kubelet runs from a file."""
    do = f"remove the manifest of static pod {pod.ref} from node {node.name}"
    return Fix(do, partial(without, gone=places([pod])), risk=ends([pod]))


def end_pods(pods: Collection[PodView]) -> Fix:
    """Return the fix for pods that were asked to end and do not."""
    refs = [pod.ref for pod in pods]
    named = all_of(refs) if len(refs) <= MOST_NAMED else listed(refs, MOST_NAMED)
    first = next(iter(pods))
    what, it = ("pods", "them") if len(pods) > 1 else ("pod", "it")
    kept = ", ".join(dict.fromkeys(finalizer for pod in pods for finalizer in pod.kept_by_finalizers))
    by = f"a process that does not stop may keep {it}"
    if kept:
        by = f"finalizer {kept} keeps {it} until whoever set it takes it off"
    do = f"get {what} {named} to end ({by})"
    risk = "a finalizer that is removed, or a pod that is deleted with --force, leaves undone what it was there for"
    return Fix(do, partial(without, gone=places(pods)), risk=risk, looks=(described(first),))


def acknowledge(pods: Collection[PodView], notice: str) -> Fix:
    """Return the fix after which pods have acknowledged a notice."""
    command = " && ".join(f"kubectl annotate pod {quote(pod.name)} -n {quote(pod.namespace)} {names.ACKNOWLEDGED}={notice} "
                          "--overwrite" for pod in pods)
    what = f"{'pods' if len(pods) > 1 else 'pod'} {all_of([pod.ref for pod in pods])}"
    saved = "they have saved what they need" if len(pods) > 1 else "it has saved what it needs"
    return Fix(f"acknowledge the notice for {what}, once {saved}",
               partial(_acknowledged, gone=places(pods), notice=notice), command, ends(pods))


def _acknowledged(case: DecisionFacts, gone: frozenset[tuple[str, str, str]], notice: str) -> DecisionFacts:
    pods = dict(case.snapshot.pods)
    for node in {place[0] for place in gone}:
        pods[node] = tuple(replace(pod, acknowledged=notice) if (pod.node, pod.namespace, pod.name) in gone else pod
                           for pod in pods.get(node, ()))
    return replace(case, snapshot=replace(case.snapshot, pods=pods))


def described(pod: PodView) -> str:
    """Return the command that shows a pod and its events."""
    return f"kubectl describe pod {quote(pod.name)} -n {quote(pod.namespace)}"


def places(pods: Collection[PodView]) -> frozenset[tuple[str, str, str]]:
    """Return node, namespace and name of pods."""
    return frozenset((pod.node, pod.namespace, pod.name) for pod in pods)


def without(case: DecisionFacts, gone: frozenset[tuple[str, str, str]]) -> DecisionFacts:
    """Return the facts without some pods."""
    pods = dict(case.snapshot.pods)
    for node in {place[0] for place in gone}:
        pods[node] = tuple(pod for pod in pods.get(node, ()) if (pod.node, pod.namespace, pod.name) not in gone)
    return replace(case, snapshot=replace(case.snapshot, pods=pods))


def with_ready(case: DecisionFacts, pod: PodView) -> DecisionFacts:
    """Return the facts once a pod is ready."""
    on_node = case.snapshot.pods.get(pod.node, ())
    ready = tuple(replace(each, ready=True, waiting="", restarts=0) if each.ref == pod.ref else each for each in on_node)
    return replace(case, snapshot=replace(case.snapshot, pods={**case.snapshot.pods, pod.node: ready}))


# Disruption budgets.


def raise_budget(budget: BudgetView, first: Collection[PodView], allowed: int) -> Fix:
    """Return the fix that lets a budget allow so many disruptions; pods it refused then go, those in `first` before others."""
    do = (f"let disruption budget {budget.ref} allow {allowed} disruption{'s' if allowed > 1 else ''}, not {budget.allowed} "
          f"({budget.how_to_widen})")
    change = partial(_roomier, budget=budget, first=first, allowed=allowed)
    return Fix(do, change, f"kubectl edit pdb {quote(budget.name)} -n {quote(budget.namespace)}",
               "so many of its pods may be away together from then on, for whatever reason")


def get_ready(budget: BudgetView, unready: Sequence[PodView], first: Collection[PodView]) -> Fix:
    """Return the fix by which a budget has room as pods of it get ready."""
    allowed, pods = budget.healthy + len(unready) - budget.desired, sorted(str(pod.ref) for pod in unready)
    do = f"get pods ready that disruption budget {budget.ref} counts: {listed(pods, MOST_NAMED)}"
    change = partial(_roomier, budget=budget, first=first, allowed=allowed)
    return Fix(do, change, looks=(described(unready[0]),))


def _roomier(case: DecisionFacts, budget: BudgetView, first: Collection[PodView], allowed: int) -> DecisionFacts:
    budgets = tuple(replace(one, allowed=allowed) if one.ref == budget.ref else one for one in case.snapshot.budgets)
    free = [pod.uid for pod in first if budget.covers(pod)][:allowed]
    refusals = {uid: refusal for uid, refusal in case.snapshot.refusals.items() if uid not in free}
    return replace(case, snapshot=replace(case.snapshot, budgets=budgets, refusals=refusals))


def delete_budget(budget: BudgetView) -> Fix:
    """Return the fix that takes a budget away."""
    command = f"kubectl delete pdb {quote(budget.name)} -n {quote(budget.namespace)}"
    return Fix(f"delete disruption budget {budget.ref}", partial(_unbound, budget=budget), command,
               "all of its pods may then be evicted together, by anybody")


def _unbound(case: DecisionFacts, budget: BudgetView) -> DecisionFacts:
    budgets = tuple(one for one in case.snapshot.budgets if one.ref != budget.ref)
    return replace(case, snapshot=replace(case.snapshot, budgets=budgets))
