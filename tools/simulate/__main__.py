"""`./dev simulate`: play seeds, tell which fail, shrink them, and count what was met."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click
import msgspec

from tools.simulate import coverage
from tools.simulate.faults import KINDS
from tools.simulate.filling import Filling
from tools.simulate.many import ITSELF, results
from tools.simulate.modes import MODES
from tools.simulate.planted import PLANTS, NotThere, planted
from tools.simulate.scenario import Ranges, Scenario, Variation
from tools.simulate.shrink import Shrunk, shrink
from tools.simulate.world import RunResult, play

STORY_LINES = 60
MOST_LACKING = 60


class Span(click.ParamType[tuple[int, int]]):
    """Read `A-B`, or one number for both."""

    name = "A-B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Return both ends; fails with what to write instead."""
        if isinstance(value, tuple):
            return value
        low, _, high = str(value).partition("-")
        try:
            span = int(low), int(high or low)
        except ValueError:
            self.fail(f"{value!r} is no range: write two numbers such as 3-40, or one", param, ctx)
        if not 1 <= span[0] <= span[1]:
            self.fail(f"{value!r} is no range: the first number must be at least 1 and not above the second", param, ctx)
        return span


class Added(click.ParamType[str]):
    """Read `KIND@SECONDS`."""

    name = "KIND@SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as it is; fails with what to write instead."""
        kind, _, at = str(value).partition("@")
        if kind not in KINDS:
            near = get_close_matches(kind, KINDS, 1)
            self.fail(f"{kind!r} is no kind of fault{f'; did you mean {near[0]}?' if near else ''}", param, ctx)
        if not at.replace(".", "", 1).isdecimal():
            self.fail(f"{value!r} has no time: write {kind}@ and virtual seconds from the start, such as {kind}@120", param, ctx)
        return str(value)


@click.command()
@click.option("--seeds", default=20, show_default=True, help="How many seeds to play.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Play this seed alone, shrink it if it fails and print its story.")
@click.option("--as", "mode", type=click.Choice(tuple(MODES)), help="With --seed: play it where drivers come from there.")
@click.option("--add", "added", multiple=True, type=Added(), help="With --seed: add this fault to it.")
@click.option("--bare", is_flag=True, help="With --seed: leave out all faults but those that are added.")
@click.option("--nodes", type=Span(), default="3-40", show_default=True, help="How many GPU nodes; most runs have few.")
@click.option("--minutes", type=Span(), default="10-30", show_default=True, help="How many virtual minutes.")
@click.option("--mode", "chosen", multiple=True, type=click.Choice(tuple(MODES)), help="Where drivers come from; all by default.")
@click.option("--spare", "spared", multiple=True, metavar="RULE", help="Do not end a run for this rule, to see what comes after.")
@click.option("--plant", type=click.Choice((*PLANTS, "all")), help="Put a defect back and tell which seed and rule catch it.")
@click.option("--jobs", default=2, show_default=True, help="How many processes play.")
@click.option("--assert-coverage", is_flag=True, help="Print what was met, and fail if something that can be met never was.")
@click.option("--fill", is_flag=True, help="Play on after the seeds, with runs that are made for what none of them has met.")
@click.option("--shrink/--no-shrink", "shrinks", default=True, help="Look for the smallest run that fails in the same way.")
def main(**options: Any) -> None:
    """Play the operator on a sandbox, in virtual time, under faults and meddling that follow from each seed."""
    ranges = Ranges(options["nodes"], options["minutes"], tuple(options["chosen"]) or tuple(MODES), tuple(options["spared"]),
                    options["plant"] if options["plant"] in PLANTS else "")
    replay = f"--nodes {_span(ranges.nodes)} --minutes {_span(ranges.minutes)}" + "".join(
        f" --mode {mode}" for mode in options["chosen"]) + "".join(f' --spare "{rule}"' for rule in options["spared"])
    replay += f" --plant {ranges.plant}" if ranges.plant else ""
    if options["seed"] is not None:
        run = Variation(options["seed"], options["mode"] or "", options["added"], options["bare"])
        sys.exit(_one(run, ranges, options["shrinks"]))
    if options["mode"] or options["added"] or options["bare"]:
        raise click.UsageError("--as, --add and --bare change the run of one seed: give it by --seed")
    seeds = [Variation(seed) for seed in range(options["first"], options["first"] + options["seeds"])]
    if options["plant"]:
        chosen = tuple(PLANTS) if options["plant"] == "all" else (options["plant"],)
        sys.exit(0 if all([_caught(name, seeds, ranges, options["jobs"]) for name in chosen]) else 1)
    tally = Tally(ranges, options["jobs"], replay)
    tally.play(seeds)
    while options["fill"] and (more := list(tally.filling.next_runs())):
        tally.play(more)
    failed, met = tally.failed, tally.met
    asked = options["assert_coverage"] or options["fill"] or len(ranges.modes) == len(MODES)
    lacking = coverage.missing(met, coverage.FEW if options["fill"] else len(seeds), ranges.modes) if asked else []
    if options["assert_coverage"]:
        click.echo("\n".join(coverage.table(met, ranges.modes)))
    told = coverage.together(lacking)
    click.echo(f"{len(lacking)} of what can be met was never met" + "".join(f"\n  {line}" for line in told[:MOST_LACKING])
               + (f"\n  and {len(told) - MOST_LACKING} more lines" if len(told) > MOST_LACKING else ""))
    sys.exit(1 if failed or (options["assert_coverage"] and lacking) else 0)


