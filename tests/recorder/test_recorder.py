"""The recorder never holds the loop up and never ends it; what it wrote is whole whatever happens to the process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import structlog

from gpuward.cli import logs
from gpuward.model.passes import Outcome, Pass
from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.policy.clusterpolicy import ActivePolicy
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.pods import selections
from gpuward.recorder.reading import moments
from gpuward.recorder.recorder import Recorder, entry_of
from gpuward.recorder.ring import PATTERN, Limits, Ring
from gpuward.recording.frame import LONGEST_ERROR, Done, Entry
from gpuward.upgrade.decide import decide
from tests import build
from tests.recorder.flights import differing, read


def passing(number: int, **rest: object) -> Entry:
    """Build a pass that decides something else for each number."""
    snapshot, policy = build.fleet(4, cordoned=range(number % 4)), build.policy(parallel=number + 1)
    made = Entry(snapshot, (policy,), build.NOW + number, "cluster-policy", decide(snapshot, policy, build.NOW + number))
    return msgspec.structs.replace(made, **rest)


def record(folder: Path, *passes: Entry) -> None:
    """Record passes and end."""
    recorder = Recorder(folder, "1.2.3")
    for each in passes:
        recorder.take(each)
    recorder.close()


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Collect what is logged."""
    lines: list[str] = []
    logs.configure(lines.append, lambda: 0.0)
    yield lines
    structlog.reset_defaults()


def test_passes_that_decide_the_same_are_recorded_once(tmp_path: Path) -> None:
    record(tmp_path, passing(0), passing(0), passing(1), passing(1))
    assert [moment.at for moment in read(tmp_path)] == [build.NOW, build.NOW + 1]


def test_an_action_that_fails_is_recorded_though_nothing_else_is_decided(tmp_path: Path) -> None:
    failed = (Done(0, error="x" * 1000),)
    record(tmp_path, passing(0), passing(0, at=build.NOW + 9, outcomes=failed))
    last = read(tmp_path)[-1]
    assert last.at == build.NOW + 9
    assert len(last.frame.outcomes[0].error) == LONGEST_ERROR + 3


def test_a_pass_that_fails_is_recorded_and_so_is_the_next_one(tmp_path: Path) -> None:
    record(tmp_path, passing(0), passing(1, plan=Plan(), error="KeyError"), passing(0))
    found = read(tmp_path)
    assert [moment.frame.error for moment in found] == ["", "KeyError", ""]
    assert differing([found[0], found[2]]) == []
    assert found[1].shown == found[0].shown, "what was decided last still holds"


def test_outcomes_are_those_of_the_actions_that_were_due() -> None:
    plan = passing(0).plan
    outcomes = (Outcome(plan.actions[1], error="no"), Outcome(plan.actions[0], idle=True))
    facts = msgspec.structs.replace(build.fleet(1), followed=selections([UpgradePolicy()]))
    entry = entry_of(Pass(facts, PoliciesInForce(ActivePolicy()), build.NOW, plan, outcomes))
    assert entry is not None
    assert entry.outcomes == (Done(1, "no"), Done(0, idle=True))


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    record(folder, passing(0))
    (file,) = folder.glob(PATTERN)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, file)] == [0o700, 0o600]


def test_each_process_goes_on_with_the_ring(tmp_path: Path) -> None:
    record(tmp_path, passing(0))
    record(tmp_path, passing(1))
    assert [moment.at for moment in read(tmp_path)] == [build.NOW, build.NOW + 1]


def give_away(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 4711, -1)


@pytest.mark.parametrize(("prepare", "told"), [
    (lambda folder: folder.symlink_to(folder.parent), "is a link or a file"),
    (lambda folder: folder.mkdir(mode=0o755), "is open to others (mode 755)"),
    (give_away, "belongs to user 4711"),
], ids=["link", "open", "foreign"])
def test_a_folder_that_somebody_else_prepared_is_refused(
    tmp_path: Path, warnings: list[str], prepare: Callable[[Path], object], told: str
) -> None:
    """In a shared /tmp others may have been there first: nothing is written, and nothing of theirs removed."""
    if told.startswith("belongs") and os.geteuid() != 0:
        pytest.skip("only root may give a folder away")
    folder = tmp_path / "gpuward-recorder-0"
    prepare(folder)
    recorder = Recorder(folder, "1.2.3", private=True)
    recorder.take(passing(0))
    recorder.close()
    (warning,) = warnings
    assert told in warning
    assert not list(tmp_path.rglob(PATTERN))


