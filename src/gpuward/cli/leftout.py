"""Read files with policies beside a capture, which lacks values: those that a file has are no change where they are there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuward.cli.slimming import slim_stack
from gpuward.errors import Forbidden, NotFound
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection

Object = dict[str, Any]

_KINDS: Final = {"ClusterPolicy": resources.CLUSTER_POLICIES, "NVIDIADriver": resources.NVIDIA_DRIVERS,
                 "RolloutPolicy": resources.ROLLOUT_POLICIES}


async def whole_policies(client: Client) -> list[Object]:
    """Return the policies of a cluster with all their values; those that cannot be read are missing."""
    found: list[Object] = []
    for kind, resource in _KINDS.items():
        try:
            async for raw in client.list(Selection(resource)):
                found.append({"apiVersion": resource.api_version, "kind": kind, **json.loads(bytes(raw))})
        except (NotFound, Forbidden):
            continue
    return found


def as_captured(given: Object, whole: Object | None) -> Object:
    """Return a policy of a file as a capture would have it: without the values that are those of the policy in the cluster.

    Where that is not known, `whole` is None, and all that a capture lacks counts as unchanged.
    """
    slim = slim_stack(given)
    spec = slim.get("spec") if whole is None else _unchanged(given.get("spec"), slim.get("spec"), whole.get("spec"))
    return {**given, "spec": spec}


def lacks(given: Object) -> bool:
    """Tell whether a capture would lack some of a policy."""
    return bool(given.get("spec") != slim_stack(given).get("spec"))


def _unchanged(given: Any, slim: Any, whole: Any) -> Any:
    """Return what is given, and as a capture would have it wherever it is what is in the cluster."""
    if given == whole:
        return slim
    if isinstance(given, Mapping) and isinstance(whole, Mapping):
        known = slim if isinstance(slim, Mapping) else {}
        return {key: _unchanged(each, known.get(key), whole.get(key)) for key, each in given.items()
                if key in known or each != whole.get(key)}
    if isinstance(given, list) and isinstance(whole, list) and isinstance(slim, list) and len(slim) == len(given):
        there = dict(zip(_names(whole), whole, strict=True))
        return [_unchanged(each, kept, there.get(name)) for name, each, kept in zip(_names(given), given, slim, strict=True)]
    return given


def _names(items: Sequence[Any]) -> list[str]:
    """Return what the items of a list go by: their names, if they have some, or their numbers."""
    return [str(each["name"]) if isinstance(each, Mapping) and "name" in each else f"#{number}"
            for number, each in enumerate(items)]
