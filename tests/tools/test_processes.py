"""Processes that outlive who started them, and what is left of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.controlplane import processes
from tools.controlplane.processes import ProcessFailed


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    processes.stop_all(tmp_path)


def test_a_process_runs_until_it_is_stopped(run: Path) -> None:
    processes.start(run, "sleeper", ["/bin/sleep", "60"])
    pid = processes.running(run, "sleeper")
    assert pid is not None
    assert os.getsid(pid) == pid  # so that an interrupt at the terminal does not end it
    processes.stop_all(run)
    assert processes.running(run, "sleeper") is None
    assert processes.names(run) == []


def test_one_that_ignores_the_polite_signal_is_killed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE", 0.2)
    os.mkfifo(run / "deaf")
    processes.start(run, "stubborn", ["/bin/sh", "-c", f"trap '' TERM; echo > '{run / 'deaf'}'; while :; do sleep 60; done"])
    (run / "deaf").read_text()
    processes.stop_all(run)
    assert processes.names(run) == []


def test_the_file_of_a_process_that_was_given_the_same_number_later_harms_nobody(run: Path) -> None:
    (run / "other.pid").write_text(f"{os.getpid()} 1\n")
    assert processes.running(run, "other") is None
    processes.stop_all(run)  # ends this very process if it is wrong
    assert processes.names(run) == []


@pytest.mark.parametrize("text", ["", "nonsense", "1 2 3", "-1 x"])
def test_a_damaged_file_means_that_nothing_runs(run: Path, text: str) -> None:
    (run / "broken.pid").write_text(text)
    assert processes.running(run, "broken") is None


def test_a_process_is_restarted_as_it_was_started(run: Path) -> None:
    processes.start(run, "sleeper", ["/bin/sleep", "60"])
    first = processes.running(run, "sleeper")
    processes.start(run, "other", ["/bin/sleep", "60"])
    processes.restart(run, "sleeper")
    second = processes.running(run, "sleeper")
    assert second not in (None, first)
    assert processes.names(run) == ["sleeper", "other"]
    with pytest.raises(ProcessFailed, match="ghost does not run"):
        processes.restart(run, "ghost")


def test_what_does_not_exist_cannot_be_started(run: Path) -> None:
    with pytest.raises(ProcessFailed, match="ghost cannot be started"):
        processes.start(run, "ghost", ["/nonexistent/ghost"])
    assert processes.names(run) == []


def test_the_last_words_are_those_of_its_output(run: Path) -> None:
    processes.start(run, "talker", ["/bin/sh", "-c", "seq 9; echo loud >&2"])
    pid = int((run / "talker.pid").read_text().split()[0])
    os.waitpid(pid, 0)
    assert processes.tail(run, "talker", 3) == "8\n9\nloud"
