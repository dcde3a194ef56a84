"""Values in files and inline."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuward.errors import KubeconfigError
from gpuward.kube.config.files import InFile, Inline


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    source = InFile(path, "tokenFile")
    assert source.read() == b"one"
    path.write_text("three")
    assert source.read() == b"three"


def test_a_swapped_link_is_a_change_even_with_equal_size_and_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1, 1))
    link = tmp_path / "token"
    link.symlink_to("one")
    source = InFile(link, "tokenFile")
    assert source.read() == b"one"
    link.unlink()
    link.symlink_to("two")
    assert source.read() == b"two"


def test_a_change_that_leaves_no_trace_is_found_on_request(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    os.utime(path, (1, 1))
    source = InFile(path, "tokenFile")
    assert source.read() == b"one"
    path.write_text("two")
    os.utime(path, (1, 1))
    assert source.read() == b"one"
    assert source.read_again() == b"two"


def test_a_file_that_vanishes_keeps_its_last_value(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    source = InFile(path, "tokenFile")
    source.read()
    path.unlink()
    assert source.read() == b"one"
    assert source.read_again() == b"one"


def test_a_file_that_was_never_there_is_told_by_field_and_path(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"^tokenFile: cannot read /.*/gone: No such file or directory: name"):
        InFile(tmp_path / "gone", "tokenFile").read()


def test_inline_data_may_be_folded() -> None:
    assert Inline.from_base64("aGVs\n bG8=\n", "x").read() == b"hello"
    assert Inline(b"x").read_again() == b"x"
    with pytest.raises(KubeconfigError, match=r"^user: not valid base64"):
        Inline.from_base64("?", "user")
