"""What stops a rollout and only the operator's memory knows, read from what it says: the plan that is worked out here must not be
another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gpuward.model.driver import driver_daemonsets
from gpuward.model.driver_images import DriverImages, missing_in
from gpuward.model.edits import FIGHT
from gpuward.model.reasons import Reason
from gpuward.model.sentences import SENTENCES
from gpuward.model.snapshot import Edit, Refusal, Snapshot
from gpuward.model.views import PolicyView
from gpuward.operands.rollout import CONDITION
from gpuward.policy.nvidiadrivers import PoliciesInForce

_NAME: Final = r"\S+"
_FIELDS: Final = {"by": "[^;]+", "message": ".+"}
"""How what a sentence leaves open looks, if it is no name."""


def _read_back(reason: Reason) -> re.Pattern[str]:
    """Return what finds the sentence of a reason in a longer text."""
    words = re.split(r"\{(\w+)\}", SENTENCES[reason])
    parts = (f"(?P<{word}>{_FIELDS.get(word, _NAME)})" if place % 2 else re.escape(word) for place, word in enumerate(words))
    return re.compile("(?:^|; )" + "".join(parts), re.DOTALL)


_SAID: Final = {reason: _read_back(reason)
                for reason in (Reason.REFUSED_ELSEWHERE, Reason.EVICTION_FORBIDDEN, Reason.TEMPLATE_EDITED)}


def remembered(snapshot: Snapshot, policies: PoliciesInForce, now: float) -> Snapshot:
    """Return the facts with what the operator says that it was refused, who edits its DaemonSets, and what images are missing."""
    refusals, edits = dict(snapshot.refusals), dict(snapshot.edits)
    missing = dict[str, str]()
    for message in _messages(policies):
        missing |= missing_in(message)
        for reason, sentence in _SAID.items():
            if (found := sentence.search(message)) is not None:
                told = found.groupdict()
                if reason is Reason.TEMPLATE_EDITED:
                    edits |= {ds.uid: Edit(now, FIGHT, told["by"], stands=True) for ds in snapshot.daemonsets
                              if ds.name == told["daemonset"]}
                else:
                    refusals |= {uid: Refusal(now, 1, told["message"]) for uid in _refused(snapshot, told)}
    if missing:
        there = {image for ds in driver_daemonsets(snapshot) for image in ds.images} - missing.keys()
        snapshot = msgspec.structs.replace(snapshot, images=DriverImages(missing, frozenset(there)))
    if not (refusals or edits):
        return snapshot
    return msgspec.structs.replace(snapshot, refusals=refusals, edits=edits)


def _refused(snapshot: Snapshot, told: Mapping[str, str]) -> Iterator[str]:
    """Yield the uids of the pods that may not go: the one that is named, or all of a namespace on the node."""
    for pod in snapshot.pods.get(told["node"], ()):
        if not pod.deleting and ((str(pod.ref) == told["pod"]) if "pod" in told else pod.namespace == told["namespace"]):
            yield pod.uid


def _messages(policies: PoliciesInForce) -> Iterator[str]:
    """Yield what the conditions of the policies in force say of rollouts that are not done, but for what an edit overtook."""
    view = policies.policy.view
    views: list[PolicyView] = [view] if view is not None else []
    for each in (*views, *(one.view for one in policies.active if policies.in_force)):
        conditions: list[dict[str, Any]] = (each.body.get("status") or {}).get("conditions") or []
        for one in conditions:
            current = one.get("observedGeneration") in (None, each.generation)
            if one.get("type") == CONDITION and one.get("status") == "False" and current:
                yield str(one.get("message") or "")
