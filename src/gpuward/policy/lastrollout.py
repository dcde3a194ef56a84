"""The last RolloutPolicy that could be followed, which the ClusterPolicy keeps in an annotation.

One that is deleted stays in force for a minute (`kube/lingering.py`), and does so where the operator is restarted within it.
Anybody may edit the annotation: what makes no sense in it counts as if it were not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuward import names
from gpuward.crd.keptspec import LONGEST
from gpuward.crd.rollout_conversion import typed_rollout
from gpuward.crd.rolloutpolicy import RolloutPolicy
from gpuward.model.views import PolicyView
from gpuward.policy.annotated import annotation
from gpuward.policy.rolloutpolicy import ActiveRollout


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    uid: str
    spec: dict[str, Any]


def rollout_to_remember(body: Mapping[str, Any], rollout: ActiveRollout) -> dict[str, str | None]:
    """Return the annotation of a ClusterPolicy if it is not as it should be, given the RolloutPolicy in force."""
    if rollout.view is not None and (rollout.view.gone or rollout.problems):
        return {}
    wanted = None if rollout.view is None else _encoded(rollout.view)
    return {names.VALID_ROLLOUT_POLICY: wanted} if annotation(body, names.VALID_ROLLOUT_POLICY) != (wanted or "") else {}


def last_rollout(body: Mapping[str, Any]) -> PolicyView | None:
    """Return the RolloutPolicy that a ClusterPolicy remembers."""
    text = annotation(body, names.VALID_ROLLOUT_POLICY)
    if not text or len(text) > LONGEST:
        return None
    try:
        kept = msgspec.json.decode(text, type=_Kept)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    head = {"apiVersion": RolloutPolicy.api_version, "kind": RolloutPolicy.kind, "metadata": {"name": kept.name}}
    body = {**head, "spec": kept.spec}
    policy, problems = typed_rollout(body)
    return PolicyView(name=kept.name, uid=kept.uid, body=body) if policy is not None and not problems else None


def _encoded(view: PolicyView) -> str | None:
    text = msgspec.json.encode(_Kept(view.name, view.uid, view.body.get("spec") or {}), order="deterministic")
    return text.decode() if len(text) <= LONGEST else None
