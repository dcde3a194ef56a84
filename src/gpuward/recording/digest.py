"""The digest of a plan: equal for equal plans, today and for a later gpuward whose types have more fields."""

from __future__ import annotations

import hashlib
from functools import cache

import msgspec

from gpuward.model.explain import arguments
from gpuward.model.plan import NodeStatus, Plan
from gpuward.recording.frame import recorded_actions

_encoder = msgspec.msgpack.Encoder(order="deterministic")


def digest(plan: Plan) -> str:
    """Return the digest of all that a plan says, but for actions that are not recorded: what these carry may be in no recording.

    Fields are named here, or left out where they have their default, so that one more does not change the digest of every plan.
    """
    counts = plan.counts
    what = (
        [(type(action).__name__, set_fields(action)) for action in recorded_actions(plan)],
        {name: _status(status) for name, status in plan.nodes.items()},
        plan.wake_at,
        (counts.total, counts.in_progress, counts.done, counts.failed, counts.available, counts.pending, counts.unavailable),
        plan.auto_upgrade,
    )
    return text_digest(what)


def text_digest(what: object) -> str:
    """Return the digest of plain values."""
    return hashlib.blake2b(_encoder.encode(what), digest_size=16).hexdigest()


def _status(status: NodeStatus) -> tuple[object, ...]:
    hold = status.hold
    held = (hold.reason, arguments(hold.what), hold.since, hold.until) if hold is not None else None
    return status.state, status.since, held, status.label, status.turn


def set_fields(struct: msgspec.Struct) -> dict[str, object]:
    """Return the fields that do not have their default."""
    values = ((name, getattr(struct, name), default) for name, default in _defaults(type(struct)))
    return {name: value for name, value, default in values if value != default}


@cache
def _defaults(struct: type[msgspec.Struct]) -> tuple[tuple[str, object], ...]:
    return tuple(
        (field.name, field.default_factory() if callable(field.default_factory) else field.default)
        for field in msgspec.structs.fields(struct)
    )
