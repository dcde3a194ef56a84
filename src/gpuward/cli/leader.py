"""Tell whether an operator acts at all: by the Lease that the one that leads renews every few seconds.

One that was started without --leader-elect has none, and leaves the Lease of an earlier one as it is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from gpuward import errors, names
from gpuward.cli.view import age
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.kube.lease.rules import process_name
from gpuward.model.record import format_time
from gpuward.ports import Clock

NONE = "no operator with --leader-elect runs"
WITHOUT = "one without it may"
LEASE_DURATION = 15.0
"""Seconds that a Lease holds that does not say, as in client-go."""


class Leader(msgspec.Struct, frozen=True):
    """Hold what the Lease says. `running` is None where that cannot be known: nothing shows an operator without a Lease."""

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


async def find_leader(client: Client, namespace: str, clock: Clock) -> Leader:
    """Read the Lease in the operator's namespace; that it may not be read, or is not there, is an answer too."""
    place = f"{namespace}/{names.LEADER_LEASE}"
    lease: dict[str, Any] = {}
    unknown = ""
    try:
        lease = (await client.get(resources.LEASES, names.LEADER_LEASE, namespace)).object()
    except errors.NotFound:
        unknown = f"no Lease {place}: {NONE}; {WITHOUT}"
    except errors.Forbidden:
        unknown = f"the Lease {place} may not be read, so it is not known whether an operator runs"
    except (errors.ApiError, errors.Unreachable) as error:
        unknown = f"the Lease {place} cannot be read now: {error}"
    told = client.date
    now = clock.now() if told is None else told
    if unknown:
        return Leader(unknown, now)
    leader = judge(lease, now)
    return leader if told is not None else msgspec.structs.replace(leader, message=f"{leader.message} (by this machine's clock)")


def judge(lease: dict[str, Any], now: float) -> Leader:
    """Return what a Lease says at a time."""
    spec = lease.get("spec") or {}
    holder, renewed = process_name(spec.get("holderIdentity") or ""), _seconds(spec.get("renewTime"))
    if renewed is None:
        return Leader(f"{NONE}: the Lease was never renewed; {WITHOUT}", now, holder=holder)
    ago = f"{age(now - renewed)} ago"
    if not holder:
        return Leader(f"{NONE}: the last one gave its Lease back {ago}; {WITHOUT}", now, renewed=renewed)
    if now <= renewed + float(spec.get("leaseDurationSeconds") or LEASE_DURATION):
        return Leader(f"operator {holder} renewed its Lease {ago}", now, running=True, holder=holder, renewed=renewed)
    message = f"{NONE}: {holder} renewed its Lease {ago}, and not since; {WITHOUT}"
    return Leader(message, now, holder=holder, renewed=renewed)


def _seconds(moment: object) -> float | None:
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return None
