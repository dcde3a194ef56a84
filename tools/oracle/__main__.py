"""`./dev oracle`: play sequences of changes, tell which end in another cluster than a fresh install, and shrink those."""

from __future__ import annotations

import sys
import time

import click

from tools.oracle.many import verdicts
from tools.oracle.played import Verdict, play
from tools.oracle.sequence import draw
from tools.oracle.shrink import shrink

MOST_LINES = 40


@click.command()
@click.option("--seeds", default=20, show_default=True, help="How many seeds to play.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Play this seed alone, and shrink it if it fails.")
@click.option("--most", default=6, show_default=True, help="The most changes in a sequence.")
@click.option("--jobs", default=2, show_default=True, help="How many processes play.")
@click.option("--shrink/--no-shrink", "shrinks", default=True, help="Look for the fewest changes that fail in the same way.")
def main(*, seeds: int, first: int, seed: int | None, most: int, jobs: int, shrinks: bool) -> None:
    """Change the ClusterPolicy and NVIDIADrivers at random, and compare the cluster with a fresh install of the last ones."""
    if seed is not None:
        sys.exit(_one(seed, most, shrinks=shrinks))
    began, failed, changes, stuck, writes = time.monotonic(), 0, 0, 0, 0
    for found in verdicts(range(first, first + seeds), most, jobs):
        failed, changes, writes = failed + bool(found.wrong), changes + found.changes, writes + found.writes
        stuck += not found.ready
        if found.wrong:
            click.echo(f"seed {found.seed}: {len(found.wrong)} differences, the first: {found.wrong[0]}\n"
                       f"    ./dev oracle --seed {found.seed}" + (f" --most {most}" if most != 6 else ""))
    click.echo(f"{seeds} sequences, {failed} failed, {changes} changes, {writes} writes, {stuck} with pods that cannot run, "
               f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if failed else 0)


def _one(seed: int, most: int, *, shrinks: bool) -> int:
    sequence = draw(seed, most)
    found = play(sequence)
    if found.wrong and shrinks:
        sequence, found = shrink(sequence, found)
    click.echo(told(sequence, found))
    return 1 if found.wrong else 0


def told(sequence: object, found: Verdict) -> str:
    """Return a sequence and what is wrong with its end, to be read."""
    lines = [str(sequence), *(f"  {line}" for line in found.wrong[:MOST_LINES])]
    return "\n".join([*lines, "the cluster is as freshly installed"] if not found.wrong else lines)


if __name__ == "__main__":
    main()
