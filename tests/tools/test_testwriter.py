"""Recorded decisions that are written as tests: these fail once it is decided differently, and run nothing of a stranger's."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tools.testwriter.__main__ import main
from tools.testwriter.literal import Literals

from tests.cli.test_hostile import CANARY, EVIL, harmless, recording
from tests.cli.test_replay import AT, BETWEEN, recorded


def write(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def pytest_on(file: Path) -> subprocess.CompletedProcess[str]:
    """Run a written test as anyone would."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=file.parent)


def test_a_decision_becomes_a_test_that_passes_until_it_is_decided_differently(tmp_path: Path) -> None:
    file = tmp_path / "test_incident.py"
    result = write(recorded(tmp_path), file, "--node", "n5", "--at", BETWEEN)
    assert "asserts what is decided about n5 at 2023-11-14T22:13:20.000Z, on facts of 3 nodes" in result.output
    text = file.read_text()
    assert "train-" not in text, "GPU pods make no difference to a node that waits for its turn"
    assert pytest_on(file).returncode == 0
    file.write_text(text.replace("max_parallel_upgrades=2", "max_parallel_upgrades=3"))
    differs = pytest_on(file)
    assert differs.returncode == 1
    assert "1 failed" in differs.stdout


def test_without_a_node_the_test_is_about_those_that_something_was_done_about(tmp_path: Path) -> None:
    file = tmp_path / "test_incident.py"
    assert "about n0, n1, n2, n3, n4, n5 at" in write(recorded(tmp_path), file, "--at", AT).output
    assert "PatchNode(" in file.read_text()
    assert pytest_on(file).returncode == 0


@pytest.mark.parametrize(("file", "problem"), [
    ("/dev/null", "FILE: '/dev/null' cannot be used: the file is there already"),
    ("/nowhere/test.py", "it cannot be written: No such file or directory"),
])
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, file: str, problem: str) -> None:
    result = write(recorded(tmp_path), file, "--node", "n5")
    assert (result.exit_code, problem in result.output) == (1, True)


@pytest.mark.parametrize("node", ["n0", "n1", "n2"])
def test_a_test_made_of_a_strangers_recording_runs_nothing_of_his(
    tmp_path: Path, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "test_stranger.py"
    result = write(recording(tmp_path), file, "--node", node + EVIL)
    assert result.exit_code == 0, result.exception
    harmless(result.output)
    source = file.read_text()
    harmless(source)
    module = ast.parse(source)
    assert [type(part).__name__ for part in module.body if not isinstance(part, ast.ImportFrom)] == ["Expr", *["Assign"] * 4,
                                                                                                     "FunctionDef"]
    assert EVIL in (ast.get_docstring(module, clean=False) or "")
    assert all(part.module.startswith("gpuward.") for part in module.body if isinstance(part, ast.ImportFrom) and part.module)
    values: dict[str, Any] = {}
    exec(compile(module, str(file), "exec"), values)
    next(made for name, made in values.items() if name.startswith("test_the_decision"))()
    assert values["NODES"] == (node + EVIL,), "what was recorded is what is tested, unchanged"
    assert not Path(CANARY).exists()


@pytest.mark.parametrize("value", [EVIL, {EVIL: EVIL}, [EVIL], (EVIL,), frozenset({EVIL}), b"\x1b", float("inf"), -float("inf")])
def test_a_value_written_as_source_is_that_value(value: object) -> None:
    source = Literals().text(value, "x = ")
    harmless(source)
    assert eval(source) == value
