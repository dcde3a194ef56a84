"""Create NodeMaintenances: asking twice is as good as once."""

from __future__ import annotations

from gpuward import errors
from gpuward.execute.world import CalledOff, World, is_refusal
from gpuward.kube.doubts import settle
from gpuward.kube.resources import NODE_MAINTENANCES
from gpuward.model.actions import RequestMaintenance
from gpuward.model.maintenance import LONGEST_MESSAGE


async def request_maintenance(world: World, action: RequestMaintenance) -> None:
    """Create the object, and note why that is refused, where it is: its node waits for that.

    Raises:
        CalledOff: there is one of its name. It is in the cache now, so the next decision knows.
    """
    cluster, key = world.cluster, (action.ref.namespace, action.ref.name)
    cache, refusals = cluster.maintenances.cache, cluster.maintenances.refusals
    try:
        answer = await cluster.client.create(NODE_MAINTENANCES, action.body)
    except errors.AlreadyExists as error:
        cache.mark_uncertain(key)
        await settle(cluster.client, NODE_MAINTENANCES, cache, key)
        refusals.pop(action.ref.name, None)
        raise CalledOff(f"NodeMaintenance {action.ref} is there already") from error
    except errors.GpuwardError as error:
        if is_refusal(error) or isinstance(error, errors.NotFound):
            refusals[action.ref.name] = str(error)[:LONGEST_MESSAGE]
            cluster.touch()
        raise
    refusals.pop(action.ref.name, None)
    cache.apply_response(answer.body)
