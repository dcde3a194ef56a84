"""What a node that is not Ready says of itself: the operator reads no more of it than that."""

from __future__ import annotations

from gpuward.errors import ApiError, Unreachable
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.views import NodeView


async def words_of_readiness(client: Client, node: NodeView) -> tuple[str, ...]:
    """Return since when a node is not Ready, and why; nothing where it is, or where that cannot be read."""
    if node.ready is True:
        return ()
    try:
        body = (await client.get(resources.NODES, node.name)).object()
    except (ApiError, Unreachable):
        return ()
    conditions = (body.get("status") or {}).get("conditions") or ()
    return tuple(f"its condition Ready is {one['status']} since {one.get('lastTransitionTime') or 'an unknown time'}: "
                 f"{': '.join(filter(None, (one.get('reason'), one.get('message')))) or 'it gives no reason'}"
                 for one in conditions if one.get("type") == "Ready" and one.get("status") != "True")
