"""A registry in the nodes' network: images are really pulled from it, whatever registry their names say."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import IO, Any

from tools.controlplane.processes import ProcessFailed
from tools.node import network
from tools.node.files import CTR

PROGRAM = "docker-registry"
PORT = 5000
ADDRESS = f"{network.ROUTER}:{PORT}"
_ASIDE = "to-be-pushed"
"""The namespace of containerd in which an image waits for being pushed: to the kubelet it is not there."""
_ATTEMPTS = 3
_PAUSE = 2.0


def write(own: Path) -> None:
    """Send a node to this registry for all images: their own registries cannot be reached."""
    folder = own / "registries" / "_default"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts.toml").write_text(f'[host."http://{ADDRESS}"]\n  capabilities = ["pull", "resolve"]\n')


def command_line(folder: Path) -> list[str]:
    """Return the command line of the registry that keeps its images in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "version": 0.1, "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "images")}, "cache": {"blobdescriptor": "inmemory"}},
        "http": {"addr": ADDRESS, "secret": "gpuward"},
    }
    file = folder / "config.yml"
    # JSON is YAML.
    file.write_text(json.dumps(config))
    return [PROGRAM, "serve", str(file)]


def push(archive: IO[bytes], within: list[str]) -> list[str]:
    """Push the images of a tar file, and return their names; `within` runs a command line in a node."""
    ctr = [*within, *CTR, "--namespace", _ASIDE, "images"]
    _run([*ctr, "import", "--no-unpack", "-"], archive)
    names = _run([*ctr, "ls", "--quiet"]).split()
    for name in names:
        there = f"{ADDRESS}/{path(name)}"
        _run([*ctr, "tag", "--force", name, there])
        _pushed([*ctr, "push", "--plain-http", there])
        _run([*ctr, "rm", name, there])
    return names


def path(name: str) -> str:
    """Return an image's name without its registry."""
    first, _, rest = name.partition("/")
    return rest if rest and ("." in first or ":" in first or first == "localhost") else name


def _pushed(line: list[str]) -> None:
    """Push an image, again where that fails: on a busy machine containerd now and then breaks off the content that it streams."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            _run(line)
        except ProcessFailed:
            if not left:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _run(line: list[str], given: IO[bytes] | None = None) -> str:
    done = subprocess.run(line, stdin=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProcessFailed(f"{' '.join(line[line.index('images'):])}: {done.stderr.strip()}")
    return done.stdout
