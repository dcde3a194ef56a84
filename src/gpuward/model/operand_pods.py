"""Which pod of another operand than the driver fails on a node: the driver alone runs no GPU pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpuward import names
from gpuward.model.driver import is_driver_pod
from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.stuck import stuck_in
from gpuward.model.troubles import PodTrouble, trouble_of
from gpuward.model.views import PodView
from gpuward.model.waits import Starting

PATIENCE: Final = 300.0
"""Seconds in which a pod may get ready before anybody is told; one that crashes is told of at once."""
_WAITED_FOR: Final = (names.TOOLKIT_APP, names.VALIDATOR_APP)
"""Apps for which others wait, those first that the rest wait for."""


def unready_operands(pods: Sequence[PodView], namespace: str) -> tuple[PodView, ...]:
    """Return the pods of a node's operands but the driver that are not ready, the one to look at first before the others."""
    found = [pod for pod in pods if pod.namespace == namespace and not pod.ready and pod.of_daemonset
             and not (pod.deleting or pod.unheard or is_driver_pod(pod, namespace))]
    return tuple(sorted(found, key=_rank)) if found else ()


def _rank(pod: PodView) -> tuple[bool, int, str]:
    app = pod.labels.get("app", "")
    return trouble_of(pod) is None, _WAITED_FOR.index(app) if app in _WAITED_FOR else len(_WAITED_FOR), pod.name


def failing(operands: Sequence[PodView], now: float) -> tuple[Hold | None, float | None]:
    """Return what the first of them fails in, None while all may just be starting; and when that is over by time alone."""
    if not operands:
        return None, None
    overdue = [pod for pod in operands if _fails(pod) or now >= _since(pod) + PATIENCE]
    if not overdue:
        return None, min(map(_since, operands)) + PATIENCE
    first = overdue[0]
    return Hold(Starting(first.ref, Reason.OPERAND_FAILING, PodTrouble(stuck_in(first), 0)), _since(first)), None


def _fails(pod: PodView) -> bool:
    """Tell whether a pod does more than start: one that was started again, and runs, may get ready yet."""
    trouble = trouble_of(pod)
    return trouble is not None and bool(trouble.waiting)


def _since(pod: PodView) -> float:
    return pod.turned or pod.created


