"""`gpuward reasons`: what a reason means and what to do about it, for whoever has nothing but this command."""

from __future__ import annotations

import textwrap

from gpuward.cli.terminal import console, say, say_sentence
from gpuward.model.advice import ADVICE
from gpuward.model.counting import template
from gpuward.model.reasons import Reason
from gpuward.model.sentences import SENTENCES

_WIDTH = 100


def print_reasons(name: str | None) -> None:
    """Print one reason at length or, without a name, all of them in a line each."""
    if name is None:
        _print_all()
        return
    reason = Reason(name)
    advice, out = ADVICE[reason], console()
    width = min(_WIDTH, out.width) if out.is_terminal else _WIDTH
    for title, text in (("REASON", str(reason)), ("SAYS", template(SENTENCES[reason])), ("MEANS", advice.means),
                        ("ACT?", f"{advice.act}."), ("DO", advice.do)):
        for line in textwrap.wrap(text, width, initial_indent=f"{title:<8}", subsequent_indent=" " * 8, break_on_hyphens=False,
                                  break_long_words=False):
            say(line)


def _print_all() -> None:
    longest, out = max(len(reason) for reason in Reason), console()
    for reason in sorted(Reason):
        say_sentence(f"{reason:<{longest}}  {ADVICE[reason].act}", longest + 2, out)
