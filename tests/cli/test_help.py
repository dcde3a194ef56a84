"""What `--help` prints: whole sentences, on a terminal of 80 columns; and how commands exit."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpuward.cli.commands import commands
from tests.cli.test_commands import gpuward

ALL = sorted(commands.commands)


def help_of(*words: str, columns: int) -> str:
    return CliRunner().invoke(commands, [*words, "--help"], prog_name="kubectl gpuward", terminal_width=columns).output


@pytest.mark.parametrize("words", [(), *((name,) for name in ALL)], ids=" ".join)
def test_help_fits_80_columns_and_cuts_no_sentence_off(words: tuple[str, ...]) -> None:
    for columns in (80, 200):
        printed = help_of(*words, columns=columns)
        assert [line for line in printed.splitlines() if len(line) > 80 and columns == 80] == []
        usage = printed.index("\n\n")  # it has the dots that say that an argument may be repeated
        assert "..." not in printed[usage:]


@pytest.mark.parametrize("name", ALL)
def test_help_is_in_whole_sentences(name: str) -> None:
    command = commands.commands[name]
    texts = [command.help or "", *(option.help or "" for option in command.params if isinstance(option, click.Option))]
    for text in texts:
        assert text[:1].isupper(), text
        assert text.rstrip().endswith((".", "fish | source")), text
    assert command.get_short_help_str(60).endswith("."), "the list of commands has its first sentence"


def test_the_exit_codes(tmp_path: Path) -> None:
    assert gpuward("--version").returncode == 0
    assert gpuward("status", kubeconfig=tmp_path / "nothing").returncode == 1
    for wrong in (["nonsense"], ["status", "--nonsense"], ["retry"], ["status", "-o", "yaml"], ["demo", "--nodes", "many"]):
        done = gpuward(*wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Error: " in done.stderr
