"""`gpuward approve`, `promote` and `abort`: what a person says of a rollout, as an annotation of the object that it is of.

Each says when, who, and for which drivers: another driver asks again. `gpuward resume` takes an abort back.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Final

import msgspec

from gpuward import names
from gpuward.cli.look import Look, Picture
from gpuward.cli.rollouts import Lines, Patch, PolicyRollout, all_nodes, change, meant, time_of
from gpuward.errors import ApiError, GpuwardError, InputError, PolicyError
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import format_time
from gpuward.model.states import IN_PROGRESS, UNDISTURBED
from gpuward.model.waves import RolloutWaves, WavePhase, WaveStatus, Word
from gpuward.model.windows import moment_in
from gpuward.policy.annotated import annotation
from gpuward.policy.rolloutpolicy import resumed_at
from gpuward.policy.words import encode_word, read_word
from gpuward.upgrade.comers import as_there, comers
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.waves import targets_of_rollout
from gpuward.upgrade.words import VERSION, behind, counts_for, is_about, rollout_aborted, versions_named

MOST_NODES = 500
"""Nodes that are not waited for at once: they are named in an annotation."""


_DONE: Final = {WavePhase.SOAKS: ", although it soaks", WavePhase.ANALYSIS: ", although its checks have not passed",
               WavePhase.ANALYSIS_FAILED: ", although a check failed", WavePhase.EMPTY: ", although it has no node any more"}
"""What is said of one who promotes a wave of which no node is waited for."""


class Case(msgspec.Struct, frozen=True):
    """Hold one rollout, and how it stands."""

    rollout: PolicyRollout
    policy: UpgradePolicy
    waves: RolloutWaves | None
    """None where it has none."""
    picture: Picture
    nodes: Sequence[NodeFacts] = ()

    @property
    def behind(self) -> list[NodeFacts]:
        """Return the nodes that are to get another driver."""
        return behind(self.nodes)

    @property
    def option(self) -> str:
        """Return the option that names it."""
        return f" --driver {self.rollout.view.name}" if self.rollout.driver else ""

    @property
    def awaited(self) -> WaveStatus | None:
        """Return the first wave that others wait for; None where none is left."""
        waves = self.waves.waves[:-1] if self.waves is not None and self.waves.targets else ()
        return next((wave for wave in waves if wave.phase is not WavePhase.DONE), None)

    def said(self, rollout: PolicyRollout, key: str) -> Word | None:
        """Return what somebody said before of the drivers that nodes are to get now; of others it counts for nothing."""
        word = _read(rollout, key)
        return word if any(counts_for(word, node) for node in self.nodes) else None


async def cases(client: Client, namespace: str, driver: str, verb: str) -> list[Case]:
    """Read the rollouts that are meant: those of all NVIDIADrivers, unless one is named.

    Raises:
        GpuwardError: there is no rollout, or the operator is in another namespace.
        InputError: there is no NVIDIADriver of that name, or drivers are not those of NVIDIADrivers.
    """
    _, chosen = await meant(client, driver, verb)
    look = Look(client, namespace)
    async with look.following():
        picture = look.picture(await look.leader())
    picture.refuse_elsewhere()
    waves = {each.driver: each for each in picture.plan.waves}
    upgrades = {policy.driver: policy for policy in picture.drivers.upgrades if not (policy.unowned or policy.gone)}
    found = ((rollout, rollout.view.name if rollout.driver else "") for rollout in chosen)
    nodes = {policy.driver: gather(picture.snapshot, policy) for policy in picture.drivers.upgrades}
    coming = comers(nodes.items(), lambda node: node)
    return [Case(rollout, upgrades[name], waves.get(name), picture, (*nodes[name], *_settled(coming.get(name, ()))))
            for rollout, name in found if name in upgrades]


def _settled(coming: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the nodes with what they will get where they go, as far as that is known."""
    return [node for node in map(as_there, coming) if node.moving is None]


async def approve(client: Client, namespace: str, wave: str, driver: str, *, dry_run: bool) -> Lines:
    """Approve of the wave that is done, and say what comes next; nothing is written where nothing waits for it.

    Raises as `cases`; InputError for a wave that no rollout has.
    """
    found = await cases(client, namespace, driver, "approve")
    _check(wave, found)
    by = await who(client)
    for case in found:
        awaited = case.awaited
        refused = _ended(case) or _not_to_approve(case, awaited, wave)
        if awaited is None or case.waves is None or refused:
            yield f"{case.rollout.title}: {refused}: nothing is written"
            continue
        word = Word(max(time_of(client), awaited.finished), by, case.waves.every)
        told = f"approved of wave {awaited.name}{_untried(awaited)}"
        async for line in _say(client, case, names.APPROVED, word, told, dry_run=dry_run):
            yield line
        yield f"Next: {_after(case, awaited)}"


