"""Count what a recording holds and what came out of deciding it again."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from gpuward.cli.ages import age
from gpuward.cli.rerun import Rerun
from gpuward.cli.rerun_operands import OperandRerun
from gpuward.model.record import format_time
from gpuward.recorder.reading import Moment


class Summary:
    """Sum up a replay."""

    def __init__(self) -> None:
        self.passes = self.operands = self.not_compared = 0
        self.missed = 0
        self.failed_actions = 0
        self.actions = 0
        self.begun = self.ended = 0.0
        self.nodes = 0
        self.policies: dict[str, None] = {}
        self.versions: dict[str, None] = {}
        self.differences: list[tuple[float, tuple[str, ...]]] = []

    def add(self, again: Rerun | OperandRerun) -> None:
        """Take one more decision into account."""
        moment, frame = again.moment, again.moment.frame
        self.begun = min(self.begun, moment.at) if self.passes + self.operands else moment.at
        self.ended = max(self.ended, moment.at)
        self.missed += frame.missed
        self.actions += sum(not (done.error or done.dropped) for done in frame.outcomes)
        self.failed_actions += sum(bool(done.error) for done in frame.outcomes)
        self.versions[moment.gpuward] = None
        if again.differences:
            self.differences.append((moment.at, again.differences))
        if isinstance(again, OperandRerun):
            self.operands += 1
            self.not_compared += not again.compared
        else:
            self._add_upgrade(again.moment)

    def _add_upgrade(self, moment: Moment) -> None:
        self.passes += 1
        self.nodes = max(self.nodes, len(moment.shown))
        if moment.policy:
            self.policies[f"ClusterPolicy {moment.policy}"] = None
        self.policies |= {f"NVIDIADriver {policy.driver}": None for policy in moment.policies if policy.driver}

    def lines(self) -> list[str]:
        """Return the summary for people."""
        here = version("gpuward")
        rows = [
            ("PASSES", f"{self.passes} recorded{f', {self.missed} came too fast' if self.missed else ''}"),
            ("OPERANDS", f"{self.operands} recorded{self._left()}"),
            ("TIME", f"{format_time(self.begun)} to {format_time(self.ended)}, {age(self.ended - self.begun)}"),
            ("NODES", f"{self.nodes} managed at most"),
            ("POLICIES", ", ".join(self.policies) or "none"),
            ("ACTIONS", f"{self.actions} done, {self.failed_actions} failed"),
            ("GPUWARD", f"recorded by {', '.join(self.versions)}, replayed by {here}"),
            ("RESULT", self._result(here)),
        ]
        return [f"{title:<10}{text}" for title, text in rows]

    def _left(self) -> str:
        return f", {self.not_compared} not compared, as what is not recorded may decide there" if self.not_compared else ""

    def _result(self, here: str) -> str:
        if not self.differences:
            return "every plan came out the same"
        count = "1 plan differs" if len(self.differences) == 1 else f"{len(self.differences)} plans differ"
        return count + ("" if list(self.versions) == [here] else "; that may be meant, as the versions do")

    def as_json(self) -> dict[str, Any]:
        """Return the summary for programs."""
        return {
            "passes": self.passes,
            "operandPasses": self.operands,
            "operandPassesNotCompared": self.not_compared,
            "missed": self.missed,
            "from": format_time(self.begun),
            "to": format_time(self.ended),
            "nodes": self.nodes,
            "policies": list(self.policies),
            "actions": {"done": self.actions, "failed": self.failed_actions},
            "recordedBy": list(self.versions),
            "differences": [{"at": format_time(at), "what": list(what)} for at, what in self.differences],
        }
