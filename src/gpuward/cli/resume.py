"""`gpuward resume`: let a rollout go on that `gpuward pause`, its failure budget or the trouble of a new driver holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gpuward import names
from gpuward.cli.rollouts import Lines, Patch, PolicyRollout, Rollouts, all_nodes, change, idle, read_rollouts, time_of
from gpuward.cli.words import without_abort
from gpuward.errors import PolicyError
from gpuward.kube.http.client import Client
from gpuward.model.analysis_note import read_analysis
from gpuward.model.listing import listed
from gpuward.model.record import format_time
from gpuward.model.rollout import CLOCKS_DIFFER
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView, PolicyView
from gpuward.policy.annotated import annotation
from gpuward.policy.rolloutpolicy import resumed_at


class Resumed(msgspec.Struct, frozen=True):
    """Hold what was done: on which object, up to when failures are forgiven, and on which nodes there are any."""

    policy: str
    at: float
    nodes: tuple[str, ...]
    driver: bool = False
    """Whether it is an NVIDIADriver, and not the ClusterPolicy."""
    checked: bool = False
    """Whether a check of one of its waves had failed."""

    @property
    def title(self) -> str:
        """Return kind and name of the object."""
        return f"{'NVIDIADriver' if self.driver else 'ClusterPolicy'} {self.policy}"


async def resume_paused(client: Client, driver: str, *, dry_run: bool) -> Lines:
    """Let go on whatever is held, and say what was done; nothing is written where nothing is held. Raises as `resume_rollout`."""
    rollouts = await read_rollouts(client)
    target = rollouts.named(driver, "resume") if driver else rollouts.in_force("resume")
    meant = (target,) if driver else (target, *rollouts.drivers)
    paused = [each for each in meant if each.is_paused]
    aborted = [each for each in meant if without_abort(each) is not None]
    async for line in _gone_on(client, paused, aborted, dry_run=dry_run):
        yield line
    if paused and aborted:  # Who ends a pause need not know that the driver was given up before; to forgive would end the abort.
        return
    nodes, before = await all_nodes(client), _forgiven_before(rollouts, target)
    failed = sorted(_failed(nodes, driver, before))
    if failed or _may_be_held(nodes):
        if dry_run:
            told = forgiven(failed, checked=_failed_check(target, before))
            yield f"{target.title}: would be resumed; {told}; a dry run writes nothing"
        else:
            done = await resume_rollout(client, time_of(client), driver)
            yield f"{done.title}: resumed at {format_time(done.at)}; {forgiven(done.nodes, checked=done.checked)}"
    elif not (paused or aborted or _serves_machines(rollouts)):
        yield f"{target.title}: there is nothing to resume, as no node waits or has failed{_since(before)}: nothing is written"
    for line in _stays_off(rollouts, target, driver, paused):
        yield line
    if (paused or aborted or failed or _may_be_held(nodes)) and not _serves_machines(rollouts):
        yield await _next(client, rollouts.policy or target)


async def _gone_on(
    client: Client, paused: Sequence[PolicyRollout], aborted: Sequence[PolicyRollout], *, dry_run: bool
) -> Lines:
    """End pauses; take aborts back where nothing is paused."""
    for rollout in paused:
        if dry_run:
            yield f"{rollout.title}: upgrades would be turned on ({rollout.field}: true); a dry run writes nothing"
        elif await change(client, rollout, _on) is None:
            yield f"{rollout.title}: upgrades are on again ({rollout.field}: true), as before the pause of {rollout.paused_at}"
    for rollout in aborted:
        if paused:
            yield f"{rollout.title}: its rollout was aborted, and stays so: `{rollout.resume}` once more takes the abort back"
        elif dry_run:
            yield f"{rollout.title}: the abort would be taken back, and what it holds would go on; a dry run writes nothing"
        elif await change(client, rollout, without_abort) is None:
            yield f"{rollout.title}: the abort is taken back, and what it held goes on"


async def _next(client: Client, policy: PolicyRollout) -> str:
    """Say what comes next: nothing where no operator runs."""
    goes_on = "Next: nodes start when their turn comes, where nothing else holds them; `gpuward status` says what each waits for"
    return await idle(client, policy) or goes_on


async def resume_rollout(client: Client, now: float, driver: str = "") -> Resumed:
    """Write onto the ClusterPolicy in force, or onto an NVIDIADriver, that failures up to now are forgiven.

    Raises:
        GpuwardError: there is no ClusterPolicy.
        InputError: there is no NVIDIADriver of that name, or drivers are not those of NVIDIADrivers.
        Conflict: the object was deleted and made anew meanwhile.
    """
    rollouts = await read_rollouts(client)
    target = rollouts.named(driver, "resume") if driver else rollouts.in_force("resume")
    nodes, before = await all_nodes(client), _forgiven_before(rollouts, target)
    failed = _failed(nodes, driver, before)
    verdict = read_analysis(annotation(target.view.body, names.ANALYSIS)).failed
    checked = verdict.at if verdict is not None else 0.0
    at = max([now, *(time for time in (*failed.values(), before, checked) if time <= now + CLOCKS_DIFFER)])
    patch = {"metadata": {"uid": target.view.uid, "annotations": {names.RESUMED_AT: format_time(at)}}}
    await client.patch_merge(target.resource, target.view.name, patch)
    return Resumed(target.view.name, at, tuple(sorted(failed)), bool(driver), _failed_check(target, before))


def _on(rollout: PolicyRollout) -> Patch | None:
    return rollout.switched(True, None) if rollout.is_paused else None


def _stays_off(rollouts: Rollouts, target: PolicyRollout, driver: str, paused: Sequence[PolicyRollout]) -> Iterator[str]:
    """Say which upgrades stay off, and what would turn them on."""
    if _serves_machines(rollouts):
        yield (f"{(rollouts.policy or target).title}: no driver is upgraded while spec.sandboxWorkloads.enabled is true, "
               "and resume does not change that")
    for rollout in _off(rollouts, target, driver):
        if rollout not in paused:
            yield (f"{rollout.title}: upgrades are off, and not by `gpuward pause`, so they stay off: "
                   f"set {rollout.field} to true to turn them on")


def _off(rollouts: Rollouts, target: PolicyRollout, driver: str) -> Sequence[PolicyRollout]:
    """Return what has upgrades off that were asked to go on."""
    meant = rollouts.drivers if rollouts.left_to_drivers and not driver else (target,)
    return [rollout for rollout in meant if not rollout.is_on]


def _serves_machines(rollouts: Rollouts) -> bool:
    return rollouts.policy is not None and rollouts.policy.serves_machines


def _forgiven_before(rollouts: Rollouts, target: PolicyRollout) -> float:
    return max(_resumed_before(rollout.view) for rollout in (rollouts.policy or target, target))


def _failed(nodes: Sequence[NodeView], driver: str, before: float) -> dict[str, float]:
    """Return which nodes failed since failures were forgiven last, and when."""
    return {node.name: at for node in nodes if _concerned(node, driver) and (at := failed_at(node)) > before}


def _may_be_held(nodes: Sequence[NodeView]) -> bool:
    """Tell whether a node waits or is under way: what holds one, as a refusal, may be known to the operator alone."""
    return any(node.state is State.UPGRADE_REQUIRED or node.state in IN_PROGRESS for node in nodes)


def _concerned(node: NodeView, driver: str) -> bool:
    return not driver or node.labels.get(names.DRIVER_OWNER) == driver


def _since(before: float) -> str:
    return f" since it was resumed last, at {format_time(before)}" if before else ""


def failed_at(node: NodeView) -> float:
    """Return when a node's upgrade failed last, 0 for a node on which nothing has failed; one that is tried again counts."""
    return node.record.failure.at if node.record is not None and node.record.failure is not None else 0.0


def _failed_check(target: PolicyRollout, before: float) -> bool:
    """Tell whether a check of a wave has failed since failures were forgiven last."""
    verdict = read_analysis(annotation(target.view.body, names.ANALYSIS)).failed
    return verdict is not None and verdict.at > before


def forgiven(nodes: Sequence[str], *, checked: bool = False) -> str:
    """Say in a few words what begins anew, and how many failures no longer count."""
    if checked:
        anew = "the check that failed is measured anew, and later waves start if it passes"
        return f"{anew}; {forgiven(nodes)}" if nodes else anew
    if not nodes:
        return "no failed node counted against the failure budget; a new driver's trouble up to now holds no node any more"
    count = "1 failed node no longer counts" if len(nodes) == 1 else f"{len(nodes)} failed nodes no longer count"
    return f"{count} against the failure budget ({listed(nodes)})"


def _resumed_before(policy: PolicyView) -> float:
    try:
        return resumed_at(annotation(policy.body, names.RESUMED_AT))
    except PolicyError:  # it counts as absent, and is replaced
        return 0.0