def _caught(plant: str, seeds: Sequence[Variation], ranges: Ranges, jobs: int) -> bool:
    """Play seeds with a defect put back until a rule catches it that holds without it; tell which did."""
    try:
        with planted(plant):
            pass
    except NotThere as error:
        click.echo(f"{plant}: cannot be put back: {error}")
        return False
    for number, (_, result) in enumerate(results(seeds, msgspec.structs.replace(ranges, plant=plant), jobs), 1):
        if (found := result.violation) is not None and found.rule != ITSELF and _holds(found.rule, result.seed, ranges):
            click.echo(f"{plant}: caught at seed {result.seed}, the {number}. played, by: {found.rule}\n    {found}")
            return True
    click.echo(f"{plant}: not caught by {len(seeds)} seeds")
    return False


def _holds(rule: str, seed: int, ranges: Ranges) -> bool:
    """Tell whether a rule holds in the run of a seed as it is without a defect that was put back."""
    found = next(results((Variation(seed),), msgspec.structs.replace(ranges, plant=""), 1))[1].violation
    return found is None or found.rule != rule


def _span(span: tuple[int, int]) -> str:
    return f"{span[0]}-{span[1]}"


class Tally:
    """Play runs, tell at once which fail, and count what was met."""

    def __init__(self, ranges: Ranges, jobs: int, replay: str) -> None:
        self.failed: list[Variation] = []
        self.met: Counter[str] = Counter()
        self.filling = Filling(ranges)
        self._ranges, self._jobs, self._replay = ranges, jobs, replay
        self._began, self._virtual, self._writes = time.monotonic(), 0.0, 0
        self._played = 0

    def play(self, runs: Sequence[Variation]) -> None:
        """Play some runs more."""
        of = self._played + len(runs)
        for run, result in results(runs, self._ranges, self._jobs):
            self._played += 1
            self.met.update(result.met)
            self.filling.take(run, result)
            self._virtual, self._writes = self._virtual + result.virtual_seconds, self._writes + result.writes
            if result.violation is not None:
                self.failed.append(run)
                click.echo(f"seed {run.seed}: {result.violation}\n    ./dev simulate {run} {self._replay}")
            if sys.stderr.isatty() or self._played == of:
                self._say(of)

    def _say(self, of: int) -> None:
        elapsed = time.monotonic() - self._began
        click.echo(f"\r{self._played} of {of} runs, {len(self.failed)} failed, {self._played / elapsed:.2f} a second, "
                   f"{self._virtual / 3600:.1f} virtual hours, {self._writes} writes, {len(self.filling.left)} cells to be met",
                   nl=self._played == of, err=True)


def _one(run: Variation, ranges: Ranges, shrinks: bool) -> int:
    scenario = run.scenario(ranges)
    result = play(scenario)
    click.echo(f"seed {run.seed}: {scenario.nodes} nodes, {len(scenario.faults)} faults, {result.virtual_seconds:.0f} virtual "
               f"seconds, {result.writes} writes, trace {result.digest[:16]}")
    if result.violation is None:
        click.echo("every rule held")
        return 0
    click.echo(f"broken: {result.violation}")
    found = shrink(scenario, result) if shrinks else Shrunk(scenario, result, 0)
    _tell(found.scenario, found.result, found.tries)
    return 1


def _tell(scenario: Scenario, result: RunResult, tries: int) -> None:
    """Print the short story: the faults, and what happened to the node concerned."""
    violation = result.violation
    assert violation is not None
    click.echo(f"\nafter {tries} tries: {scenario.nodes} nodes, {len(scenario.faults)} faults; workloads "
               f"{', '.join(scenario.workloads) or 'none'}; policy {dict(scenario.upgrade)}; settings {scenario.rollout}")
    for fault in scenario.faults:
        click.echo(f"  {fault}")
    click.echo(f"\n{violation}")
    lines = [told for told in result.story if told.about in ("", violation.node)]
    for told in lines[-STORY_LINES:]:
        click.echo(f"  {told.at:9.3f}  {told.text}")


if __name__ == "__main__":
    main()
