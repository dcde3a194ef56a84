"""How pods are made to leave a node: evicted, ever more rarely if refused or put back, and killed where that is set."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec

from gpuward.model import causes
from gpuward.model.actions import DeletePod, EvictPod
from gpuward.model.backoff import backoff, is_to_come
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Evicted
from gpuward.model.uncordoned import Uncordoned
from gpuward.model.views import PodView
from gpuward.model.waits import ComesBack, Evicting, EvictionRefused, Killing
from gpuward.upgrade.evictable_pods import EvictablePods
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.step import Wait

FIRST_RETRY = 2.0
"""Seconds until a refused eviction is tried again; it doubles up to LAST_RETRY."""
LAST_RETRY = 30.0
LEAST_GRACE = 300.0
"""Seconds that any pod may take to end once it is killed; more than that only as long as it had to be evicted."""
KILL_PATIENCE = 60.0
"""Seconds, beyond its grace period, that a pod may take to end once it was killed."""


class Eviction(msgspec.Struct, frozen=True):
    """Hold what makes pods leave a node, and by when."""

    node: NodeFacts
    evictable: EvictablePods
    policy: UpgradePolicy
    timeout: int
    """Seconds, as NVIDIA's policy has it; 0 for ever."""

    @property
    def until(self) -> float | None:
        """Return when the time to evict is up."""
        timeout = self.timeout or self.policy.rollout.deadline(self.node.state)
        return self.node.record.since + timeout if timeout else None

    @property
    def killed_by(self) -> float | None:
        """Return when pods that were killed at the end of the time should have ended, where they are killed. A process that was
        not there at that end kills them later.
        """
        if self.until is None or not self.policy.rollout.kill_at_deadline:
            return None
        longest = max((pod.grace for pod in self.evictable.pods), default=0.0)
        return max(self.until, self.node.watched_since) + min(longest, self._most_grace) + KILL_PATIENCE

    @property
    def _most_grace(self) -> float:
        return max(LEAST_GRACE, (self.until or 0.0) - self.node.record.since)

    def obstacle(self, now: float) -> str | None:
        """Say what makes the eviction impossible, or that its time is up; None while it may go on."""
        if self.evictable.blocked:
            return causes.blocked((blocked.pod.ref, blocked.why) for blocked in self.evictable.blocked)
        end = self.killed_by or self.until
        if end is None or not self.node.is_overdue(end, now) or now < self._asked_until:
            return None
        return self.still_there(end - self.node.record.since)

    def asked_until(self, end: float, patience: float) -> float:
        """Return until when pods have to be given time to go that were asked only after the end of their time, by who was away
        before that: their grace period, `patience` at most. It is for ever while one is not known to have been asked.
        """
        if any(pod.uid not in self.node.refusals and self._before(pod) is None for pod in self._staying()):
            return inf
        first = (self.node.evicted.get(pod.owner.uid) for pod in self.evictable.pods if pod.deleting and pod.owner is not None)
        late = [evicted.at for evicted in first if evicted is not None and not evicted.returns and evicted.at >= end]
        if not late:
            return 0.0
        return min(late) + min(patience, max(pod.grace for pod in self.evictable.pods if pod.deleting))

    @property
    def _asked_until(self) -> float:
        return 0.0 if self.until is None else self.asked_until(self.until, max(0.0, self.until - self.node.record.since))

    def still_there(self, seconds: float) -> str:
        """Say which pods have not gone after so many seconds."""
        return causes.still_there(seconds, map(self._still_there, self.evictable.pods))

    @property
    def in_the_way(self) -> Sequence[PodView]:
        """Return the pods for which the eviction is impossible or, where there are none, for which its time is up."""
        return [blocked.pod for blocked in self.evictable.blocked] or self.evictable.pods

    def go_on(self, now: float) -> Wait:
        """Ask for the eviction of every pod whose last refusal is old enough; delete what is left when the time is up."""
        asked_until = self._asked_until
        if self.killed_by is not None and self.until is not None and now >= max(self.until, asked_until):
            return self._kill(now)
        staying = self._staying()
        due = [pod for pod in staying if self._again_at(pod, now) <= now]
        waits = [at for pod in staying if (at := self._again_at(pod, now)) > now]
        hold = self._hold(staying)
        if self.until is not None and now >= self.until:
            hold = msgspec.structs.replace(hold, until=asked_until if now < asked_until < inf else None)
        return Wait(
            hold,
            actions=tuple(EvictPod(pod.ref, self.node.node.name, why="its node's driver is upgraded") for pod in due),
            recordon=not self.node.unschedulable,
            retry_at=min([*waits, *(at for at in (self.until, asked_until) if at is not None and now < at < inf)], default=None),
        )

    def _staying(self) -> list[PodView]:
        """Return the pods that are not on their way, those first whose loss costs the least."""
        staying = (pod for pod in self.evictable.pods if not pod.deleting)
        return sorted(staying, key=lambda pod: (pod.priority, -pod.created, pod.ref))

    def _again_at(self, pod: PodView, now: float) -> float:
        """Return when a pod may be made to go: at once, unless it was refused, or has come back."""
        evicted, refusal = self._before(pod), self.node.refusals.get(pod.uid)
        returned = _again_at(evicted.at, evicted.returns + 1, now) if evicted is not None else 0.0
        return max(_again_at(refusal.at, refusal.count, now) if refusal is not None else 0.0, returned)

    def _before(self, pod: PodView) -> Evicted | None:
        return evicted_before(self.node, pod)

    def _hold(self, staying: Sequence[PodView]) -> Hold:
        since = self.node.record.since
        refused = next((pod for pod in staying if pod.uid in self.node.refusals), None)
        for pod in staying if refused is None else ():
            if returned := self._returned(pod):
                return Hold(returned, since, self.until)
        if refused is None:
            return Hold(Evicting(self.evictable.pods[0].ref, len(self.evictable.pods)), since, self.until)
        refusal = self.node.refusals[refused.uid]
        return Hold(EvictionRefused(refused.ref, refusal.message, refusal.count), since, self.until)

    def _still_there(self, pod: PodView) -> causes.StillThere:
        refusal = self.node.refusals.get(pod.uid)
        return causes.StillThere(pod.ref, pod.deleting, refusal.message if refusal else None, self._returned(pod))

    def _returned(self, pod: PodView) -> ComesBack | Uncordoned | None:
        """Say of a pod that has come, or come back, who put it there, and why that was possible; nothing of any other."""
        if self.node.record.lifted and not pod.tolerates_cordon and came_since(self.node, pod):
            return Uncordoned(pod.ref, self.node.record.lifted)
        if (evicted := self._before(pod)) is None or pod.owner is None:
            return None
        return ComesBack(pod.ref, pod.owner, evicted.returns + 1, pod.tolerates_cordon)

    def _kill(self, now: float) -> Wait:
        begun, most = self.until or 0.0, self._most_grace
        staying = [*self._staying(), *(pod for pod in self.evictable.pods if pod.deleting and pod.grace > most)]
        later = {pod.uid: at for pod in staying if self._before(pod) and (at := self._again_at(pod, now)) > now}
        refusals = {uid: refusal for uid, refusal in self.node.refusals.items() if refusal.at >= begun and not refusal.lost}
        refused = next((pod for pod in staying if pod.uid in refusals), None)
        message = refusals[refused.uid].message if refused else None
        killing = Killing((refused or self.evictable.pods[0]).ref, len(self.evictable.pods), message)
        why = "the time to evict it is up, and killAtDeadline is set"
        return Wait(
            Hold(killing, begun, self.killed_by),
            actions=tuple(DeletePod(pod.ref, self.node.node.name, grace=int(most) if pod.grace > most else None, why=why)
                          for pod in staying if pod.uid not in later),
            recordon=not self.node.unschedulable,
            retry_at=min([*later.values(), self.killed_by or now]),
        )


def evicted_before(node: NodeFacts, pod: PodView) -> Evicted | None:
    """Return what is remembered of the eviction of other pods of a pod's owner, after which it has come."""
    evicted = node.evicted.get(pod.owner.uid) if pod.owner is not None else None
    return evicted if evicted is not None and pod.uid not in evicted.there else None


def came_since(node: NodeFacts, pod: PodView) -> bool:
    """Tell whether a pod came after its node was admitted; pods are dated by whole seconds."""
    return pod.created >= int(node.record.started)


def _again_at(last: float, times: int, now: float) -> float:
    """Return when something is done again that was last done then; a time to come is one from before the clock was set back."""
    return 0.0 if is_to_come(last, now) else last + backoff(times, FIRST_RETRY, LAST_RETRY)
