"""Say in an event on a node that its label asks for a workload that nobody knows: it counts as if it were not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpuward.kube.events import WARNING, About, EventRecorder
from gpuward.model.passes import Pass
from gpuward.model.views import NodeView
from gpuward.model.workloads import Workloads
from gpuward.operands.decide import Reconciliation
from gpuward.policy.nvidiadrivers import PoliciesInForce

UNKNOWN: Final = "WorkloadUnknown"


class UnknownWorkloadEvents:
    """Remember on which nodes that was said. What is so at a start is taken as said."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._seen: tuple[Mapping[str, NodeView], Workloads | None] | None = None
        self._said: dict[str, str] = {}

    def __call__(self, seen: Pass[PoliciesInForce, Reconciliation]) -> None:
        """Take a pass over the ClusterPolicy."""
        nodes, workloads = seen.snapshot.nodes, seen.policies.policy.workloads
        before, self._seen = self._seen, (nodes, workloads)
        if before is not None and before[0] is nodes and before[1] == workloads:
            return
        found = {name: told for name, node in nodes.items() if (told := workloads.unknown(node))} if workloads is not None else {}
        for name, told in sorted(found.items()) if before is not None else ():
            if self._said.get(name) != told:
                self._recorder.record(About("v1", "Node", name, nodes[name].uid), WARNING, UNKNOWN, told)
        self._said = found
