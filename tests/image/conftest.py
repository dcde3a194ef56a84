"""The image, built once for all tests that look at it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.image.unpacked import ROOT, Unpacked, build, unpacked


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """Build the image of this checkout."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("the image is built with mmdebstrap, which is not installed")
    folder = tmp_path_factory.mktemp("image")
    return unpacked(build(ROOT, folder / "out"), folder / "root")


@pytest.fixture(scope="session")
def runnable(image: Unpacked) -> Unpacked:
    """Return the image where programs in it can be run."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a program in the image is run by root, in mounts of its own, and this machine does not let us")
    for folder in (image.root, *image.root.parents):  # pytest's own folders are closed to others
        if folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    return image
