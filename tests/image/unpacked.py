"""An image that was built, unpacked into a folder, and run there as a container would be: without a runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.image.oci import read_image, unpack_image

ROOT = Path(__file__).parents[2]
PATIENCE = 900.0
"""Seconds for a build: the packages come from a mirror, and the machine is busy with other tests."""
USER = 65532
INSIDE = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec chroot --userspec {user}:{user} --groups= "$@"'


@dataclass(frozen=True)
class Unpacked:
    """Hold what a build printed and wrote."""

    image: Path
    digest: str
    sbom: Path
    root: Path
    progress: str
    checkout: Path

    @property
    def config(self) -> dict[str, Any]:
        """Return how it is to be started, and what it says of itself."""
        config: dict[str, Any] = read_image(self.image)[2]["config"]
        return config

    @property
    def components(self) -> list[dict[str, Any]]:
        """Return what the SBOM lists."""
        found: list[dict[str, Any]] = json.loads(self.sbom.read_text())["components"]
        return found

    def command(self, *words: str) -> list[str]:
        """Return what runs a program in the image: its root is read-only, and its user nobody in particular."""
        apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c", INSIDE.format(user=USER), "sh"]
        return [*apart, str(self.root), *words]

    def run(self, *words: str, environment: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
        """Run a program in the image."""
        variables = {"PATH": os.environ["PATH"], "HOME": "/", "LC_ALL": "C.UTF-8", **environment}
        return subprocess.run(self.command(*words), env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False)


def build(checkout: Path, out: Path, *options: str, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    """Build the image of a checkout with our Python."""
    return subprocess.run([sys.executable, "-m", "tools.image", "--out", str(out), *options], cwd=checkout, capture_output=True,
                          text=True, timeout=PATIENCE, check=False, umask=umask)


def unpacked(done: subprocess.CompletedProcess[str], folder: Path, checkout: Path) -> Unpacked:
    """Unpack what a build wrote; it must have succeeded."""
    assert done.returncode == 0, done.stderr
    said = dict(line.split("=", 1) for line in done.stdout.splitlines())
    image = Path(said["IMAGE"])
    unpack_image(image, folder)
    return Unpacked(image, said["DIGEST"], Path(said["SBOM"]), folder, done.stderr, checkout)


def another_checkout(folder: Path, of: Path = ROOT) -> Path:
    """Return a checkout of the same commit with the same changes, in another folder; what builds keep for later is shared."""
    git = ["git", "-C", str(of)]
    subprocess.run([*git, "clone", "--quiet", "--local", "--no-hardlinks", str(of), str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "--quiet", "--detach", revision()], check=True)
    listed = subprocess.run([*git, "ls-files", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True,
                            text=True)
    for name in listed.stdout.splitlines():
        if (of / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(of / name, folder / name)
    for gone in subprocess.run([*git, "ls-files", "--deleted"], check=True, capture_output=True, text=True).stdout.splitlines():
        (folder / gone).unlink()
    (folder / ".cache").mkdir(exist_ok=True)
    for name in ("image", "uv"):
        (folder / ".cache" / name).symlink_to(ROOT / ".cache" / name)
    return folder


def revision() -> str:
    """Return the commit of this checkout."""
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
