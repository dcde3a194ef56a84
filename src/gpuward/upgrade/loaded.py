"""What is remembered of the driver that is loaded on a node: without it nobody could tell, once its driver pod has gone, that
another driver must not come under the pods that run on it.
"""

from __future__ import annotations

import msgspec

from gpuward.model.record import Record
from gpuward.model.states import AT_REST, State
from gpuward.upgrade.facts import NodeFacts


def with_loaded(node: NodeFacts, now: float) -> Record:
    """Return a node's record with the driver that it has loaded, whether anybody has validated that or not; also that of a node
    which has none yet, as another operator brought it to its end. Such a node is remembered once it is known what it should run.
    """
    new = node.node.record is None
    if not node.loaded or (new and node.node.state is None):
        return node.record
    record, done = msgspec.structs.replace(node.record, loaded=node.loaded_digest), node.state is State.DONE
    if not new or node.just_entered:
        known = done and node.driver_ready
    elif node.node.state not in AT_REST or _is_about_to_be_known(node):
        return node.record
    else:
        known = done and node.driver_ready
        record = msgspec.structs.replace(record, since=now, pods=node.pods_there if done else None)
    return msgspec.structs.replace(record, target=node.target) if known and not node.runs(record.target) else record


def _is_about_to_be_known(node: NodeFacts) -> bool:
    """Tell whether the node's DaemonSet has yet to settle: a record that is written then would be written again."""
    return not node.target and node.edited is None and node.driver is not None and not node.driver.orphan
