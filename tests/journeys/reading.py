"""What a person reads of a stage: `gpuward status` and `gpuward explain`, by a client that may only read."""

from __future__ import annotations

from typing import Any

from gpuward import names
from gpuward.cli.explanation import Explanation, explained
from gpuward.cli.look import Look, Picture
from gpuward.cli.status import as_json
from gpuward.kube.client import Client
from gpuward.model.explain import sentence
from tests.journeys.stage import Stage


async def picture(stage: Stage) -> tuple[Picture, dict[str, Any]]:
    """Return what a command sees of the cluster, and what `status -o json` says."""
    look = Look(Client(stage.sandbox.transport()), names.DEFAULT_NAMESPACE)
    async with look.following():
        leader = await look.leader()
        seen = look.picture(leader)
        return seen, as_json(seen, leader)


async def explanation(stage: Stage, node: str) -> Explanation:
    """Return what `explain` says of a node."""
    seen, _ = await picture(stage)
    return explained(seen, node)


def reason(told: Explanation) -> str:
    """Return why a node waits, in words; why it is unmanaged, where it is."""
    if told.status is None:
        return told.unmanaged
    return sentence(told.status.hold) if told.status.hold is not None else ""


def condition(stage: Stage, kind: str = "DriverUpgrade") -> tuple[str, str, str]:
    """Return status, reason and message of a condition of the ClusterPolicy; empty ones where it is not there."""
    conditions = stage.policy_status().get("conditions", ())
    return next(((one["status"], one["reason"], one["message"]) for one in conditions if one["type"] == kind), ("", "", ""))
