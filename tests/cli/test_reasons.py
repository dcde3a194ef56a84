"""`gpuward reasons`: what the pages of docs/reasons/ say, for whoever is paged and has only the command."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gpuward.cli.commands import commands
from gpuward.model.reasons import Reason
from tests.docs.test_generated import ROOT


def printed(*words: str) -> str:
    done = CliRunner().invoke(commands, ["reasons", *words], prog_name="gpuward")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_says_what_its_page_says(reason: Reason) -> None:
    page = " ".join((ROOT / "docs" / "reasons" / f"{reason}.md").read_text(encoding="utf-8").split())
    name, *said = (" ".join(part.split()) for part in printed(reason.lower()).replace("\n" + " " * 8, " ").splitlines())
    assert name == f"REASON {reason}"
    assert len(said) == 4
    assert all(line.partition(" ")[2] in page for line in said)


def test_without_a_name_all_are_listed() -> None:
    assert [line.split()[0] for line in printed().splitlines()] == sorted(Reason)


def test_a_name_that_is_none_is_a_wrong_command_line() -> None:
    done = CliRunner().invoke(commands, ["reasons", "Nonsense"], prog_name="gpuward")
    assert done.exit_code == 2
    assert "'Nonsense' is no reason: `gpuward reasons` lists all" in done.output
    assert "BudgetBlocks" not in done.output


def test_a_name_that_is_almost_one_is_answered_with_that() -> None:
    done = CliRunner().invoke(commands, ["reasons", "budgetblock"], prog_name="gpuward")
    assert done.exit_code == 2
    assert "did you mean BudgetBlocks" in done.output
