"""`gpuward rehearse`: play a rollout on a copy of the cluster, and say what it comes to."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from gpuward.cli.capture import captured
from gpuward.cli.connect import WallClock, connected
from gpuward.cli.explanation import explained
from gpuward.cli.leader import find_leader
from gpuward.cli.leftout import as_captured, lacks, whole_policies
from gpuward.cli.look import Picture
from gpuward.cli.manifests import POLICIES, read_objects
from gpuward.cli.misspelt import warn_of
from gpuward.cli.plan import CHANGES, FAILED
from gpuward.cli.rehearsed import as_json, show
from gpuward.cli.targets import changes_to, check_version, merged
from gpuward.cli.terminal import say, say_json
from gpuward.cli.timeline import write_timeline
from gpuward.errors import InputError
from gpuward.kube import resources
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.policy.refused import refusals
from gpuward.rehearse.assumptions import Assumptions
from gpuward.rehearse.captured import Captured, Object, read_capture
from gpuward.rehearse.images import missing_images
from gpuward.rehearse.levers import levers
from gpuward.rehearse.loading import Loaded, loaded
from gpuward.rehearse.playing import HORIZON, Play
from gpuward.rehearse.results import NodeRun, Rehearsal, Run, trial
from gpuward.rehearse.watching import Watching
from gpuward.sandbox.cluster import Sandbox
from gpuward.wire.policies import oldest_first, policy_view
from kubesandbox.errors import ApiError
from kubesandbox.timeloop import run_virtual

MOST_EXPLAINED: Final = 20
"""Nodes left over for which it is worked out what would help."""
_RESOURCES: Final = {"ClusterPolicy": str(resources.CLUSTER_POLICIES), "NVIDIADriver": str(resources.NVIDIA_DRIVERS),
                     "RolloutPolicy": str(resources.ROLLOUT_POLICIES)}


class Options(msgspec.Struct, frozen=True):
    """Hold what a person asks for."""

    policies: tuple[str, ...] = ()
    version: str = ""
    source: Path | None = None
    """A capture; None for the live cluster."""
    assumed: Assumptions = Assumptions()
    runs: int = 5
    time: float = 300.0
    """Real seconds: no further run is begun that would not end within them."""
    horizon: float = HORIZON
    output: str = "text"
    svg: Path | None = None
    detailed: bool = False


def rehearse_rollout(kubeconfig: str | None, context: str | None, namespace: str, options: Options) -> None:
    """Rehearse, and print what came of it; exit with 2 where something would change, if that is asked for.

    Raises:
        InputError: an option cannot be used.
    """
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    check_version(options.version)
    if options.source is not None:
        found, whole, idle = read_capture(options.source), None, ""
    else:
        found, whole, idle = asyncio.run(_captured(kubeconfig, context, namespace))
    rehearsal = rehearsed(found, options, whole)
    if options.svg is not None:
        write_timeline(options.svg, rehearsal.first, found.manifest.at)
    if options.output == "json":
        say_json(as_json(rehearsal, found.manifest, options.assumed))
    else:
        show(rehearsal, found.manifest, options.assumed)
        if idle:
            say(idle)
    if rehearsal.problems:
        sys.exit(FAILED)
    if options.detailed and rehearsal.first.changes:
        sys.exit(CHANGES)


async def _captured(kubeconfig: str | None, context: str | None, namespace: str) -> tuple[Captured, list[Object], str]:
    async with connected(kubeconfig, context, lists_only=True) as (client, _):
        leader = await find_leader(client, namespace, WallClock())
        idle = f"none of this begins yet: {leader.message}" if leader.running is False else ""
        return await captured(client, namespace), await whole_policies(client), idle


def rehearsed(found: Captured, options: Options, whole: Sequence[Object] | None = None) -> Rehearsal:
    """Play the rollout as often as is asked for and there is time, and then what might shorten it.

    `whole` has the policies that were captured with all their values; None where these are not known.

    Raises:
        InputError: a file cannot be read or has no policy in it, or a policy is refused.
    """
    changes = _Changes(found, options, whole)

    async def load() -> Loaded:
        return await loaded(found, options.assumed, changes.apply)

    begins, missing = run_virtual(load, start=found.manifest.at), missing_images(found)
    play = Play(found.manifest, begins, changes.apply, options.assumed, options.horizon, missing)
    end = time.monotonic() + options.time
    seen: list[Watching] = []
    runs = [play.run(0, watched=seen.append)]
    for seed in range(1, options.runs if runs[0].changes else 1):
        if time.monotonic() + _slowest(runs) > end:
            break
        runs.append(play.run(seed))
    runs[0] = _with_remedies(runs[0], seen[0])
    trials = []
    for lever in levers(runs[0]):
        if time.monotonic() + _slowest(runs) > end:
            break
        trials.append(trial(lever.do, runs[0], play.run(0, also=lever.change)))
    problems = refusals(seen[0].drivers) if seen[0].drivers is not None else ()
    return Rehearsal(tuple(runs), tuple(one for one in trials if one is not None), problems, missing, changes.guessed)


def _slowest(runs: list[Run]) -> float:
    return max(run.took for run in runs)


def _with_remedies(run: Run, seen: Watching) -> Run:
    """Return a run with what would help the nodes that are left, as `gpuward explain` knows it."""
    left = [node.name for node in run.left][:MOST_EXPLAINED]

    def told(node: NodeRun) -> NodeRun:
        if node.name not in left or seen.snapshot is None or seen.drivers is None:
            return node
        picture = Picture(seen.snapshot, seen.drivers, seen.plan, seen.at)
        helps = tuple(f"{one.do} -> {one.then}" for one in explained(picture, node.name).remedies)
        return msgspec.structs.replace(node, remedies=helps)

    return msgspec.structs.replace(run, nodes=tuple(map(told, run.nodes)))


def _view(obj: Object, uid: str) -> PolicyView:
    return policy_view(msgspec.json.encode({**obj, "metadata": {"uid": uid, "generation": 1, **obj["metadata"]}}))


def _merge(patch: Mapping[str, Any], obj: Object) -> None:
    obj.update(merged(obj, patch))


class _Changes:
    """Do to the policies in a sandbox what is asked for."""

    def __init__(self, found: Captured, options: Options, whole: Sequence[Object] | None) -> None:
        self._options = options
        objects = [obj for obj in read_objects("--policy", options.policies) if obj["kind"] in POLICIES]
        warn_of(objects)
        there = {(obj["kind"], obj["metadata"]["name"]): obj for obj in
                 (whole if whole is not None else (each for name in _RESOURCES.values() for each in found.of(name)))}
        self._given = [as_captured(obj, there[key] if whole is not None else None)
                       if (key := (obj["kind"], obj["metadata"]["name"])) in there else obj for obj in objects]
        self.guessed = whole is None and any(lacks(obj) for obj in objects if (obj["kind"], obj["metadata"]["name"]) in there)
        """Whether values of files are taken for those that a capture lacks."""
        if options.policies and not self._given:
            raise InputError("--policy", ", ".join(options.policies), "name a file with a ClusterPolicy, a RolloutPolicy or an "
                             "NVIDIADriver in it")
        self._patches: Mapping[tuple[str, str], Mapping[str, Any]] = {}
        if options.version:
            image = found.manifest.images.get("DRIVER_IMAGE", "")
            self._patches = changes_to(self._policies(found), options.version, image)

    def _policies(self, found: Captured) -> Snapshot:
        """Return the policies as they are once those of the files are there."""
        views: dict[str, Any] = {}
        for kind, resource in _RESOURCES.items():
            given = [obj for obj in self._given if obj["kind"] == kind]
            named = {obj["metadata"]["name"] for obj in given}
            every = [*(obj for obj in found.of(resource) if obj["metadata"]["name"] not in named), *given]
            views[kind] = oldest_first(_view(obj, f"given-{number}") for number, obj in enumerate(every))
        return Snapshot(found.manifest.namespace, policies=views["ClusterPolicy"], drivers=views["NVIDIADriver"],
                        rollout_policies=views["RolloutPolicy"])

    def apply(self, sandbox: Sandbox) -> None:
        """Apply the files, and set the version.

        Raises:
            InputError: the API server would refuse a policy.
        """
        for obj in self._given:
            try:
                self._put(sandbox, obj)
            except ApiError as error:
                raise InputError("--policy", f"{obj['kind']} {obj['metadata']['name']}", str(error)) from error
        for (kind, name), patch in self._patches.items():
            sandbox.store.modify(_RESOURCES[kind], None, name, partial(_merge, patch))

    @staticmethod
    def _put(sandbox: Sandbox, obj: Object) -> None:
        meta = {key: obj["metadata"][key] for key in ("name", "labels", "annotations") if key in obj["metadata"]}
        there = sandbox.store.find(_RESOURCES[obj["kind"]], None, meta["name"])
        if there is not None:
            known = there["metadata"].get("annotations") or {}
            meta["annotations"] = {**known, **(meta.get("annotations") or {})}
        sandbox.apply({"apiVersion": obj.get("apiVersion"), "kind": obj["kind"], "metadata": meta, "spec": obj.get("spec") or {}})
