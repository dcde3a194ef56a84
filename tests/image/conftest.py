"""The image, built once for all tests that look at it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.image.unpacked import ROOT, Unpacked, another_checkout, build, unpacked

STALE: list[str] = []
"""What a build said that did not find the pinned packages."""


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """Build the image of this checkout."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("the image is built with mmdebstrap, which is not installed")
    folder = tmp_path_factory.mktemp("image")
    done, checkout = build(ROOT, folder / "out"), ROOT
    if done.returncode != 0 and "./dev image --refresh" in done.stderr:
        # Debian has updated a package since: nothing that this commit did.
        STALE.append(done.stderr)
        checkout = another_checkout(folder / "checkout")
        done = build(checkout, folder / "out", "--refresh")
        assert done.returncode == 0, done.stderr
        done = build(checkout, folder / "out")
    return unpacked(done, folder / "root", checkout)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say that the image was tried with other packages than those that are pinned."""
    for said in STALE:
        terminalreporter.section("the list of Debian packages is out of date: ./dev image --refresh")
        terminalreporter.write_line(said)


@pytest.fixture(scope="session")
def runnable(image: Unpacked) -> Unpacked:
    """Return the image where programs in it can be run."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a program in the image is run by root, in mounts of its own, and this machine does not let us")
    for folder in (image.root, *image.root.parents):  # pytest's own folders are closed to others
        if folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    return image
