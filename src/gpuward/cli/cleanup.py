"""`gpuward cleanup`: take away what a GPU operator left on nodes, once its policies and its operands are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.cli.ages import age
from gpuward.cli.connect import WallClock
from gpuward.cli.holdlease import HeldLease, holding_lease
from gpuward.cli.leader import find_leader
from gpuward.cli.leftovers import Cleaning, cleaning_of, goes_by_labels, has_any, is_cordoned_with_gpus, is_ending_driver, told
from gpuward.cli.rollouts import ATTEMPTS, Lines
from gpuward.errors import ApiError, Conflict, Forbidden, GpuwardError, NotFound, Unreachable
from gpuward.execute.conditions import conditions_patch
from gpuward.execute.nodes import operations
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.lease.others import Holder, leases_named
from gpuward.kube.resources import GVR
from gpuward.model.maintenance import maintenance_name
from gpuward.wire.maintenances import maintenance_view
from gpuward.wire.nodes import node_view

Object = dict[str, Any]

LOOK: Final = 1.0
DELETED: Final = " deleted"


class _Used(GpuwardError):
    """Say who uses, by now, what is to be cleaned up."""


async def clean_nodes(client: Client, namespace: str, *, timeout: float, unless_used: bool, dry_run: bool) -> Lines:
    """Take the operator's labels, annotations and cordons off all nodes, and its Lease away; say of each what was done.

    What people set stays: labels that say what they want (such as `nvidia.com/gpu.deploy.driver=false`), and their own cordons.
    So does what would harm pods if it went; see `leftovers`.

    It holds the Lease meanwhile, so that an operator that begins waits until it is over. A dry run does not, nor does it wait.

    Raises:
        GpuwardError: there is a policy, or an operator or what goes by its labels is still there after `timeout` seconds, or
            comes meanwhile, and `unless_used` does not say to leave everything as it is then; or nodes refuse to be changed.
    """
    cleanup = _Cleanup(client, namespace, dry_run=dry_run)
    try:
        async for line in cleanup.run(timeout):
            yield line
    except _Used as used:
        cleaned = f"{cleanup.cleaned} nodes were cleaned up before" if cleanup.cleaned else "nothing was cleaned up"
        if not unless_used:
            raise GpuwardError(f"{used}: {cleaned}") from None
        yield f"{used}: {cleaned if cleanup.cleaned else 'nothing is cleaned up'}"


class _Cleanup:
    """Clean up the nodes one after the other, for as long as nobody uses what is to go."""

    def __init__(self, client: Client, namespace: str, *, dry_run: bool) -> None:
        self.cleaned = 0
        self._client = client
        self._namespace = namespace
        self._dry_run = dry_run
        self._leases: frozenset[tuple[str, str, str]] | None = None
        """The Leases that nobody renews, as they were when that was found, but for the one that is held."""
        self._held = HeldLease(None, "")

    async def run(self, timeout: float) -> Lines:
        """Wait until nothing uses the nodes any more, and clean up while nobody can begin to. Raises _Used if somebody does."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (0.0 if self._dry_run else timeout)
        if not self._dry_run and (there := await self._ending()):
            yield f"waiting, for up to {age(timeout)}: {there}"
        await self._wait(end)
        if self._dry_run:
            async for line in self._clean_all():
                yield line
            return
        was_there = await self._own_lease() is not None
        refused: GpuwardError | None = None
        left = end - loop.time()
        async with holding_lease(self._client, self._namespace, "cleanup", WallClock(), left) as self._held:
            self._leases = await self._leases_now()
            try:
                async for line in self._clean_all():
                    yield line
            except _Used:
                raise
            except GpuwardError as error:
                refused = error
        line = await self._drop_lease()
        if line and (was_there or not line.endswith(DELETED)):
            yield line
        if refused is not None:
            raise refused

    async def _ending(self) -> str:
        """Say what has to end first, where that may happen without anybody's deciding anew: a policy that is there stays."""
        return "" if any(not going for _, _, going in await _policies(self._client)) else await self._still_there()

    async def _wait(self, end: float) -> None:
        """Wait until nothing goes by the labels of nodes any more, or writes them. Raises _Used if something still does.

        Then wait for driver pods that are about to end: where one ends no driver is left, unless pods use it. And for nodes that
        we cordoned to offer no GPUs any more, as pods would come to the driver that is loaded there.
        """
        if kept := [f"{kind} {name}" for kind, name, going in await _policies(self._client) if not going]:
            raise _Used(f"there is {', '.join(kept)}, whose operands run on the nodes by the labels that they have; delete it "
                        "first")
        loop = asyncio.get_running_loop()
        while (there := await self._still_there()) and loop.time() < end:
            await asyncio.sleep(LOOK)
        if there:
            raise _Used(there)
        while (await self._drivers_end() or await self._gpus_offered()) and loop.time() < end:
            await asyncio.sleep(LOOK)

    async def _clean_all(self) -> Lines:
        """Clean up all nodes; go on where one refuses. Raises _Used once somebody uses them again."""
        found = [_name(raw) async for raw in self._client.list(Selection(resources.NODES)) if has_any(raw)]
        refused: list[str] = []
        for name in found:
            try:
                line = await self._clean(name)
            except (ApiError, Unreachable) as error:
                refused.append(name)
                line = f"not cleaned up: {error}"
            if line:
                yield f"node {name}: {line}"
        if not found:
            yield "no node has anything of a GPU operator"
        if refused:
            raise GpuwardError(f"not cleaned up: node {', '.join(refused)}; run it again once nothing refuses that")

    async def _clean(self, name: str) -> str:
        """Clean one node as it is now, and look again whenever somebody else was faster; say what was done, if anything."""
        for attempt in range(1, ATTEMPTS + 1):
            if used := await self._used_by_now():
                raise _Used(used)
            try:
                raw = (await self._client.get(resources.NODES, name)).body
                cleaning = cleaning_of(raw, await self._pods_on(name), self._namespace)
                await self._give_back(raw, name)
                await self._patch(cleaning)
            except NotFound:
                return ""
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
            else:
                self.cleaned += not (cleaning.is_idle or self._dry_run)
                line = told(cleaning)
                return f"{line}; a dry run writes nothing" if self._dry_run and not cleaning.is_idle else line
        raise AssertionError

    async def _give_back(self, raw: bytes, name: str) -> None:
        """Delete the NodeMaintenance that was asked for, if the node says that one was: others wait for that."""
        if self._dry_run or names.NODE_MAINTENANCE not in node_view(raw).annotations:
            return
        with suppress(NotFound):
            found = maintenance_view((await self._client.get(
                resources.NODE_MAINTENANCES, maintenance_name(name), self._namespace)).body)
            if found.ours:
                await self._client.delete(resources.NODE_MAINTENANCES, found.name, found.namespace, uid=found.uid)

    async def _patch(self, cleaning: Cleaning) -> None:
        if self._dry_run:
            return
        version = cleaning.version
        if cleaning.patch is not None:
            unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            done = await self._client.patch_json(
                resources.NODES, cleaning.patch.node.name, [unchanged, *operations(cleaning.patch)])
            version = node_view(done.body).version
        if cleaning.conditions and cleaning.node is not None:
            gone = [one.type for one in cleaning.conditions]
            patch = conditions_patch(cleaning.node, version, (), gone, (), "")
            await self._client.patch_merge(resources.NODES, cleaning.node.name, patch, subresource="status", strategic=True)

    async def _pods_on(self, node: str) -> list[msgspec.Raw] | None:
        """Return the pods of a node by a quorum read; None where they may not be listed."""
        try:
            return [raw async for raw in self._client.list(Selection(resources.PODS, fields=f"spec.nodeName={node}"))]
        except Forbidden:
            return None

    async def _still_there(self) -> str:
        """Say what goes by the labels of nodes, or writes them; nothing if nothing does."""
        if used := await self._goes_by_labels():
            return used
        leases = await self._leases_now()
        leader = await find_leader(self._client, self._namespace, WallClock(), besides=self._held.identity)
        self._leases = leases
        return f"{leader.message}; delete its Deployment first" if leader.running else ""

    async def _used_by_now(self) -> str:
        """Do as `_still_there`, without asking for long who leads where no other Lease was written since."""
        if used := await self._goes_by_labels():
            return used
        if not self._held.valid:
            leader = await find_leader(self._client, self._namespace, WallClock(), besides=self._held.identity)
            return leader.message if leader.running else "the Lease was lost, so an operator may have begun"
        return "" if await self._leases_now() == self._leases else await self._still_there()

    async def _goes_by_labels(self) -> str:
        policies = await _policies(self._client)
        if policies:
            going = all(each[2] for each in policies)
            listed = ", ".join(f"{kind} {name}" for kind, name, _ in policies)
            return f"{listed} is still being deleted" if going else f"there is {listed} by now"
        sets = [each async for each in _objects(self._client, resources.DAEMON_SETS) if goes_by_labels(each)]
        if not sets:
            return ""
        listed = ", ".join(sorted(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in sets))
        return f"DaemonSet {listed} has pods where nodes have the labels"

    async def _leases_now(self) -> frozenset[tuple[str, str, str]]:
        try:
            leases = await leases_named(self._client, names.LEADER_LEASE)
        except Forbidden:
            leases = [lease] if (lease := await self._own_lease()) else []
        own = self._held.identity
        metas = (lease["metadata"] for lease in leases if not own or Holder.of(lease).identity != own)
        return frozenset((meta["namespace"], meta["uid"], meta["resourceVersion"]) for meta in metas)

    async def _own_lease(self) -> Object | None:
        try:
            return (await self._client.get(resources.LEASES, names.LEADER_LEASE, self._namespace)).object()
        except (NotFound, Forbidden):
            return None

    async def _drivers_end(self) -> bool:
        try:
            return any([is_ending_driver(raw, self._namespace)
                        async for raw in self._client.list(Selection(resources.PODS, namespace=self._namespace))])
        except Forbidden:
            return False

    async def _gpus_offered(self) -> bool:
        return any([is_cordoned_with_gpus(raw) async for raw in self._client.list(Selection(resources.NODES))])

    async def _drop_lease(self) -> str:
        """Delete the Lease if nobody has it, as it was then: whoever takes it meanwhile keeps it, and what it says."""
        lease = await self._own_lease()
        if lease is None:
            return ""
        meta, place = lease["metadata"], f"Lease {self._namespace}/{names.LEADER_LEASE}"
        leader = await find_leader(self._client, self._namespace, WallClock(), besides=self._held.identity)
        if leader.running:
            return f"{place} stays: {leader.message}"
        try:
            await self._client.delete(resources.LEASES, names.LEADER_LEASE, self._namespace, uid=meta["uid"],
                                      version=meta["resourceVersion"])
        except NotFound:
            return ""
        except Conflict:
            return f"{place} stays: somebody has taken it by now"
        return f"{place}{DELETED}"


async def _policies(client: Client) -> list[tuple[str, str, bool]]:
    """Return kind, name and whether it is on its way out of all policies."""
    found: list[tuple[str, str, bool]] = []
    for kind, resource in zip(names.OWNER_KINDS, (resources.CLUSTER_POLICIES, resources.NVIDIA_DRIVERS), strict=True):
        try:
            metas = [each["metadata"] async for each in _objects(client, resource)]
        except NotFound:  # its CRD is gone
            continue
        found += [(kind, meta["name"], "deletionTimestamp" in meta) for meta in metas]
    return found


async def _objects(client: Client, resource: GVR) -> AsyncIterator[Object]:
    async for raw in client.list(Selection(resource)):
        yield msgspec.json.decode(bytes(raw), type=Object)


def _name(raw: msgspec.Raw) -> str:
    return str(msgspec.json.decode(raw, type=Object)["metadata"]["name"])
