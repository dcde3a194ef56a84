"""Count what a rollout did to the fleet, from the plans that were made and from what the sandbox's store saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuward import names
from gpuward.model.explain import sentence
from gpuward.model.plan import Plan
from gpuward.model.states import IN_PROGRESS, State, parse_state


class LongestWait(msgspec.Struct, frozen=True):
    """Name the longest that a node waited for one and the same thing, in seconds."""

    node: str = ""
    seconds: float = 0.0
    reason: str = ""


class Tally:
    """Gather the figures of one rollout, which starts with `begin`."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        """The upgrade state of every managed node."""
        self.longest = LongestWait()
        self.most_disrupted = 0
        self._rolling = False
        self._touched: set[str] = set()
        self._disrupted: set[str] = set()
        self._waits: dict[str, tuple[str, float]] = {}

    def begin(self) -> None:
        """Start counting."""
        self._rolling = True

    @property
    def done(self) -> int:
        """Return the number of nodes that have been through the rollout."""
        return sum(self.states[name] is State.DONE for name in self._touched)

    @property
    def failed(self) -> list[str]:
        """Return the nodes whose upgrade failed."""
        return sorted(name for name, state in self.states.items() if state is State.FAILED)

    def node_changed(self, node: Mapping[str, Any]) -> State | None:
        """Take a node as the store has it; return its upgrade state if that is new."""
        name = node["metadata"]["name"]
        state = parse_state((node["metadata"].get("labels") or {}).get(names.UPGRADE_STATE))
        (self._disrupted.add if state in IN_PROGRESS else self._disrupted.discard)(name)
        if self._rolling:
            self.most_disrupted = max(self.most_disrupted, len(self._disrupted))
        if not state or self.states.get(name) is state:
            return None
        self.states[name] = state
        if self._rolling and state is not State.DONE:
            self._touched.add(name)
        return state

    def planned(self, plan: Plan, now: float) -> None:
        """Take a plan: whoever waits for the same as before has waited longer."""
        if not self._rolling:
            return
        holds = plan.holds
        for name, (reason, since) in list(self._waits.items()):
            hold = holds.get(name)
            if hold is None or hold.reason != reason:
                del self._waits[name]
            elif now - since > self.longest.seconds:
                self.longest = LongestWait(name, now - since, sentence(hold))
        for name, hold in holds.items():
            self._waits.setdefault(name, (hold.reason, now))
