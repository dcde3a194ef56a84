"""How pods without which those that use a node's GPUs cannot go on get another template: each node once nothing uses its GPUs.
They bring drivers to hosts of virtual machines, or the MPS daemon, with whose server the CUDA contexts of its clients end.

NVIDIA's operator has the DaemonSet controller replace them one after another, whatever runs there. Here their DaemonSets are
OnDelete from the write of another template until all pods have it, also where no such pod runs: one may come on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpuward.labels import cordons
from gpuward.model.actions import Action
from gpuward.model.driver import owner_uid
from gpuward.model.hosts import all_have_newest, former_pods, kept_away_by, nodes_of, told_of_use
from gpuward.model.leaving import brings_hosts_driver, leaving_of
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, NodeView, PodView
from gpuward.operands import mps
from gpuward.operands.changes import Prepared, WantedObject
from gpuward.operands.driver.unwanted import once_unused
from gpuward.operands.sandboxes import cc_manager, vfio_manager, vgpu_devices, vgpu_manager
from gpuward.operands.state import applied_hash, with_applied_hash

_STATES: Final[Mapping[str, str]] = {vfio_manager.NAME: vfio_manager.APP, vgpu_manager.NAME: vgpu_manager.DAEMON_SET,
                                     cc_manager.NAME: cc_manager.APP, vgpu_devices.NAME: vgpu_devices.APP,
                                     mps.NAME: mps.DAEMON_SET}
"""The DaemonSet of each state that brings such drivers or serves MPS, or divides or resets the GPUs as it starts, where it is to
do so."""
_ON_DELETE: Final = {"type": "OnDelete"}


def by_host(prepared: Sequence[Prepared], snapshot: Snapshot) -> tuple[Prepared, ...]:
    """Return the states with the update strategy that these DaemonSets are to have for now."""
    if not any(one.state in _STATES for one in prepared):
        return tuple(prepared)
    return tuple(msgspec.structs.replace(one, objects=tuple(_for_now(obj, snapshot) for obj in one.objects))
                 if one.state in _STATES else one for one in prepared)


def replacements(prepared: Iterable[Prepared], snapshot: Snapshot, now: float) -> list[Action]:
    """Delete the next pod that has a former template, from a host that nothing uses, unless one with the new template is not
    ready or has yet to be made, or one is on its way out. Hosts that are not ready are passed over, and those whose taints would
    keep the new pod away. What offers a host's GPUs goes first; it stays where no pod has brought the host's driver, or, as with
    the MPS daemon, the node is none. `prepared` is as rendered.
    """
    found: list[Action] = []
    leaving = leaving_of(snapshot)
    for ds in _under_way(prepared, snapshot):
        former = [(pod, node) for pod, node in former_pods(ds, snapshot) if node.ready]
        if _awaits_pod(ds, snapshot) or any(pod.deleting or not (pod.ready or (pod, node) in former)
                                            for pod, node in _on_ready_nodes(ds, snapshot)):
            continue
        why = f"DaemonSet {ds.name} has another template, and nothing uses the GPUs of its node"
        for pod, node in sorted(former, key=lambda each: each[0].ready):
            if not kept_away_by(ds, node) and (delete := once_unused(pod, node, snapshot, why)) is not None:
                there = snapshot.pods.get(node.name, ())
                brought = any(brings_hosts_driver(one, snapshot.namespace) for one in there)
                action = cordons.hand_over(delete, node, there, leaving, now) if brought else delete
                found += [action] if action is not None else []
                break
    return found


def told_of_hosts(prepared: Iterable[Prepared], snapshot: Snapshot) -> dict[str, str]:
    """Return what these states wait for while hosts have pods of a former template. `prepared` is as rendered."""
    states = {name: state for state, name in _STATES.items()}
    return {states[ds.name]: f"{ds.name}: {len(former)} of {ds.desired} pods have an older template{told_of_use(ds, snapshot)}"
            for ds in _under_way(prepared, snapshot) if not ds.unavailable and (former := former_pods(ds, snapshot))}


def _for_now(obj: WantedObject, snapshot: Snapshot) -> WantedObject:
    ds = next((ds for ds in snapshot.daemonsets if (ds.namespace, ds.name) == (obj.ref.namespace, obj.ref.name)), None)
    if obj.key[0] != "DaemonSet" or (ds is not None and (ds.deleting or ds.applied_hash == obj.digest)):
        return obj
    body = {**obj.body, "spec": {**obj.body["spec"], "updateStrategy": _ON_DELETE}}
    digest = applied_hash(body)
    adopts = _adopts(obj, snapshot)
    if ds is None:
        return _with(obj, body, digest) if adopts else obj
    if ds.applied_hash == digest:
        return obj if all_have_newest(ds, snapshot) and not adopts else _with(obj, body, digest)
    return _with(obj, body, digest) if ds.on_delete or adopts or nodes_of(ds, snapshot) else obj


def _adopts(obj: WantedObject, snapshot: Snapshot) -> bool:
    """Tell whether pods that nobody owns become a DaemonSet's, as where it was deleted without its pods. One whose owner is gone
    is about to be nobody's, or is so and was not seen yet.
    """
    selector = obj.body["spec"]["selector"]["matchLabels"]
    there = {ds.uid for ds in snapshot.daemonsets}
    return any(owner_uid(pod) not in there and pod.namespace == obj.ref.namespace and selector.items() <= pod.labels.items()
               and not (pod.deleting or pod.finished) for pods in snapshot.pods.values() for pod in pods)


def _with(obj: WantedObject, body: dict[str, Any], digest: str) -> WantedObject:
    return msgspec.structs.replace(obj, body=with_applied_hash(body), digest=digest)


def _under_way(prepared: Iterable[Prepared], snapshot: Snapshot) -> list[DaemonSetView]:
    """Return those of these DaemonSets that are OnDelete, and not so because the policy asks for it."""
    rolled = {obj.ref.name for one in prepared if one.state in _STATES for obj in one.objects
              if obj.key[0] == "DaemonSet" and obj.body["spec"].get("updateStrategy") != _ON_DELETE}
    return [ds for ds in snapshot.daemonsets if ds.name in rolled and ds.namespace == snapshot.namespace
            and ds.on_delete and ds.settled and not ds.deleting]


def _awaits_pod(ds: DaemonSetView, snapshot: Snapshot) -> bool:
    """Tell whether a host is to get a pod of a DaemonSet, and has none: what stops it would stop others, too."""
    return any(node.ready and not node.deleting and ds.node_selector.items() <= node.labels.items()
               and ds.tolerations is not None and not kept_away_by(ds, node)
               and not any(pod.is_owned_by(ds.uid) for pod in snapshot.pods.get(node.name, ()))
               for node in snapshot.nodes.values())


def _on_ready_nodes(ds: DaemonSetView, snapshot: Snapshot) -> list[tuple[PodView, NodeView]]:
    return [(pod, node) for name, pods in snapshot.pods.items() if (node := snapshot.nodes.get(name)) is not None and node.ready
            for pod in pods if pod.is_owned_by(ds.uid)]
