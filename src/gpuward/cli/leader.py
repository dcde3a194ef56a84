"""Tell whether an operator runs: by the Lease that the one that acts renews every few seconds, in whatever namespace."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime
from typing import Any

import msgspec

from gpuward import errors, names
from gpuward.cli.ages import age
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.kube.lease.others import Holder, leases_named
from gpuward.kube.lease.rules import LONGEST, believed, process_name
from gpuward.model.record import format_time
from gpuward.ports import Clock

NONE = "no operator runs"
LOOK_TWICE = 3.0
"""Seconds for which a Lease that seems to have run out is watched: it is renewed every 2 s, whatever the clocks say."""
LEASE_DURATION = 15.0
"""Seconds that a Lease holds that does not say, as in client-go."""


class Leader(msgspec.Struct, frozen=True):
    """Hold what the Lease says. `running` is None where that cannot be known, for want of rights."""

    message: str
    now: float
    """The time by which ages are told: the API server's, or this machine's if that is not known."""
    running: bool | None = None
    holder: str = ""
    renewed: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        renewed = format_time(self.renewed) if self.renewed is not None else None
        return {"running": self.running, "holder": self.holder or None, "renewed": renewed, "message": self.message}


async def find_leader(client: Client, namespace: str, clock: Clock, *, besides: str = "") -> Leader:
    """Read the Lease in the operator's namespace, and where nobody renews that those of others; what may not be read is told.

    A Lease that `besides` holds is taken for one that nobody has.
    """
    place = f"{namespace}/{names.LEADER_LEASE}"
    lease: dict[str, Any] | None = None
    unknown = ""
    try:
        lease = _but_for(besides, (await client.get(resources.LEASES, names.LEADER_LEASE, namespace)).object())
    except errors.NotFound:
        pass
    except errors.Forbidden:
        unknown = f"the Lease {place} may not be read, so it is not known whether an operator runs"
    except (errors.ApiError, errors.Unreachable) as error:
        unknown = f"the Lease {place} cannot be read now: {error}"
    told = client.date
    now = clock.now() if told is None else told
    leader = Leader(unknown, now) if unknown else judge(lease, now, place)
    if lease is not None and leader.holder and not leader.running:
        leader = await _watched(client, namespace, leader)
    if not leader.running:
        leader = await _elsewhere(client, namespace, leader, besides)
    return leader if told is not None or not leader.running else msgspec.structs.replace(
        leader, message=f"{leader.message} (by this machine's clock)")


async def _watched(client: Client, namespace: str, seen: Leader) -> Leader:
    """Return who renews a Lease that has run out by its times: its holder's clock may be behind, or the server's may run fast."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LOOK_TWICE
    with contextlib.suppress(errors.ApiError, errors.Unreachable):
        while loop.time() < end:
            await asyncio.sleep(LOOK_TWICE / 6)
            spec = (await client.get(resources.LEASES, names.LEADER_LEASE, namespace)).object().get("spec") or {}
            renewed, holder = _seconds(spec.get("renewTime")), process_name(spec.get("holderIdentity") or "")
            if holder and renewed is not None and renewed != seen.renewed:
                message = f"operator {holder} renewed its Lease just now"
                return Leader(message, seen.now, running=True, holder=holder, renewed=renewed)
    return seen


def _but_for(holder: str, lease: dict[str, Any]) -> dict[str, Any] | None:
    return None if holder and Holder.of(lease).identity == holder else lease


async def _elsewhere(client: Client, namespace: str, here: Leader, besides: str) -> Leader:
    """Return who runs in another namespace, or else what is known of this one."""
    try:
        leases = await leases_named(client, names.LEADER_LEASE)
    except (errors.ApiError, errors.Unreachable):
        if here.running is None:
            return here
        message = f"{here.message}; Leases of other namespaces cannot be listed, so one may run in another"
        return msgspec.structs.replace(here, message=message, running=None)
    found = {(place := Holder.of(lease).namespace): judge(_but_for(besides, lease), here.now, f"{place}/{names.LEADER_LEASE}")
             for lease in leases}
    if here.running is None:
        here = found.get(namespace) or judge(None, here.now, f"{namespace}/{names.LEADER_LEASE}")
    for other, leader in found.items():
        if leader.running and not here.running:
            return msgspec.structs.replace(leader, message=f"{leader.message}, in namespace {other} and not in {namespace}")
    return here


def judge(lease: dict[str, Any] | None, now: float, place: str) -> Leader:
    """Return what the Lease of a place says at a time; None is one that is not there."""
    if lease is None:
        return Leader(f"{NONE}: there is no Lease {place}", now, running=False)
    spec = lease.get("spec") or {}
    holder, renewed = process_name(spec.get("holderIdentity") or ""), _seconds(spec.get("renewTime"))
    if renewed is None:
        return Leader(f"{NONE}: the Lease {place} was never renewed", now, running=False, holder=holder)
    ago = f"{age(now - renewed)} ago"
    if not holder:
        return Leader(f"{NONE}: the last one gave its Lease back {ago}", now, running=False, renewed=renewed)
    if -LONGEST <= now - renewed <= believed(spec, LEASE_DURATION):
        return Leader(f"operator {holder} renewed its Lease {ago}", now, running=True, holder=holder, renewed=renewed)
    return Leader(f"{NONE}: {holder} renewed its Lease {ago}, and not since", now, running=False, holder=holder, renewed=renewed)


def _seconds(moment: object) -> float | None:
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return None
