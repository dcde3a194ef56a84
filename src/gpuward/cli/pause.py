"""`gpuward pause`: turn driver upgrades off, so that nobody is disturbed until `gpuward resume`."""

from __future__ import annotations

from gpuward.cli.rollouts import Lines, Patch, PolicyRollout, all_nodes, change, meant, time_of
from gpuward.kube.http.client import Client
from gpuward.model.listing import listed
from gpuward.model.record import format_time
from gpuward.model.states import IN_PROGRESS


async def pause_rollouts(client: Client, driver: str, *, dry_run: bool) -> Lines:
    """Turn upgrades off and say of each object what was done; those of one NVIDIADriver alone if it is named.

    Raises:
        GpuwardError: there is no rollout.
        InputError: there is no NVIDIADriver of that name, or drivers are not those of NVIDIADrivers.
        Conflict: an object was deleted and made anew meanwhile.
    """
    rollouts, chosen = await meant(client, driver, "pause")
    since = format_time(time_of(client))

    def off(rollout: PolicyRollout) -> Patch | None:
        return rollout.switched(False, since) if rollout.is_on else None

    for rollout in chosen:
        if rollout.is_on and dry_run:
            yield f"{rollout.title}: upgrades would be turned off ({rollout.field}: false); a dry run writes nothing"
        elif (there := await change(client, rollout, off)) is not None:
            yield f"{rollout.title}: upgrades are off already{_since(there)}: nothing is written"
        else:
            yield f"{rollout.title}: upgrades are off ({rollout.field}: false)"
    of = {rollout.title for rollout in chosen}
    under_way = [node.name for node in await all_nodes(client)
                 if node.state in IN_PROGRESS and (its := rollouts.of(node)) is not None and its.title in of]
    yield f"Next: {_next(under_way)}; `{_command(driver)}` turns upgrades on again"


def _since(rollout: PolicyRollout) -> str:
    return f", since {rollout.paused_at} by `gpuward pause`" if rollout.is_paused else ", not by `gpuward pause`"


def _next(under_way: list[str]) -> str:
    if not under_way:
        return "no node is under way, and none starts"
    count = "1 node is under way and is" if len(under_way) == 1 else f"{len(under_way)} nodes are under way and are"
    return f"no node starts and no pod is evicted; {count} at most validated and put back into service ({listed(under_way)})"


def _command(driver: str) -> str:
    return "gpuward resume" + (f" --driver {driver}" if driver else "")
