"""The ClusterPolicy controller: brings the operands about and reports on them in the policy's status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import structlog

from gpuward import names
from gpuward.controllers.metrics import Metrics
from gpuward.controllers.policies import ActivePolicy, PolicyReader, remember
from gpuward.controllers.surroundings import Surroundings
from gpuward.errors import PolicyError
from gpuward.model.actions import Action, PatchAnnotations, PatchStatus
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.operands.changes import changes
from gpuward.operands.cluster import cluster_facts
from gpuward.operands.facts import ClusterFacts
from gpuward.operands.readiness import waits_for
from gpuward.operands.render import render
from gpuward.operands.state import OperandState
from gpuward.operands.status import Verdict, failed, invalid, judged, status_of
from gpuward.ports import Outcome

IGNORED = "ignored"


class Reconciliation(msgspec.Struct, frozen=True):
    """Hold what one pass over the policies decided."""

    actions: Sequence[Action] = ()
    wake_at: float | None = None
    verdict: Verdict | None = None
    waiting: Mapping[str, str] = {}
    """What each state that is not ready waits for."""


class ClusterPolicyController:
    """Keep the cluster's GPU stack as the active ClusterPolicy describes it."""

    name = "controllers.ClusterPolicy"

    def __init__(self, reader: PolicyReader, surroundings: Surroundings, images: Mapping[str, str], metrics: Metrics) -> None:
        self._reader = reader
        self._surroundings = surroundings
        self._images = images
        self._metrics = metrics
        self._log = structlog.get_logger(logger=self.name)
        self._rendered: tuple[tuple[str, int, ClusterFacts], tuple[OperandState, ...]] | None = None
        self._said = ""
        self._now = 0.0

    def decide(self, snapshot: Snapshot, now: float) -> Reconciliation:
        """Return the writes that the active policy needs, and the status of every policy."""
        self._now = now
        active = self._reader.read(snapshot)
        ignored = [action for view in snapshot.policies[1:] if (action := _ignore(view)) is not None]
        if active.view is None:
            return Reconciliation()
        if active.valid is None:
            verdict = invalid(active.problems)
            return Reconciliation([*ignored, *_status(active.view, verdict, snapshot, now)], verdict=verdict)
        if not self._surroundings.known_for(active.view):
            return Reconciliation(ignored)
        facts = self._facts(snapshot)
        try:
            states = self._render(active, facts)
        except PolicyError as problem:
            verdict = invalid([problem])
            return Reconciliation([*ignored, *_status(active.view, verdict, snapshot, now)], verdict=verdict)
        waiting = _waiting(states, snapshot)
        verdict = _judge(states, waiting, snapshot, facts)
        actions = [
            *ignored,
            *_remember(active),
            *changes(states, active.view.ref, snapshot),
            *_status(active.view, verdict, snapshot, now),
        ]
        return Reconciliation(actions, verdict=verdict, waiting=waiting)

    def report(self, snapshot: Snapshot, decision: Reconciliation, outcomes: Sequence[Outcome]) -> None:
        """Log each write and each change of the verdict; set the metrics."""
        for outcome in outcomes:
            action, error = outcome.action, outcome.error
            if error:
                self._log.warning("Action failed", action=type(action).__name__, object=action.lane, error=error)
            elif not isinstance(action, PatchStatus) and not outcome.dropped:
                self._log.info(type(action).__name__, object=action.lane, why=action.why)
        verdict = decision.verdict
        gpu_nodes = sum(node.gpu_present for node in snapshot.nodes.values())
        self._metrics.reconciled(verdict, gpu_nodes=gpu_nodes, has_nfd_labels=has_nfd_labels(snapshot), now=self._now)
        said = f"{verdict.reason}: {verdict.message}" if verdict else "no ClusterPolicy"
        if said != self._said:
            self._said = said
            log = self._log.info if verdict is None or verdict.ready else self._log.warning
            log("ClusterPolicy " + (verdict.state if verdict else "absent"), reason=said, waiting=dict(decision.waiting))

    def _facts(self, snapshot: Snapshot) -> ClusterFacts:
        seen = self._surroundings
        return cluster_facts(
            snapshot.namespace,
            snapshot.nodes.values(),
            has_service_monitor_crd=seen.has_service_monitors,
            config_maps=seen.config_maps,
            secrets=seen.secrets,
        )

    def _render(self, active: ActivePolicy, facts: ClusterFacts) -> tuple[OperandState, ...]:
        """Render once for each policy and set of facts: most passes change neither."""
        assert active.view is not None
        assert active.policy is not None
        key = (active.view.uid, active.view.generation, facts)
        if self._rendered is None or self._rendered[0] != key:
            self._rendered = (key, render(active.policy, facts, self._images))
        return self._rendered[1]


def _ignore(view: PolicyView) -> Action | None:
    if (view.body.get("status") or {}).get("state") == IGNORED:
        return None
    return PatchStatus("ClusterPolicy", view.ref, {"state": IGNORED}, why="an older ClusterPolicy is in force")


def _remember(active: ActivePolicy) -> list[Action]:
    """Keep the valid upgrade policy on the object: an invalid edit must not change it for nodes in progress."""
    assert active.view is not None
    annotations = active.view.body.get("metadata", {}).get("annotations") or {}
    text = remember(active.upgrades)
    if annotations.get(names.VALID_UPGRADE_POLICY) == text:
        return []
    return [PatchAnnotations("ClusterPolicy", active.view.ref, {names.VALID_UPGRADE_POLICY: text}, why="it is valid")]


def _status(view: PolicyView, verdict: Verdict, snapshot: Snapshot, now: float) -> list[Action]:
    status = status_of(verdict, view.body.get("status") or {}, snapshot.namespace, now)
    return [] if status is None else [PatchStatus("ClusterPolicy", view.ref, status, why=verdict.reason)]


def _waiting(states: Sequence[OperandState], snapshot: Snapshot) -> dict[str, str]:
    """Return what the states that are not ready wait for: the first of their DaemonSets that is not ready."""
    daemonsets = {ds.name: ds for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace}
    pods = [pod for pods in snapshot.pods.values() for pod in pods if pod.namespace == snapshot.namespace]
    waiting: dict[str, str] = {}
    for state in states:
        for obj in state.objects:
            if obj["kind"] != "DaemonSet" or state.name in waiting:
                continue
            name = obj["metadata"]["name"]
            if why := waits_for(daemonsets.get(name), pods, snapshot.revisions):
                waiting[state.name] = f"{name}: {why}"
    return waiting


def _judge(states: Sequence[OperandState], waiting: Mapping[str, str], snapshot: Snapshot, facts: ClusterFacts) -> Verdict:
    for state in states:
        if state.error is not None:
            return failed(state.name, state.error)
    return judged(waiting, has_nfd_labels=has_nfd_labels(snapshot), has_gpu_nodes=facts.has_gpu_nodes)


def has_nfd_labels(snapshot: Snapshot) -> bool:
    """Tell whether node feature discovery has labelled any node."""
    return any(key.startswith(names.NFD_PREFIX) for node in snapshot.nodes.values() for key in node.labels)
