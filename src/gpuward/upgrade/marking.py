"""Put marks for other controllers on a node with our cordon, and take them off with it, in the same patch."""

from __future__ import annotations

import msgspec

from gpuward.model.marks import Interop, marking, removal
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.progress import NodeProgress

NOBODY = Interop()


def marked(path: NodeProgress, before: NodeFacts, policy: UpgradePolicy) -> NodeProgress:
    """Return a path with the marks that follow from where it came to."""
    node, told, to = before.node, policy.rollout.interop, path.node.target_version
    if path.node.unschedulable and path.node.record.cordon is CordonOwner.GPUWARD and told != NOBODY:
        marks = marking(node.labels, node.annotations, told, to)
    else:
        marks = removal(node.labels, node.annotations)
    if not marks:
        return path
    return msgspec.structs.replace(
        path, labels={**path.labels, **marks.labels}, annotations={**path.annotations, **marks.annotations})