def test_a_folder_of_ones_own_is_used_again(tmp_path: Path, warnings: list[str]) -> None:
    for _ in range(2):
        recorder = Recorder(tmp_path / "state" / "recorder", "1.2.3", private=True)
        recorder.take(passing(0))
        recorder.close()
    assert warnings == []
    assert len(list(tmp_path.rglob(PATTERN))) == 2


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path: Path, warnings: list[str]) -> None:
    (tmp_path / "file").write_text("")
    record(tmp_path / "file" / "folder", *map(passing, range(50)))
    assert len(warnings) == 1
    assert "The flight recorder is off" in warnings[0]
    assert "NotADirectoryError" in warnings[0]


def test_a_cluster_too_large_for_the_ring_costs_one_warning(tmp_path: Path, warnings: list[str]) -> None:
    recorder = Recorder(tmp_path, "1.2.3", Limits(100, 100))
    recorder.take(passing(0))
    recorder.close()
    recorder.take(passing(1))
    assert len(warnings) == 1
    assert "takes more than the 100 bytes" in warnings[0]


def test_passes_that_come_too_fast_are_counted_and_their_changes_kept(tmp_path: Path) -> None:
    passes = [passing(number) for number in range(100)]
    recorder = Recorder(tmp_path, "1.2.3", room=1)
    for each in passes:
        recorder.take(each)
    for _ in range(20):
        time.sleep(0.01)
        recorder.take(passes[-1])
    recorder.close()
    found = read(tmp_path)
    assert sum(moment.frame.missed for moment in found) >= 100 - len(found) > 0
    assert found[-1].at == passes[-1].at
    assert differing(found) == []


_ENDLESS = """
import sys
from pathlib import Path
from gpuward.recorder.recorder import Recorder
from tests.recorder.test_recorder import passing

recorder = Recorder(Path(sys.argv[1]), "1.2.3")
number = 0
while True:
    number += 1
    recorder.take(passing(number))
"""


def test_what_was_written_before_a_kill_is_read(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _ENDLESS, str(tmp_path)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and sum(file.stat().st_size for file in tmp_path.glob(PATTERN)) < 20_000:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    notes: list[str] = []
    found = list(moments(tmp_path, notes.append))
    assert len(found) > 20
    assert differing(found) == []
    assert len(notes) <= 1, "of the last frame only"


_FULL = """
import resource, sys
from pathlib import Path
from gpuward.recorder.recorder import Recorder
from tests.recorder.test_recorder import passing

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
recorder = Recorder(Path(sys.argv[1]), "1.2.3", room=1000)
for number in range(300):
    recorder.take(passing(number))
recorder.close()
"""


def test_a_full_disk_costs_one_warning_and_what_is_on_it_is_read(tmp_path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", _FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True)
    assert (process.stdout + process.stderr).count("The flight recorder is off") == 1
    notes: list[str] = []
    found = list(moments(tmp_path, notes.append))
    assert differing(found) == []
    assert len(found) > 10
    assert len(notes) == 1
    assert "a record there is not whole" in notes[0]


def test_two_processes_in_one_folder_leave_each_other_alone(tmp_path: Path) -> None:
    recorders = [Recorder(tmp_path, "1.2.3") for _ in range(2)]
    for number in range(4):
        for recorder in recorders:
            recorder.take(passing(number))
    for recorder in recorders:
        recorder.close()
    found = read(tmp_path)
    assert sorted(moment.at for moment in found) == sorted(2 * [build.NOW + number for number in range(4)])
    assert differing(found) == []


def test_the_oldest_files_make_room_whoever_wrote_them(tmp_path: Path) -> None:
    mine, other = (Ring(tmp_path, Limits(total=100)) for _ in range(2))
    mine.begin([b"1" * 60])
    other.begin([b"2" * 30])
    mine.begin([b"3" * 50])
    assert [file.read_bytes() for file in sorted(tmp_path.glob(PATTERN))] == [b"2" * 30, b"3" * 50]
    mine.add([b"4" * 40])
    assert [file.read_bytes() for file in sorted(tmp_path.glob(PATTERN))] == [b"3" * 50 + b"4" * 40]
    with pytest.raises(OSError, match="more than the 100 bytes"):
        mine.add([b"5" * 20])
    for ring in (mine, other):
        ring.close()
