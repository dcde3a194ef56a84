"""The `gpuward` command."""

from __future__ import annotations

import sys

import click

from gpuward.cli.crds import crds
from gpuward.cli.demo import demo
from gpuward.cli.explain import explain
from gpuward.cli.replay import replay
from gpuward.cli.resume import resume
from gpuward.cli.run import run
from gpuward.cli.sandbox import sandbox
from gpuward.cli.status import status
from gpuward.cli.terminal import say, say_bug
from gpuward.errors import ApiError, GpuwardError, Unreachable


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="gpuward")
def commands() -> None:
    """Run and upgrade the GPU software stack of a Kubernetes cluster, and say at every moment what it waits for."""


for command in (demo, run, status, explain, resume, replay, crds, sandbox):
    commands.add_command(command)


def main() -> None:
    """Run the command line; every expected failure is one line and exit code 1."""
    sys.excepthook = say_bug
    try:
        commands(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BaseExceptionGroup as group:
        expected, others = group.split(GpuwardError)
        if others is not None or expected is None:
            raise
        _fail(_first(expected))
    except GpuwardError as error:
        _fail(error)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _fail(error: BaseException) -> None:
    text = " ".join(str(error).split())
    if isinstance(error, ApiError):
        text = f"the API server refused ({error.status} {error.reason}): {text}"
    elif isinstance(error, Unreachable):
        text = f"the API server cannot be reached: {text}"
    say(f"gpuward: {text}", err=True)
    sys.exit(1)
