"""Give the approvals that waves of a rollout ask for, as a person is assumed to, by the annotation of `gpuward approve`."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpuward import names
from gpuward.kube import resources
from gpuward.model.plan import Plan
from gpuward.model.waves import Aborted, RolloutWaves, WavePhase, WaveStatus, Word
from gpuward.policy.words import encode_word
from gpuward.rehearse.results import Approval
from kubesandbox.store import Store

BY = "rehearsal"


class Approving:
    """Approve of each wave once, so many seconds after it asks for that."""

    def __init__(self, store: Store, began: float, after: float) -> None:
        self.given: list[Approval] = []
        self._store, self._began, self._after = store, began, after
        self._asked: dict[tuple[str, str, tuple[str, ...]], float] = {}
        self._done: set[tuple[str, str, tuple[str, ...]]] = set()

    @property
    def pending(self) -> bool:
        """Tell whether an approval is asked for, and will be given."""
        return bool(self._asked.keys() - self._done)

    def look(self, plan: Plan, now: float) -> bool:
        """Approve of what has waited for long enough; tell whether anything has."""
        aborted = {hold.what.driver for hold in plan.holds.values() if isinstance(hold.what, Aborted)}
        asking = {(each.driver, wave.name, each.targets): (each, wave) for each in plan.waves for wave in each.waves
                  if each.targets and wave.phase is WavePhase.APPROVAL and each.driver not in aborted}
        self._asked = {key: self._asked.get(key, now) for key in asking}
        before = len(self.given)
        for key, (rollout, wave) in asking.items():
            if key not in self._done and now - self._asked[key] >= self._after:
                self._done.add(key)
                self._approve(rollout, wave, self._asked[key], now)
        return len(self.given) > before

    def _approve(self, rollout: RolloutWaves, wave: WaveStatus, asked: float, now: float) -> None:
        text = encode_word(Word(max(now, wave.finished), BY, rollout.every))
        resource = str(resources.NVIDIA_DRIVERS if rollout.driver else resources.CLUSTER_POLICIES)
        for policy in self._store.list(resource):
            if not rollout.driver or policy["metadata"]["name"] == rollout.driver:
                self._store.modify(resource, None, policy["metadata"]["name"], partial(_note, text))
        self.given.append(Approval(wave.name, rollout.driver, asked - self._began, now - self._began))


def _note(text: str, obj: dict[str, Any]) -> None:
    obj["metadata"].setdefault("annotations", {})[names.APPROVED] = text
