"""What is installed only with an extra of gpuward's, and what to say where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpuward.cli.garbage import look_as_usual
from gpuward.errors import NotInstalled

PACKAGE = "kubesandbox"


@contextmanager
def sandbox_for(command: str) -> Iterator[None]:
    """Import what needs the sandbox, and goes on for long. Raises NotInstalled, with what to install, where that is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != PACKAGE:
            raise
        raise NotInstalled(f"{command} needs the sandbox: pip install 'gpuward[sandbox]'") from error
    look_as_usual()
