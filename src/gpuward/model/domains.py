"""Nodes that break together: an NVLink domain, a rack or a zone, by the value of a label, and how many a rollout may disturb."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from gpuward.model.reasons import Reason
from gpuward.model.record import Record
from gpuward.model.views import NodeView


class DomainMode(StrEnum):
    """Say what is bounded."""

    SPREAD = "Spread"
    """The nodes of one domain that are out of service at once."""
    WHOLE = "Whole"
    """The domains that have nodes out of service at once; one that was begun is finished before another."""


class DomainSettings(msgspec.Struct, frozen=True):
    """Hold by which label nodes are in domains, and how many of what may be out of service."""

    key: str
    mode: DomainMode = DomainMode.SPREAD
    max: int = 1


class LargeDomain(msgspec.Struct, frozen=True):
    """Name a domain that is to be upgraded whole, and has more nodes than a limit of the fleet lets go at once."""

    name: str
    size: int


class DomainLimit(msgspec.Struct, frozen=True):
    """Wait until fewer nodes of a domain, or fewer domains, are out of service."""

    reason: Literal[Reason.DOMAIN_LIMIT, Reason.DOMAIN_BROKEN]
    domain: str
    """The node's own."""
    used: int
    limit: int
    nodes: tuple[str, ...]
    """Some of those out of service."""
    domains: tuple[str, ...] = ()
    """Some of the domains that count, where domains are counted."""
    noticed: int = 0
    """How many of these nodes are in service yet, and have a place as they were given notice."""


def remembered(key: str, value: str) -> str:
    """Return a domain as a node's record has it: that of another label is none of this one."""
    return f"{key}={value}"


def is_known(node: NodeView, key: str) -> bool:
    """Tell whether a node has the label by which domains go, or had it when it served last."""
    record = node.record
    return bool(node.labels.get(key)) or (record is not None and record.domain.startswith(remembered(key, "")))


def domains_of(node: NodeView, record: Record, key: str) -> tuple[str, ...]:
    """Return the domains that a node is in: by its label, and by what it was in when it served last. One that it is in by neither
    is its own, by a name that no label has.

    GPU feature discovery takes its labels away with the driver, and people may edit others while a node is out of service.
    """
    label, known = node.labels.get(key, ""), record.domain.removeprefix(remembered(key, ""))
    known = known if record.domain != known else ""
    found = tuple(dict.fromkeys(value for value in (label, known) if value))
    return found or (f"node/{node.name}",)