async def promote(client: Client, namespace: str, wave: str, driver: str, *, dry_run: bool) -> Lines:
    """Let the next wave go: end the soak, or wait no longer for nodes that are not done. Raises as `approve`."""
    found = await cases(client, namespace, driver, "promote")
    _check(wave, found)
    by = await who(client)
    for case in found:
        awaited = case.awaited
        refused = _ended(case) or _not_to_promote(case, awaited, wave)
        if awaited is None or case.waves is None or refused:
            yield f"{case.rollout.title}: {refused}: nothing is written"
            continue
        left = awaited.waiting if awaited.phase not in _DONE else ()
        if len(left) > MOST_NODES:
            raise GpuwardError(f"{len(left)} nodes of wave {awaited.name} are not done, and {MOST_NODES} can be left out: "
                               "take the wave from the RolloutPolicy")
        word = Word(max(time_of(client), awaited.finished), by, case.waves.every, left)
        without = f", without waiting for {listed(left)}" if left else _DONE.get(awaited.phase, "")
        told = f"promoted from wave {awaited.name}{without}"
        async for line in _say(client, case, names.PROMOTED, word, told, dry_run=dry_run):
            yield line
        approval = _wants_approval(case, awaited.name) and _approved(case, awaited) is None
        yield "Next: " + (f"it waits for approval: gpuward approve{case.option}" if approval else _go(case))


async def abort(client: Client, namespace: str, driver: str, *, dry_run: bool) -> Lines:
    """End the rollouts of the drivers that nodes are to get now. Raises as `cases`."""
    by = await who(client)
    for case in await cases(client, namespace, driver, "abort"):
        targets = targets_of_rollout(case.behind)
        if not targets:
            yield f"{case.rollout.title}: there is nothing to abort, as no node is to get another driver: nothing is written"
            continue
        if (before := rollout_aborted(case.behind, case.policy)) is not None:
            yield f"{case.rollout.title}: aborted already, by {before.by} at {format_time(before.at)}: nothing is written"
            continue
        word = Word(max(time_of(client), _resumed(case.rollout) + 0.001), by, (*targets, *versions_named(case.behind)))
        async for line in _say(client, case, names.ABORTED, word, "aborted", dry_run=dry_run):
            yield line
        yield f"Next: {await _way_back(client, case)}"


def _ended(case: Case) -> str:
    """Say that the rollout was aborted, so that no word lets a node start; else nothing."""
    before = rollout_aborted(case.behind, case.policy) if case.behind else None
    if before is None:
        return ""
    return f"the rollout was aborted by {before.by} at {format_time(before.at)}, and `{case.rollout.resume}` lets it go on"


def without_abort(rollout: PolicyRollout) -> Patch | None:
    """Return the patch that takes an abort back, None where there is none."""
    return {"metadata": {"annotations": {names.ABORTED: None}}} if annotation(rollout.view.body, names.ABORTED) else None


async def who(client: Client) -> str:
    """Return who the API server takes the user for or, where it does not say, the user of this machine."""
    review = {"apiVersion": resources.OWN_REVIEWS.api_version, "kind": "SelfSubjectReview", "metadata": {}}
    try:
        told = (await client.create(resources.OWN_REVIEWS, review)).object()
        name = str(told.get("status", {}).get("userInfo", {}).get("username") or "")
    except ApiError:
        name = ""
    return name or getpass.getuser()


async def _say(client: Client, case: Case, key: str, word: Word, told: str, *, dry_run: bool) -> Lines:
    """Write an annotation onto the object as it is by then: nodes that were left out before stay so."""
    def patch_of(rollout: PolicyRollout) -> Patch:
        before = case.said(rollout, key)
        left = {*word.nodes, *(before.nodes if before is not None else ())}
        return {"metadata": {"annotations": {key: encode_word(msgspec.structs.replace(word, nodes=tuple(sorted(left))))}}}

    if dry_run:
        yield f"{case.rollout.title}: would be {told}; a dry run writes nothing"
        return
    await change(client, case.rollout, patch_of)
    yield f"{case.rollout.title}: {told}, by {word.by} at {format_time(word.at)}, for {_drivers(word, case)}"


def _untried(wave: WaveStatus) -> str:
    if wave.total:
        return ""
    if wave.left:
        return f", whose nodes are left out ({listed(wave.left, MOST_NAMED)}): nobody has seen the driver run there"
    return ", which has no node: nothing has been tried"


def _drivers(word: Word, case: Case) -> str:
    """Name drivers by their versions, as far as these are known: what the word knows them by says nothing to people."""
    versions = {node.target: node.target_version for node in case.nodes if node.target_version}
    targets = [target for target in word.targets if not target.startswith(VERSION)]
    found = list(dict.fromkeys(versions.get(target, target) for target in targets))
    return f"driver {found[0]}" if len(found) == 1 else f"drivers {', '.join(found)}"


