"""What is remembered of the domain that a node is in: its label may go, or be edited, while it is out of service."""

from __future__ import annotations

import msgspec

from gpuward.model.domains import remembered
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import Record
from gpuward.model.states import AT_REST, State
from gpuward.upgrade.facts import NodeFacts


def with_domain(node: NodeFacts, record: Record, policy: UpgradePolicy) -> Record:
    """Return a record with the domain that the label of a node in service says it is in: it counts there until it serves again.

    A node that has no record yet gets one with what else is to be remembered of it.
    """
    domains = policy.rollout.domains
    if domains is None or (node.node.record is None and record is node.record) or not _is_in_service(node):
        return record
    value = node.node.labels.get(domains.key, "")
    found = remembered(domains.key, value) if value else record.domain
    return record if found == record.domain else msgspec.structs.replace(record, domain=found)


def _is_in_service(node: NodeFacts) -> bool:
    rests = node.state in AT_REST or node.state is State.UPGRADE_REQUIRED
    return rests and bool(node.node.ready) and node.serves and not node.unschedulable
