"""`./dev as-test`: write a test of a decision in a recording of the flight recorder."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gpuward.cli.replay import stop_in
from gpuward.cli.rerun import rerun
from gpuward.cli.terminal import say
from gpuward.errors import GpuwardError
from tools.testwriter.regression import write_test


@click.command()
@click.argument("recording", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--at", metavar="TIME", help="The last decision up to this time (RFC 3339).")
@click.option("--node", help="What is decided about this node; without it, about those that something is done about.")
def main(recording: Path, file: Path, at: str | None, node: str | None) -> None:
    """Write a pytest FILE that asserts what is decided at one moment of a RECORDING.

    RECORDING is a file of `gpuward run`, or the folder of its flight recorder. Without --at it is the last decision, or the last
    one in which something new was decided about --node.
    """
    try:
        say(f"{file}: {write_test(rerun(stop_in(recording, at, node).moment), node, file)}")
    except GpuwardError as error:
        say(f"as-test: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
