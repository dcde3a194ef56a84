"""What `gpuward check` finds: facts about a cluster in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuward.report.checks.cluster import clock, kubernetes, namespace, rights, webhooks
from gpuward.report.checks.facts import Finding, Inspected, Level
from gpuward.report.checks.install import crds, operators, policy, references, runtime_classes
from gpuward.report.checks.nodes import discovery, runtimes

__all__ = ["Finding", "Inspected", "Level", "findings"]

CHECKS = (kubernetes, clock, crds, namespace, rights, webhooks, operators, runtime_classes, discovery, runtimes, policy,
          references)


def findings(facts: Inspected) -> Iterator[Finding]:
    """Return what there is to say about a cluster, in the order in which things are put right."""
    for check in CHECKS:
        yield from check(facts)
