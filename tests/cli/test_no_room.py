"""Files for which there is no room: what is said, and what is there afterwards."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuward.cli.archive import archive_at
from gpuward.cli.savedplan import KIND, SavedPlan, Target, read_plan, write_plan
from gpuward.errors import GpuwardError

PLAN = SavedPlan(KIND, ())


@contextmanager
def no_room() -> Iterator[None]:
    """Let no file of this process grow beyond a few bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_archive_without_room_is_named_and_not_there(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    with pytest.raises(GpuwardError, match=r"report\.tar\.gz could not be written: File too large"), no_room(), \
            archive_at(path, "x", 0.0, force=False) as archive:
        archive.add("a", bytes(range(256)) * 100)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
def test_a_plan_without_room_leaves_no_file_and_takes_none_away(tmp_path: Path, force: bool) -> None:
    path = tmp_path / "plan.json"
    if force:
        write_plan(PLAN, Target(path))
    with pytest.raises(GpuwardError, match=r"plan\.json.*File too large"), no_room():
        write_plan(PLAN, Target(path, force=force))
    assert [file.name for file in tmp_path.iterdir()] == (["plan.json"] if force else [])
    write_plan(PLAN, Target(path, force=force))
    assert read_plan("--check", path).rollouts == PLAN.rollouts
