"""What is known of a cluster when it is checked, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from gpuward.model.views import NodeView

Object: TypeAlias = Mapping[str, Any]


class Level(StrEnum):
    """Say how bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True):
    """Hold one line: what was found, and what to do about it."""

    check: str
    level: Level
    found: str
    fix: str = ""


class Unseen(msgspec.Struct, frozen=True):
    """Stand for facts that could not be read, and say why."""

    why: str


class Right(msgspec.Struct, frozen=True, order=True):
    """Name a right that the operator needs. Without a namespace it is one in all of them."""

    group: str
    resource: str
    verb: str
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        full = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {full}{f' {self.name}' if self.name else ''}"


class Rights(msgspec.Struct, frozen=True):
    """Say who was asked about, and what is missing."""

    subject: str
    is_account: bool
    """Whether it is the operator's ServiceAccount, not the one who asks."""
    asked: int
    missing: tuple[Right, ...] = ()
    can_do_without: bool = False
    """Whether the manifest for NVIDIA's chart gives all that is missing."""


class OtherOperator(msgspec.Struct, frozen=True):
    """Hold what a Lease says about an operator."""

    namespace: str
    message: str
    runs: bool


class Policy(msgspec.Struct, frozen=True):
    """Hold what is known of the ClusterPolicies and NVIDIADrivers."""

    name: str = ""
    problems: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Other ClusterPolicies."""
    driverless: bool = False
    """Whether drivers are left to NVIDIADrivers, and there is none."""
    unfollowed: tuple[str, ...] = ()
    """NVIDIADrivers that are there though drivers are the ClusterPolicy's."""
    absent: str = "there is no ClusterPolicy"
    """Why none is in force, where none is."""


class Named(msgspec.Struct, frozen=True):
    """Hold which objects a policy names, such as `ConfigMap a`, which are not there and which may not be read."""

    named: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """What pods are to be made with and that is not there: nothing is refused for it before there are pods."""


class Inspected(msgspec.Struct, frozen=True, kw_only=True):
    """Hold all that is known."""

    namespace: str
    version: str = ""
    ahead: float | None = None
    """Seconds by which this machine's clock is ahead of the API server's; None where the server does not tell."""
    wanted_crds: tuple[Object, ...] = ()
    crds: Mapping[str, Object | Unseen] = {}
    """Those that are there, by name, and those that could not be read."""
    place: Object | Unseen | None = None
    """The namespace."""
    rights: Rights | Unseen = Unseen("nobody asked")
    webhooks: tuple[Object, ...] | Unseen = ()
    """Configurations of webhooks, validating and mutating."""
    operators: tuple[OtherOperator, ...] | Unseen = ()
    deployments: tuple[Object, ...] | Unseen = ()
    operator_pods: tuple[Object, ...] | Unseen = ()
    """Pods with the operators' label, in the namespaces of their Deployments."""
    hook_pods: tuple[Object, ...] | Unseen = ()
    """Pods of the Jobs that helm starts before and after the operator."""
    runtime_classes: tuple[Object, ...] | Unseen = ()
    nodes: tuple[NodeView, ...] | Unseen = ()
    policy: Policy | Unseen = Policy()
    named: Named | Unseen = Named()
    unsupported: tuple[str, ...] = ()
    """What is there that NVIDIA's operator follows, and gpuward does not."""


def unseen(check: str, what: Unseen) -> Finding:
    """Say that something could not be looked at."""
    return Finding(check, Level.WARN, f"not known: {what.why}", "look with more rights")
