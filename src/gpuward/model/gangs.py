"""Gangs: pods on several nodes that are one piece of work, such as a distributed training run. Evicting one of them costs all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from gpuward import names
from gpuward.model.reasons import Reason
from gpuward.model.views import Owner, Ref

LONGEST_UNTIL: Final = 366 * 24 * 3600.0
"""Seconds for which a gang may be spared."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?")
_FOR_ANY_OWNER: Final = "podgroup-"
"""What Volcano puts before the owner's uid in the name of the group that it makes for pods of none, such as a Deployment's."""


class GangSettings(msgspec.Struct, frozen=True):
    """Hold for how many seconds a gang that had to leave is not evicted again."""

    until: float = 24 * 3600.0


class LargeGang(msgspec.Struct, frozen=True):
    """Name a gang that has pods on more nodes than a limit of the fleet lets go at once."""

    name: str
    size: int


class GangAwaited(msgspec.Struct, frozen=True):
    """Wait until all nodes may start on which a gang has pods."""

    reason: ClassVar = Reason.GANG_AWAITED
    gang: str
    nodes: tuple[str, ...]
    """Some of the others."""
    others: int
    """How many there are."""
    node: str
    """One of them that may not start yet."""
    why: Reason
    """What it waits for."""


class GangSpared(msgspec.Struct, frozen=True):
    """Wait until a gang has ended that came here after it had to leave another node, or its time is up."""

    reason: ClassVar = Reason.GANG_SPARED
    gang: str
    pod: Ref
    node: str
    """The node that it had to leave last."""
    evicts: float
    """From when on it is evicted again."""


def gang_of(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], owner: Owner | None = None, pod_group: str = "",
) -> str:
    """Return the gang of a pod, as KIND NAMESPACE/NAME, or nothing. `pod_group` is the one that its spec names.

    Of several the widest counts: the one that starts anew as a whole. What is no name is as good as nothing.
    """
    for kind, name in _found(labels, annotations, owner, pod_group):
        if name and _NAME.fullmatch(name):
            return f"{kind} {namespace}/{name}"
    return ""


def _found(
    labels: Mapping[str, str], annotations: Mapping[str, str], owner: Owner | None, pod_group: str
) -> list[tuple[str, str]]:
    volcano = next(filter(None, map(annotations.get, names.VOLCANO_POD_GROUPS)), "")
    serves = annotations.get(names.KUEUE_SERVING) == "true"
    return [
        ("JobSet", labels.get(names.JOBSET_NAME, "")),
        ("LeaderWorkerSet", _group_of_leader(labels)),
        ("Kubeflow job", labels.get(names.TRAINING_JOB_NAME, "")),
        ("pod group", "" if serves else labels.get(names.KUEUE_POD_GROUP, "")),
        ("pod group", "" if owner is not None and volcano == _FOR_ANY_OWNER + owner.uid else volcano),
        ("pod group", labels.get(names.POD_GROUP, "")),
        ("pod group", pod_group),
        ("Job", labels.get(names.JOB_NAME, "") if names.JOB_INDEX in labels or names.JOB_INDEX in annotations else ""),
    ]


def _group_of_leader(labels: Mapping[str, str]) -> str:
    """Return the name of a group's leader: each group of a LeaderWorkerSet stands and falls by itself."""
    name, group = labels.get(names.LEADER_WORKER_SET_NAME, ""), labels.get(names.LEADER_WORKER_SET_GROUP, "")
    return f"{name}-{group}" if name and group.isdecimal() else ""


def of_compute_domain(namespace: str, uid: str) -> str:
    """Return the gang of pods that share an NVLink domain's memory by a ComputeDomain."""
    return f"ComputeDomain {namespace}/{uid}" if _NAME.fullmatch(uid) else ""
