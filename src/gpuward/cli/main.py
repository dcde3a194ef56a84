"""The `gpuward` command."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from gpuward.cli import garbage
from gpuward.cli.commands import commands
from gpuward.cli.terminal import in_words, say, say_bug
from gpuward.errors import GpuwardError

CHART_NAMES = frozenset({"gpu-operator", "manage-crds", "cleanup-gpuclusters"})
"""The names of `cli/chart.py`, which is imported only where one of them is called."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing the output can fail with, beside a reader that has gone, which click knows."""


def main() -> None:
    """Run the command line; every expected failure is one line and an exit code of its own, 1 for most."""
    sys.excepthook = say_bug
    garbage.look_seldom()
    try:
        called(sys.argv[0])(prog_name=program(sys.argv[0]), standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BaseExceptionGroup as group:
        expected, others = group.split(_is_expected)
        if others is not None or expected is None:
            raise
        _end(_first(expected))
    except (GpuwardError, OSError) as error:
        if not _is_expected(error):
            raise
        _end(error)
    finally:
        garbage.leave()


def _is_expected(error: BaseException) -> bool:
    """Tell whether an error is one of ours, or of writing the output."""
    written = isinstance(error, OSError) and error.filename is None and error.errno in {*NO_ROOM, errno.EPIPE}
    return written or isinstance(error, GpuwardError)


def _end(error: BaseException) -> NoReturn:
    if not isinstance(error, OSError):
        _fail(error)
    # What could not be written is still in the buffer, and Python tries again at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        sys.exit(1)  # as click ends, where nobody reads on
    _fail(GpuwardError(f"cannot write the output: {error.strerror}"))


def called(path: str) -> click.Command:
    """Return the command of the file that was called: in the image there are those that NVIDIA's chart starts."""
    if Path(path).name not in CHART_NAMES:
        return commands
    from gpuward.cli.chart import PROGRAMS

    return PROGRAMS[Path(path).name]


def program(path: str) -> str:
    """Return how the person has called us: kubectl runs a file named after the command that it is to have."""
    if Path(path).name in CHART_NAMES:
        return Path(path).name
    return "kubectl gpuward" if Path(path).stem == "kubectl-gpuward" else "gpuward"


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _fail(error: BaseException) -> NoReturn:
    say(f"{program(sys.argv[0]).removeprefix('kubectl ')}: {in_words(error)}", err=True)
    sys.exit(error.exit_code if isinstance(error, GpuwardError) else 1)
