"""Say in an event what has gone that gpuward needs: a policy in mid-rollout, what a policy names, labels of discovery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpuward import names
from gpuward.kube.events import WARNING, About, EventRecorder
from gpuward.labels.discovery import SILENCE, is_outage, is_silent, lost_nodes
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.model.passes import Pass
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.uncordoned import UNCORDONED, lacks_cordon
from gpuward.model.views import NodeView, PolicyView
from gpuward.operands.decide import Reconciliation
from gpuward.operands.nvidiadriver.decide import Driving
from gpuward.operands.nvidiadriver.status import NOT_FOLLOWED as REFUSED
from gpuward.operands.unmounted import told_of_unmounted, unmounted
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.unmade import NOT_FOLLOWED

DELETED: Final = f"{names.ROLLOUT_EVENT_PREFIX}PolicyDeleted"
LOST: Final = "DiscoveryLost"
MISSING: Final = "ConfigMapMissing"
LIFTED: Final = f"{names.ROLLOUT_EVENT_PREFIX}Uncordoned"
GONE: Final = ("the ClusterPolicy is gone before the driver upgrade of {nodes} was done: no further node starts, and nodes "
               "without a driver stay cordoned until a ClusterPolicy is in force again")
OUTAGE: Final = ("node feature discovery no longer sees GPUs on {nodes}: as so many lost their labels together, they keep their "
                 "operands")
UNSEEN: Final = ("node feature discovery sees no GPU on this node any more: its operands go after the grace (discoveryGrace), "
                 "unless pods use its GPUs or the labels come back")
UNDESCRIBED: Final = (f"the labels of GPU feature discovery are gone from this node ({names.GPU_PRODUCT}): pods that select "
                      "nodes by them are not scheduled here")
OPENED: Final = f"{UNCORDONED}: pods that use GPUs may come before the driver is ready"
_UNDER_WAY: Final = IN_PROGRESS | {State.UPGRADE_REQUIRED}


class AbsenceEvents:
    """Remember what was there, and say once what is not there any more. What is so at a start is taken as said."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._refused: dict[str, str] = {}
        self._unmounted: Mapping[str, str] = {}
        self._policy: PolicyView | None = None
        self._nodes: Mapping[str, NodeView] | None = None
        self._lost: frozenset[str] = frozenset()
        self._open: frozenset[str] = frozenset()
        self._described: frozenset[str] = frozenset()
        self._outage = False

    def applied(self, seen: Pass[PoliciesInForce, Reconciliation]) -> None:
        """Take a pass over the ClusterPolicy."""
        view = seen.policies.policy.view
        if view is None and self._policy is not None:
            self._deleted(self._policy)
        self._policy = view
        self._mounts(seen.policies, seen.snapshot)
        verdict = seen.decision.verdict if seen.decision is not None else None
        if verdict is not None and view is not None:
            invalid = bool(seen.policies.policy.problems)  # an event of the upgrade says that
            self._follow(_policy(view), verdict.reason == NOT_FOLLOWED and not invalid, verdict.message)
        self._discovery(seen.snapshot, view)

    def driven(self, seen: Pass[PoliciesInForce, Driving]) -> None:
        """Take a pass over the NVIDIADrivers."""
        verdicts = seen.decision.verdicts if seen.decision is not None else {}
        for view in seen.snapshot.drivers:
            if (verdict := verdicts.get(view.name)) is not None:
                about = About(f"{names.NVIDIA_GROUP}/{names.NVIDIA_DRIVER_VERSION}", "NVIDIADriver", view.name, view.uid)
                self._follow(about, verdict.reason in REFUSED, verdict.message, verdict.reason)

    def _mounts(self, policies: PoliciesInForce, snapshot: Snapshot) -> None:
        """Say which ConfigMap pods wait for that only they need."""
        view = policies.policy.view
        if view is None or policies.policy.valid is None or not snapshot.references.known_for(view):
            return
        missing = unmounted(policies.policy, snapshot)
        for name, message in told_of_unmounted(missing, snapshot.namespace):
            if self._unmounted.get(name) != missing[name]:
                self._recorder.record(_policy(view), WARNING, MISSING, message)
        self._unmounted = missing

    def _follow(self, about: About, refused: bool, message: str, reason: str = NOT_FOLLOWED) -> None:
        """Say why a policy cannot be followed, again only where that changes."""
        if not refused:
            self._refused.pop(about.uid, None)
        elif "cannot be written: " not in message and self._refused.get(about.uid) != message:  # that has one of its own
            self._refused[about.uid] = message
            self._recorder.record(about, WARNING, reason, message)

    def _deleted(self, view: PolicyView) -> None:
        before = self._nodes or {}  # since then nodes that had not begun have lost their labels
        nodes = [name for name, node in sorted(before.items()) if node.state in _UNDER_WAY]
        if nodes:
            self._recorder.record(_policy(view), WARNING, DELETED, GONE.format(nodes=_named(nodes)))

    def _discovery(self, snapshot: Snapshot, view: PolicyView | None) -> None:
        nodes = snapshot.nodes
        if nodes is self._nodes:
            return
        lost, outage, known = lost_nodes(nodes.values()), is_outage(nodes.values()), self._nodes is not None
        described = frozenset(name for name, node in nodes.items() if node.labels.get(names.GPU_PRODUCT))
        opened = frozenset(name for name, node in nodes.items() if lacks_cordon(node))
        if known and view is not None:
            if outage and not self._outage:
                self._recorder.record(_policy(view), WARNING, LOST, OUTAGE.format(nodes=_named(sorted(lost))))
            unseen = frozenset() if outage else lost - self._lost
            silent = frozenset(name for name in unseen if is_silent(nodes[name]))
            self._tell(unseen - silent, nodes, UNSEEN)
            self._tell(silent, nodes, SILENCE.format(node="this node"))
            self._tell(opened - self._open, nodes, OPENED, LIFTED)
            self._tell((self._described - described) & nodes.keys() - lost, nodes, UNDESCRIBED)
        self._nodes, self._lost, self._described, self._outage, self._open = nodes, lost, described, outage, opened

    def _tell(self, told: Iterable[str], nodes: Mapping[str, NodeView], message: str, reason: str = LOST) -> None:
        for name in sorted(told):
            self._recorder.record(About("v1", "Node", name, nodes[name].uid), WARNING, reason, message)


def _policy(view: PolicyView) -> About:
    return About(f"{names.NVIDIA_GROUP}/{names.CLUSTER_POLICY_VERSION}", "ClusterPolicy", view.name, view.uid)


def _named(nodes: Iterable[str]) -> str:
    found = list(nodes)
    return f"{len(found)} node{'s' if len(found) > 1 else ''} ({listed(found, MOST_NAMED)})"
