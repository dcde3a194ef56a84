"""What a DaemonSet has to do on one node, and what that node adds to its status.

The rules are those of the Kubernetes DaemonSet controller without surge: a pod that is on its way out still fills its
place, so a new one comes only when the old one is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from kubesandbox.sim.controllers.revisions import REVISION_HASH
from kubesandbox.sim.objects import (
    Object,
    available_at,
    is_finished,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    owned_by,
    phase_of,
)
from kubesandbox.sim.selection import (
    BLOCKING_EFFECTS,
    NOT_READY_TAINT,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
    untolerated,
)

if TYPE_CHECKING:
    from kubesandbox.resources import Resource
    from kubesandbox.sim.demands import Demands


def _tolerate(key: str, effect: str) -> Object:
    return {"key": key, "operator": "Exists", "effect": effect}


DAEMON_TOLERATIONS: Final = [
    _tolerate(NOT_READY_TAINT, "NoExecute"),
    _tolerate(UNREACHABLE_TAINT, "NoExecute"),
    _tolerate("node.kubernetes.io/disk-pressure", "NoSchedule"),
    _tolerate("node.kubernetes.io/memory-pressure", "NoSchedule"),
    _tolerate("node.kubernetes.io/pid-pressure", "NoSchedule"),
    _tolerate(UNSCHEDULABLE_TAINT, "NoSchedule"),
]
HOST_NETWORK_TOLERATION: Final = _tolerate("node.kubernetes.io/network-unavailable", "NoSchedule")
TEMPLATE_LABEL: Final = "pod-template-generation"


class Standing(Enum):
    """Say how a node's pod stands towards the current revision, for a rolling update."""

    NONE = "no pod"
    GAP = "between two pods"
    NEW = "updated and available"
    NEW_UNAVAILABLE = "updated, not available"
    OLD = "old and available"
    OLD_UNAVAILABLE = "old, not available"


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """Hold what one generation of a DaemonSet means for its nodes."""

    generation: int
    revision: str
    """The name of the ControllerRevision."""
    digest: str
    template: str
    """How often the template has changed; pods carry the number that was current when they were made."""
    collisions: int
    demands: Demands
    min_ready_seconds: float


@dataclass(frozen=True, slots=True)
class NodeShare:
    """Hold what a node adds to the status: desired, current, misscheduled, ready, available, updated."""

    counts: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)
    standing: Standing = Standing.NONE


@dataclass(frozen=True, slots=True)
class Verdict:
    """Say what is to be done on a node; `wake` is when time alone will change the answer."""

    share: NodeShare
    missing: bool = False
    surplus: list[Object] = field(default_factory=list)
    failed: list[Object] = field(default_factory=list)
    wake: float | None = None


def judge(node: Object, pods: list[Object], facts: DaemonFacts, now: float) -> Verdict:
    """Compare a node's pods of a DaemonSet with what it should run there."""
    should_run, may_stay = _placement(node, facts.demands)
    # A pod that has ended and is being deleted holds no place any more.
    there = sorted((pod for pod in pods if not (is_terminating(pod) and is_finished(pod))), key=_age)
    alive = [pod for pod in there if not is_terminating(pod)]
    node_share, wake = _share_of(should_run, there, alive, facts, now)
    if not may_stay:
        return Verdict(node_share, surplus=alive)
    failed = [pod for pod in alive if phase_of(pod) == "Failed"]
    ended = [pod for pod in alive if phase_of(pod) == "Succeeded"]
    running = [pod for pod in alive if not is_finished(pod)]
    return Verdict(node_share, missing=should_run and not there, surplus=[*ended, *running[1:]], failed=failed, wake=wake)


def daemon_pod(daemonset: Object, facts: DaemonFacts, node: str, resource: Resource) -> Object:
    """Return the pod that a DaemonSet wants on a node."""
    template = daemonset["spec"]["template"]
    meta, spec = template["metadata"], dict(template["spec"])
    spec["affinity"] = _pinned(spec.get("affinity") or {}, node)
    extra = [*DAEMON_TOLERATIONS, *([HOST_NETWORK_TOLERATION] if spec.get("hostNetwork") else ())]
    own = list(spec.get("tolerations") or ())
    spec["tolerations"] = own + [toleration for toleration in extra if toleration not in own]
    pod_meta = {
        "generateName": name_of(daemonset) + "-", "namespace": namespace_of(daemonset),
        "labels": {**(meta.get("labels") or {}), REVISION_HASH: facts.digest, TEMPLATE_LABEL: facts.template},
        "ownerReferences": [owned_by(daemonset, resource)]}
    if meta.get("annotations"):
        pod_meta["annotations"] = meta["annotations"]
    return {"metadata": pod_meta, "spec": spec}


def is_updated(pod: Object, facts: DaemonFacts) -> bool:
    """Tell whether the controller takes a pod for one of the current template.

    The number alone is enough for it. So a pod that was adopted from another DaemonSet passes for updated where both templates
    have changed equally often.
    """
    return labels_of(pod).get(REVISION_HASH) == facts.digest or labels_of(pod).get(TEMPLATE_LABEL) == facts.template


def _placement(node: Object, demands: Demands) -> tuple[bool, bool]:
    if not demands.fits_labels(node):
        return False, False
    if untolerated(node, demands.tolerations, BLOCKING_EFFECTS) is not None:
        return False, untolerated(node, demands.tolerations, ("NoExecute",)) is None
    return True, True


def _age(pod: Object) -> tuple[bool, str, str]:
    return not node_of(pod), pod["metadata"]["creationTimestamp"], name_of(pod)


def _share_of(should_run: bool, there: list[Object], alive: list[Object], facts: DaemonFacts,
              now: float) -> tuple[NodeShare, float | None]:
    standing, wake = _standing(there, alive, facts, now)
    if should_run and not there:
        # The controller waits until it sees the pod that it makes before it takes another one away.
        return NodeShare((1, 0, 0, 0, 0, 0), Standing.GAP), None
    if not should_run:
        return NodeShare((0, 0, int(bool(there)), 0, 0, 0), standing), wake
    # The controller reports on the oldest pod of a node, even while that is on its way out.
    oldest = there[0]
    counts = (1, 1, 0, int(is_ready(oldest)), int(available_at(oldest, facts.min_ready_seconds) <= now),
              int(is_updated(oldest, facts)))
    return NodeShare(counts, standing), wake


def _standing(there: list[Object], alive: list[Object], facts: DaemonFacts, now: float) -> tuple[Standing, float | None]:
    if not there:
        return Standing.NONE, None
    if len(alive) != 1:
        return Standing.GAP, None
    pod = alive[0]
    instant = available_at(pod, facts.min_ready_seconds)
    wake = instant if now < instant < float("inf") else None
    if is_updated(pod, facts):
        return (Standing.NEW if instant <= now else Standing.NEW_UNAVAILABLE), wake
    return (Standing.OLD if instant <= now else Standing.OLD_UNAVAILABLE), wake


def _pinned(affinity: Object, node: str) -> Object:
    """Return the affinity with the node's name as its one required term; the controller has checked the others."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    node_affinity = {**(affinity.get("nodeAffinity") or {}),
                     "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**affinity, "nodeAffinity": node_affinity}