def _check(wave: str, found: Sequence[Case]) -> None:
    known = list(dict.fromkeys(one.name for case in found for one in case.policy.rollout.waves))
    if wave and wave not in known:
        fix = f"name one of {', '.join(known)}" if known else "leave it out: the RolloutPolicy has no waves"
        raise InputError("WAVE", wave, fix)


def _not_to_approve(case: Case, awaited: WaveStatus | None, wave: str) -> str:
    """Say why there is nothing to approve; nothing where there is."""
    if case.waves is None:
        return "there is nothing to approve, as the RolloutPolicy has no waves"
    if awaited is None:
        return "there is nothing to approve, as no node waits for a wave"
    if wave and wave != awaited.name:
        return f"there is nothing to approve of wave {wave}, as nodes wait for wave {awaited.name}"
    if not _wants_approval(case, awaited.name):
        return f"there is nothing to approve, as wave {awaited.name} asks for none"
    if awaited.phase is WavePhase.EMPTY:
        return (f"there is nothing to approve, as wave {awaited.name} has no node any more: label another one, or go on with "
                f"`gpuward promote{case.option}`")
    if awaited.phase not in (WavePhase.APPROVAL, WavePhase.SOAKS, WavePhase.ANALYSIS, WavePhase.ANALYSIS_FAILED):
        return f"there is nothing to approve yet, as {awaited.done} of {awaited.total} nodes of wave {awaited.name} are done"
    if (before := _approved(case, awaited)) is not None:
        return f"approved of already, by {before.by} at {format_time(before.at)}"
    return ""


def _approved(case: Case, awaited: WaveStatus) -> Word | None:
    """Return what somebody said who approved of a wave; None where nobody did, or not of what is to come."""
    before = case.said(case.rollout, names.APPROVED)
    return before if before is not None and before.at >= awaited.finished and is_about(before, case.behind) else None


def _wants_approval(case: Case, wave: str) -> bool:
    return any(one.approval for one in case.policy.rollout.waves if one.name == wave)


def _not_to_promote(case: Case, awaited: WaveStatus | None, wave: str) -> str:
    """Say why there is nothing to promote; nothing where there is."""
    if case.waves is None:
        return "there is nothing to promote, as the RolloutPolicy has no waves"
    if awaited is None:
        return "there is nothing to promote, as no node waits for a wave"
    if wave and wave != awaited.name:
        return f"there is nothing to promote from wave {wave}, as nodes wait for wave {awaited.name}"
    if awaited.phase is WavePhase.APPROVAL:
        return f"there is nothing to promote, as wave {awaited.name} waits for approval (gpuward approve{case.option})"
    return ""


def _after(case: Case, awaited: WaveStatus) -> str:
    if awaited.phase is WavePhase.ANALYSIS_FAILED:
        return f"nothing yet, as a check of wave {awaited.name} failed: gpuward explain NODE"
    if awaited.phase is WavePhase.ANALYSIS:
        return f"nodes of later waves start when the checks of wave {awaited.name} have passed"
    if awaited.soaks is not None and case.waves is not None:
        return f"nodes of later waves start when wave {awaited.name} has soaked, at {moment_in(awaited.soaks, case.waves.zone)}"
    return _go(case)


def _go(case: Case) -> str:
    if not case.policy.auto_upgrade:
        return f"nothing yet, as upgrades are off: gpuward resume{case.option}"
    return "nodes of the next wave start when their turn comes; `gpuward status` says what each waits for"


async def _way_back(client: Client, case: Case) -> str:
    name = case.rollout.view.name if case.rollout.driver else ""
    nodes = [node for node in await all_nodes(client) if not name or node.labels.get(names.DRIVER_OWNER) == name]
    back = [node.name for node in nodes if node.state in UNDISTURBED]
    ending = [node.name for node in nodes if node.state in IN_PROGRESS and node.state not in UNDISTURBED]
    told = "no node starts with it"
    told += f"; back into service, with the driver that they have, go {listed(back)}" if back else ""
    told += f"; under way, and to be finished: {listed(ending)}" if ending else ""
    return f"{told}. Ask for another driver, or let it go on with `gpuward resume{case.option}`"


def _read(rollout: PolicyRollout, key: str) -> Word | None:
    try:
        return read_word(rollout.view.body, key)
    except PolicyError:  # it counts as absent, and is replaced
        return None


def _resumed(rollout: PolicyRollout) -> float:
    try:
        return resumed_at(annotation(rollout.view.body, names.RESUMED_AT))
    except PolicyError:
        return 0.0
