"""What a custom resource asked for when it could be followed last: its whole spec, in an annotation.

While it cannot be followed, what is missing is made from that: a DaemonSet for another operating system or kernel, or an object
that somebody deleted. Anybody may edit the annotation: what is not valid in it counts as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from gpuward import names
from gpuward.crd import decode
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.keptspec import LONGEST, spec_to_keep
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.errors import PolicyError
from gpuward.policy.annotated import annotation

R = TypeVar("R", ClusterPolicy, NVIDIADriver)


def last_valid(body: Mapping[str, Any], kind: type[R], rules: Callable[[R], list[PolicyError]]) -> R | None:
    """Return a custom resource as it was when it could be followed last, if it remembers that and it can be followed still."""
    text = annotation(body, names.VALID_SPEC)
    if not text or len(text) > LONGEST:
        return None
    try:
        spec = msgspec.json.decode(text, type=dict[str, Any])
        found, problems = decode.typed({**body, "spec": spec}, kind)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return found if found is not None and not problems and not rules(found) else None


def to_remember(body: Mapping[str, Any], settings: str) -> dict[str, str | None]:
    """Return the annotations of a custom resource that can be followed and are not as they should be, given its settings."""
    wanted = {names.VALID_UPGRADE_POLICY: settings, names.VALID_SPEC: spec_to_keep(body)}
    return {key: text for key, text in wanted.items() if annotation(body, key) != (text or "")}
