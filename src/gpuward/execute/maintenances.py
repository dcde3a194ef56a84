"""Create NodeMaintenances: asking twice is as good as once."""

from __future__ import annotations

from gpuward import errors
from gpuward.execute.world import CalledOff, World
from gpuward.kube.doubts import settle
from gpuward.kube.resources import NODE_MAINTENANCES
from gpuward.model.actions import RequestMaintenance


async def request_maintenance(world: World, action: RequestMaintenance) -> None:
    """Create the object.

    Raises:
        CalledOff: there is one of its name. It is in the cache now, so the next decision knows.
    """
    cluster, key = world.cluster, (action.ref.namespace, action.ref.name)
    cache = cluster.maintenances.cache
    try:
        answer = await cluster.client.create(NODE_MAINTENANCES, action.body)
    except errors.AlreadyExists as error:
        cache.mark_uncertain(key)
        await settle(cluster.client, NODE_MAINTENANCES, cache, key)
        raise CalledOff(f"NodeMaintenance {action.ref} is there already") from error
    cache.apply_response(answer.body)
