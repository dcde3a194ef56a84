"""What the objects do not show, as far as somebody has said it: what is refused to it, or to a DaemonSet."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward import names
from gpuward.cli.events import UNREAD, said_in, said_or_unread, why_refused
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PolicyView
from gpuward.operands.rollout import CONDITION

TOLD_IN = 1.0
"""Seconds in which times of events are counted."""
_REFUSED = f"{Reason.WRITE_REFUSED}: "


def says_refused(policy: PolicyView | None) -> bool:
    """Tell whether the operator says in the policy's condition that the API server refuses its changes of nodes."""
    status = (policy.body.get("status") or {}) if policy is not None else {}
    told = (str(one.get("message")) for one in status.get("conditions") or () if one.get("type") == CONDITION)
    return any(Reason.WRITE_REFUSED in each for each in told)


async def refused_nodes(client: Client, nodes: Iterable[NodeView]) -> dict[str, str]:
    """Return for each node of which the operator's last event says that it may not be changed the server's words."""
    chosen = Selection(resources.EVENTS, namespace="default", fields=f"reason={names.HELD_EVENT_REASON}")
    last = {event.about: event for event in sorted(await said_in(client, chosen))}
    return {
        node.name: event.message.removeprefix(_REFUSED).partition(": ")[2]
        for node in nodes if (event := last.get(node.name)) is not None and event.message.startswith(_REFUSED)
    }


async def unmade_pods(client: Client, snapshot: Snapshot) -> dict[str, str]:
    """Return for each DaemonSet of our namespace that lacks pods why it could make none, as its controller said last, or that
    this may not be read; not where it has made one since.
    """
    made: dict[str, list[float]] = {}
    for pod in (pod for pods in snapshot.pods.values() for pod in pods if pod.owner is not None):
        made.setdefault(pod.owner.uid if pod.owner is not None else "", []).append(pod.created)
    lacking = {ds.name: max(made.get(ds.uid, ()), default=0.0) for ds in snapshot.daemonsets
               if ds.namespace == snapshot.namespace and ds.desired > len(made.get(ds.uid, ()))}
    if not lacking:
        return {}
    chosen = Selection(resources.EVENTS, namespace=snapshot.namespace, fields="involvedObject.kind=DaemonSet,reason=FailedCreate")
    said = await said_or_unread(client, chosen)
    if said is None:
        return dict.fromkeys(lacking, UNREAD)
    last = {event.about: event for event in sorted(said)}
    return {name: f"none is made, as the API server refuses: {why_refused(last[name].message)}"
            for name, newest in lacking.items() if name in last and last[name].at + TOLD_IN >= newest}
