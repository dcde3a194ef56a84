"""What docs/ says of upgrades that follows from the code: the table of states, and that of reasons."""

from __future__ import annotations

from gpuward.model.counting import template
from gpuward.model.reasons import Reason
from gpuward.model.sentences import SENTENCES
from gpuward.model.states import TRANSITIONS, State


def transitions_table() -> str:
    """Return where a node can go from each state, as a Markdown table."""
    rows = [f"| {_name(before)} | {', '.join(_name(after) for after in State if after in afters)} |"
            for before, afters in TRANSITIONS.items() if afters]
    return "\n".join(["| from | to |", "|---|---|", *rows])


def reasons_table() -> str:
    """Return every reason why a node waits, with its sentence, as a Markdown table."""
    rows = [f"| [{reason}](reasons/{reason}.md) | {template(SENTENCES[reason])} |" for reason in Reason]
    return "\n".join(["| reason | sentence |", "|---|---|", *rows])


def _name(state: State) -> str:
    return f"`{state}`" if state else "no label"
