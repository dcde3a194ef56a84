"""Count what a rollout did to the fleet, from the plans that were made and from what the sandbox's store saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.model.explain import sentence
from gpuward.model.plan import Hold, Plan
from gpuward.model.states import IN_PROGRESS, State, parse_state

ITS_TURN: Final = "waits for its turn, behind other nodes"


class LongestWait(msgspec.Struct, frozen=True):
    """Name the longest that a node waited, for whatever it was, in seconds, and for what it waited longest then."""

    node: str = ""
    seconds: float = 0.0
    reason: str = ""
    of_that: float = 0.0
    """How long it waited for that."""


class _Wait:
    """Add up the wait of one node, from when it first waits until it waits for nothing any more. It may wait for its turn behind
    one node after the other: none of them is named for all of that.
    """

    def __init__(self) -> None:
        self._parts: dict[str, float] = {}
        self._now: tuple[str, float] | None = None

    def told(self, hold: Hold | None, now: float) -> None:
        """Take what the node waits for from now on."""
        if self._now is not None:
            reason, since = self._now
            self._parts[reason] = self._parts.get(reason, 0.0) + now - since
        self._now = None
        if hold is not None:
            self._now = ITS_TURN if hold.reason.is_turn else sentence(hold), now

    def longest(self, node: str) -> LongestWait:
        """Return the sum, with the reason that has most of it."""
        if not self._parts:
            return LongestWait()
        reason = max(self._parts, key=lambda one: self._parts[one])
        return LongestWait(node, sum(self._parts.values()), reason, self._parts[reason])


class Tally:
    """Gather the figures of one rollout, which starts with `begin`."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        """The upgrade state of every managed node."""
        self.longest = LongestWait()
        self.most_under_way = 0
        self._rolling = False
        self._touched: set[str] = set()
        self._under_way: set[str] = set()
        self._waits: dict[str, _Wait] = {}

    def begin(self) -> None:
        """Start counting."""
        self._rolling = True

    @property
    def done(self) -> int:
        """Return the number of nodes that have been through the rollout."""
        return len(self.upgraded)

    @property
    def upgraded(self) -> set[str]:
        """Return the nodes that have been through the rollout."""
        return {name for name in self._touched if self.states[name] is State.DONE}

    @property
    def failed(self) -> list[str]:
        """Return the nodes whose upgrade failed."""
        return sorted(name for name, state in self.states.items() if state is State.FAILED)

    def node_changed(self, node: Mapping[str, Any]) -> State | None:
        """Take a node as the store has it; return its upgrade state if that is new."""
        name = node["metadata"]["name"]
        state = parse_state((node["metadata"].get("labels") or {}).get(names.UPGRADE_STATE))
        (self._under_way.add if state in IN_PROGRESS else self._under_way.discard)(name)
        if self._rolling:
            self.most_under_way = max(self.most_under_way, len(self._under_way))
        if not state or self.states.get(name) is state:
            return None
        self.states[name] = state
        if self._rolling and state is not State.DONE:
            self._touched.add(name)
        return state

    def finish(self, now: float) -> None:
        """Count what nodes still wait for up to now, and stop counting."""
        for name, wait in self._waits.items():
            wait.told(None, now)
            self._compare(wait.longest(name))
        self._rolling = False

    def _compare(self, found: LongestWait) -> None:
        if found.seconds > self.longest.seconds:
            self.longest = found

    def planned(self, plan: Plan, now: float) -> None:
        """Take a plan: who waits has waited longer, whatever it waited for before."""
        if not self._rolling:
            return
        holds = plan.holds
        for name in {**self._waits, **holds}:
            wait = self._waits.setdefault(name, _Wait())
            wait.told(holds.get(name), now)
            self._compare(wait.longest(name))
            if name not in holds:
                del self._waits[name]
