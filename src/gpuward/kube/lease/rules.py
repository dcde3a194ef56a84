"""The election's rules, as a pure function: from the Lease and the time to the next step.

They are client-go's (tools/leaderelection), so that any operator that uses the same Lease takes turns with this one:
a Lease is free when nobody holds it, or when the holder has not renewed it for `leaseDurationSeconds` of the
*observer's* time since the observer first saw its present state. The times written in it are never compared with
the observer's clock: clocks of different machines differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, ClassVar, Final

from gpuward import names
from gpuward.errors import InputError

LONGEST: Final = 600.0
"""Seconds for which a Lease counts at most that nobody renews, whatever it says: anybody who may write it, or a holder that was
given a wrong deadline and is gone, could stop the operator for ever."""


@dataclass(frozen=True)
class LeaseTiming:
    """Hold the election's times in seconds.

    The defaults are shorter than controller-runtime's (15, 10, 2), so that another one goes on within 15 s of a leader's end:
    it sees the last renewal within 1.2 s, waits for 11 s, and has the rest for listing the cluster and its first write.
    """

    duration: float = 11.0
    """How long others must wait after the last renewal before they may take over; whole seconds, as the Lease has it."""
    renew_deadline: float = 8.0
    """How long the leader tries to renew before it gives up leading; less than `duration`."""
    retry: float = 2.0
    """Time between renewals."""
    look: float = 1.0
    """Time between two looks of a candidate, who counts from when it sees a renewal; a fifth longer at most."""
    margin: ClassVar[float] = 5.0
    """What `duration` is more than a deadline that a flag gives."""

    @classmethod
    def given(cls, field: str, deadline: float) -> LeaseTiming:
        """Return the times for a deadline that a flag gives, as NVIDIA's operator has them; 0 means the defaults.

        Raises:
            InputError: a leader would lose the Lease between two renewals.
        """
        if not deadline:
            return cls()
        if deadline < 2 * cls.retry:
            least = f"{2 * cls.retry:g}s"
            raise InputError(field, f"{deadline:.10g}s", f"write {least} or more: the Lease is renewed every {cls.retry:g}s")
        if deadline > (most := LONGEST - cls.margin):
            raise InputError(field, f"{deadline:.10g}s", f"write {most:g}s or less: another operator goes on {LONGEST:g}s after "
                             "the last renewal at the latest")
        return cls(duration=deadline + cls.margin, renew_deadline=deadline)


@dataclass(frozen=True, slots=True)
class Observation:
    """Hold what was last seen of the Lease: its holder and state, and since when on the observer's clock."""

    holder: str = ""
    state: tuple[str, str, int] = ("", "", 0)
    """Holder, renewTime and transitions as written: any change of them restarts the wait."""
    duration: float = 0.0
    since: float = 0.0

    @property
    def ends(self) -> float:
        """Return when the Lease runs out if nobody renews it."""
        return self.since + self.duration

    def next(self, lease: dict[str, Any], now: float) -> Observation:
        """Return the observation after reading `lease` at `now` (monotonic seconds)."""
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        state = (holder, spec.get("renewTime") or "", spec.get("leaseTransitions") or 0)
        since = self.since if state == self.state else now
        return Observation(holder, state, believed(spec), since)


def believed(spec: dict[str, Any], unsaid: float = 0.0) -> float:
    """Return for how many seconds after its last renewal a Lease counts; `unsaid` if it does not say."""
    return min(float(spec.get("leaseDurationSeconds") or unsaid), LONGEST)


class Step(Enum):
    """Name what to do next."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def next_step(identity: str, seen: Observation | None, now: float) -> Step:
    """Return the next step of `identity` at `now` (monotonic seconds); None means that there is no Lease."""
    if seen is None:
        return Step.CREATE
    if seen.holder == identity:
        return Step.RENEW
    if not seen.holder or now > seen.ends:
        return Step.TAKE
    return Step.WAIT


def claimed(lease: dict[str, Any], identity: str, step: Step, wall: float, timing: LeaseTiming) -> dict[str, Any]:
    """Return the Lease with `identity` as holder, all else (annotations, resourceVersion) as it was.

    `wall` is Unix time in seconds. Taking a Lease counts a transition and starts a new acquireTime; renewing does not.
    """
    spec = dict(lease.get("spec") or {})
    instant = micro_time(wall)
    if step is not Step.RENEW:
        spec["acquireTime"] = instant
        spec["leaseTransitions"] = 0 if step is Step.CREATE else (spec.get("leaseTransitions") or 0) + 1
    spec |= {"holderIdentity": identity, "leaseDurationSeconds": round(timing.duration), "renewTime": instant}
    return {**lease, "spec": spec}


def released(lease: dict[str, Any], wall: float) -> dict[str, Any]:
    """Return the Lease without holder, so that the next one need not wait; client-go leaves a duration of 1 s."""
    instant = micro_time(wall)
    spec = dict(lease.get("spec") or {})
    spec |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": instant, "acquireTime": instant}
    return {**lease, "spec": spec}


def new_lease(namespace: str, name: str = names.LEADER_LEASE) -> dict[str, Any]:
    """Return a Lease that nobody holds and that does not exist yet."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
    }


def micro_time(wall: float) -> str:
    """Write Unix seconds as a Kubernetes MicroTime: RFC 3339 in UTC with exactly six decimals."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def process_name(identity: str) -> str:
    """Return the pod's or host's name of an identity, to which controller-runtime and gpuward append an id."""
    return identity.rpartition("_")[0] or identity
