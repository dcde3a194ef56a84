"""What keeps workloads away that put pods back on a node that is cordoned, since their pods tolerate that."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from shlex import quote

from gpuward import names
from gpuward.model.views import Owner, PodView
from gpuward.upgrade.remedies.fixes import Fix, places, without
from gpuward.upgrade.remedies.policy_fixes import as_json

_SCALED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")


def keep_away(owner: Owner, pods: Collection[PodView]) -> list[Fix]:
    """Return the fixes for pods that tolerate the cordon, and have the same owner."""
    first = next(iter(pods))
    kind, name = _workload(owner, first)
    what, place = f"{kind} {first.namespace}/{name}", f"{kind.lower()} {quote(name)} -n {quote(first.namespace)}"
    change = partial(without, gone=places(pods))
    toleration = f"take the toleration of {names.CORDON_TAINT} out of {what}: its pods then start on other nodes"
    ended = f"this ends all pods of {what}, on other nodes too"
    restarted = f"all pods of {what} start anew, on other nodes too"
    if kind == "Job":  # the template of a Job cannot be edited
        suspended = as_json({"spec": {"suspend": True}})
        command = f"kubectl patch {place} --type merge -p '{suspended}'"
        return [Fix(f"suspend {what} until this node is upgraded", change, command, ended)]
    down = f"scale {what} down until this node is upgraded"
    if kind not in _SCALED:
        return [Fix(toleration, change, risk=restarted), Fix(down, change, risk=ended)]
    scaled = Fix(down, change, f"kubectl scale {place} --replicas=0", ended)
    return [Fix(toleration, change, f"kubectl edit {place}", restarted), scaled]


def _workload(owner: Owner, pod: PodView) -> tuple[str, str]:
    """Return kind and name of what people edit: the ReplicaSet of a Deployment would be put right by that one."""
    suffix = f"-{pod.labels[names.POD_TEMPLATE_HASH]}" if names.POD_TEMPLATE_HASH in pod.labels else ""
    if owner.kind == "ReplicaSet" and suffix and owner.name.endswith(suffix):
        return "Deployment", owner.name.removesuffix(suffix)
    return owner.kind, owner.name
