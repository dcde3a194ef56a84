"""A plan in a file: `gpuward plan --save` writes it, `--check` compares, and `gpuward approve --plan` has rollouts keep to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import msgspec

from gpuward import names
from gpuward.cli.archive import EXISTS, publish
from gpuward.cli.foresight import Foresight
from gpuward.cli.rollouts import Lines, PolicyRollout, change, read_rollouts
from gpuward.errors import InputError
from gpuward.kube.http.client import Client
from gpuward.model.approved_plan import ApprovedPlan, PlannedPlace, differences
from gpuward.policy.annotated import annotation
from gpuward.upgrade.approved_plan import plan_as_it_is, versions_of
from gpuward.upgrade.decide import survey

KIND = "SavedPlan"


class SavedNode(msgspec.Struct, frozen=True):
    """Hold what becomes of a node."""

    name: str
    driver: str
    wave: str = ""


class SavedRollout(msgspec.Struct, frozen=True):
    """Hold the plan of the ClusterPolicy's rollout, or of that of an NVIDIADriver."""

    driver: str
    """The NVIDIADriver; empty for the ClusterPolicy."""
    digest: str
    limits: dict[str, str]
    nodes: tuple[SavedNode, ...]
    versions: dict[str, str] = {}
    """The version of each driver, for people."""

    @property
    def plan(self) -> ApprovedPlan:
        """Return the plan as the operator compares it."""
        return ApprovedPlan(self.limits, {node.name: PlannedPlace(node.driver, node.wave) for node in self.nodes}, self.versions)


class SavedPlan(msgspec.Struct, frozen=True):
    """Hold the plans of all rollouts."""

    kind: str
    rollouts: tuple[SavedRollout, ...]


def saved_plan(found: Foresight) -> SavedPlan:
    """Return what is written of the plan for a cluster as it would be."""
    return SavedPlan(KIND, tuple(_rollouts(found)))


def _rollouts(found: Foresight) -> Iterator[SavedRollout]:
    picture = found.picture
    for policy in picture.drivers.upgrades:
        if policy.unowned or policy.gone:
            continue
        seen = survey(picture.snapshot, policy, picture.now)
        nodes = [node.before for node in seen.nodes]
        plan = plan_as_it_is(nodes, seen.fleet.waves.places, policy)
        places = tuple(SavedNode(name, place.driver, place.wave) for name, place in sorted(plan.nodes.items()))
        yield SavedRollout(policy.driver, plan.digest, dict(plan.limits), places, versions_of(nodes))


class Target:
    """Say into which file a plan goes, and whether it may replace one."""

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path = path
        # A terminal, or a pipe, holds nothing that would be lost.
        self.force = force or (path.exists() and not path.is_file())

    def check(self) -> None:
        """See that it replaces nothing that it may not.

        Raises:
            InputError: it would.
        """
        if not self.force and os.path.lexists(self.path):
            raise InputError("--save", str(self.path), EXISTS)


def write_plan(plan: SavedPlan, target: Target) -> None:
    """Write a plan.

    Raises:
        InputError: a file is there and may not be replaced, or none can be written.
    """
    text = msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"
    try:
        if target.path.exists() and not target.path.is_file():
            target.path.write_bytes(text)
        else:
            _write_whole(text, target)
    except OSError as error:
        raise InputError("--save", str(target.path), f"name a file that can be written: {error.strerror}") from None


def _write_whole(text: bytes, target: Target) -> None:
    """Write a file that is there whole or not at all: one that is to be replaced stays as it is where the disk is full."""
    path = target.path.resolve() if target.force else target.path  # what a link names is replaced, not the link
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_bytes(text)
        publish(made, path, force=target.force, option="--save")
    finally:
        made.unlink(missing_ok=True)


def read_plan(option: str, path: Path) -> SavedPlan:
    """Return the plan of a file.

    Raises:
        InputError: it cannot be read, is no such plan, or was edited.
    """
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=SavedPlan)
    except (OSError, RecursionError, msgspec.MsgspecError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise InputError(option, str(path), f"write it with `gpuward plan --save`: {why}") from None
    if plan.kind != KIND or any(each.plan.digest != each.digest for each in plan.rollouts):
        raise InputError(option, str(path), "it is none that `gpuward plan --save` wrote, or was edited since")
    return plan


def told_of_saved(plan: SavedPlan, path: Path) -> Iterator[str]:
    """Say what was written, and how it is approved of."""
    for each in plan.rollouts:
        yield f"{path}: plan {each.digest} of {_title(each.driver)}, {len(each.nodes)} nodes"
    yield f"Nodes start only as it says after: gpuward approve --plan {quote(str(path))}"


def differing(saved: SavedPlan, now: SavedPlan) -> Iterator[str]:
    """Say in what the plan for a cluster differs from one that was saved."""
    before, after = ({each.driver: each for each in plan.rollouts} for plan in (saved, now))
    for driver in sorted(before.keys() | after.keys()):
        if driver not in before or driver not in after:
            yield f"{_title(driver)} is {'in the cluster' if driver in after else 'in the file'} alone"
            continue
        was, new = before[driver].plan, after[driver].plan
        yield from (f"{_title(driver)}: {text}" for text in differences(was, new.limits, new.nodes, new.versions))
        yield from (f"{_title(driver)}: node {name} is not there any more (which holds nothing)"
                    for name in sorted(was.nodes.keys() - new.nodes.keys()))


def _title(driver: str) -> str:
    return f"NVIDIADriver {driver}" if driver else "the ClusterPolicy"


async def approve_plan(client: Client, path: Path, driver: str, *, dry_run: bool) -> Lines:
    """Have rollouts keep to the plan of a file, and say so.

    Raises:
        InputError: the file has no such plan, or there is no such NVIDIADriver.
    """
    plan, rollouts = read_plan("--plan", path), await read_rollouts(client)
    chosen = [each for each in plan.rollouts if not driver or each.driver == driver]
    if not chosen:
        raise InputError("--driver", driver, f"the plan of {path} has no rollout of it")
    for each in chosen:
        rollout = rollouts.named(each.driver, "approve") if each.driver else rollouts.in_force("approve")
        if dry_run:
            yield f"{rollout.title}: would get the plan {each.digest}; a dry run writes nothing"
            continue
        text = each.plan.encoded()

        def patch(found: PolicyRollout, text: str = text) -> dict[str, object] | None:
            if annotation(found.view.body, names.APPROVED_PLAN) == text:
                return None
            return {"metadata": {"annotations": {names.APPROVED_PLAN: text}}}

        there = await change(client, rollout, patch)
        told = "nodes start only as it says" if there is None else "it has that plan already: nothing is written"
        yield f"{rollout.title}: plan {each.digest}: {told}"
