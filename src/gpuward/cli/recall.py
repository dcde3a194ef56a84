"""What only the operator's memory knows, as far as it has said it: which nodes it may not change."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward import names
from gpuward.cli.events import said_in
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.model.reasons import Reason
from gpuward.model.views import NodeView, PolicyView
from gpuward.operands.rollout import CONDITION

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
