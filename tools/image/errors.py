"""What a build ends with that it cannot finish."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class BuildError(Exception):
    """Say in a few lines why no image was built, and what to do."""


def output_of(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> bytes:
    """Return what a command prints.

    Raises:
        BuildError: it is not installed, or it fails; the message has the end of what it said.
    """
    try:
        # apt speaks the language of whoever calls it, and what it says is read.
        variables = {**(os.environ if env is None else env), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(command, env=variables, cwd=cwd, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not installed") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-15:]
        raise BuildError("\n".join([f"{Path(command[0]).name} failed ({done.returncode}):", *said]))
    return done.stdout
