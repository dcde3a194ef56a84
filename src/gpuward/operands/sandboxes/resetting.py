"""The manager of confidential computing comes to each host once nothing uses its GPUs, see `model/resetting.py`: until then the
host lacks its label. Another template of it comes host by host (`host_by_host.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuward.model.actions import Action, ApplyObject
from gpuward.model.resetting import DEPLOY_CC_MANAGER, is_to_wait, may_come
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, Ref
from gpuward.model.workloads import WorkloadKeeper, Workloads, is_for_virtual_machines
from gpuward.operands.sandboxes.cc_manager import APP, NAME
from gpuward.operands.state import OperandState

_NOBODYS = Workloads()


def behind_machines(actions: Iterable[Action], snapshot: Snapshot) -> list[Action]:
    """Return the actions without the making of its DaemonSet while a host has the label to which it is not to come yet."""
    every = list(actions)
    if not any(map(_makes, every)) or not any(DEPLOY_CC_MANAGER in node.labels for node, _ in _waiting(snapshot)):
        return every
    return [each for each in every if not _makes(each)]


def waits_for_machines(states: Iterable[OperandState], snapshot: Snapshot) -> dict[str, str]:
    """Return what its state waits for, where that is the end of virtual machines."""
    if not any(state.name == NAME and state.enabled for state in states) or not (waiting := list(_waiting(snapshot))):
        return {}
    node, user = waiting[0]
    more = f", and {len(waiting) - 1} more hosts are used" if waiting[1:] else ""
    return {NAME: f"{APP} waits for the pods of virtual machines to go, as it may reset the GPUs: pod {user} runs on node "
                  f"{node.name}{more}"}


def _makes(action: Action) -> bool:
    return isinstance(action, ApplyObject) and action.kind == "DaemonSet" and action.ref.name == APP


def _waiting(snapshot: Snapshot) -> Iterator[tuple[NodeView, Ref]]:
    """Yield the hosts to which it comes later, each with a pod that uses its GPUs."""
    keeper = WorkloadKeeper(snapshot, _NOBODYS)
    for name, node in sorted(snapshot.nodes.items()):
        if is_for_virtual_machines(node) and may_come(node):
            pods = snapshot.pods.get(name, ())
            if is_to_wait(pods, users := keeper.users(node, pods), snapshot.namespace):
                yield node, min(users)
