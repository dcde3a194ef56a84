"""The parts of docs/upgrade.md that follow from the code: the diagram of states and the list of reasons."""

from __future__ import annotations

from gpuward.model.counting import template
from gpuward.model.explain import SENTENCES
from gpuward.model.reasons import Reason
from gpuward.model.states import TRANSITIONS, State


def transitions_diagram() -> str:
    """Return the transition table as a Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for before, afters in TRANSITIONS.items():
        lines += [f"    {_name(before)} --> {_name(after)}" for after in State if after in afters]
    return "\n".join([*lines, "```"])


def reasons_table() -> str:
    """Return every reason why a node waits, with its sentence, as a Markdown table."""
    rows = [f"| `{reason}` | {template(SENTENCES[reason])} |" for reason in Reason]
    return "\n".join(["| reason | sentence |", "|---|---|", *rows])


def _name(state: State) -> str:
    return str(state).replace("-", "_") or "unknown"
