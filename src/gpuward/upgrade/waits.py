"""What a node waits for while its driver, and then a validator, has yet to get ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.stuck import stuck_in
from gpuward.model.troubles import PodTrouble, trouble_of
from gpuward.model.views import PodView
from gpuward.model.waits import OperandPod, Plain, Starting
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.in_use import running_under

MADE_WITHIN: Final = 300.0
"""Seconds in which an old pod ends and a DaemonSet makes the next, before people are told that there is none."""
_MADE: Final = frozenset({Reason.DRIVER_POD_MISSING, Reason.VALIDATOR_MISSING})


def driver_starting(node: NodeFacts, driver: PodView, since: float) -> Hold:
    """Say that the driver pod is not ready, and what is wrong with it if something is."""
    if node.unplaced and driver.waiting:
        return Hold(Starting(driver.ref, Reason.DRIVER_UNPLACED, _seen(driver)), since)
    if node.trouble and (users := running_under(node)):
        return Hold(Starting(driver.ref, Reason.DRIVER_IN_USE, node.trouble, tuple(pod.ref for pod in users)), since)
    if node.trouble:
        return Hold(Starting(driver.ref, Reason.DRIVER_FAILING, node.trouble), since)
    return Hold(Starting(driver.ref, Reason.DRIVER_STARTING, _seen(driver)), since)


def settling(node: NodeFacts, since: float) -> Hold:
    """Say why it is not known which driver the node should have."""
    return node.edited or Hold(Plain(Reason.TEMPLATE_SETTLING), since)


def pod_missing(node: NodeFacts, since: float) -> Hold:
    """Say that the node has no driver pod, and whether a DaemonSet is to make one."""
    return Hold(node.unserved or Plain(Reason.DRIVER_POD_MISSING, taints=tuple(map(str, node.repels))), since)


def lasting(hold: Hold, now: float) -> tuple[Hold, float | None]:
    """Return the hold of a node in mid-upgrade, marked if its driver or validator pod should long have been there, and when to
    look again.
    """
    if not isinstance(hold.what, Plain) or hold.reason not in _MADE:
        return hold, None
    until = hold.since + MADE_WITHIN
    if now < until:
        return hold, until
    return msgspec.structs.replace(hold, what=msgspec.structs.replace(hold.what, lasts=True)), None


def unconfirmed(node: NodeFacts, stale: Sequence[PodView], since: float) -> Hold:
    """Say what has to come before the driver counts as validated; `stale` are validator pods that have yet to be replaced."""
    if not node.driver_ready and node.driver is not None:
        return driver_starting(node, node.driver, since)
    if stale:
        return Hold(OperandPod(stale[0].ref, Reason.VALIDATOR_REPLACING), since)
    unready = next((pod for pod in node.live_validators if not pod.ready), None)
    if unready is None:
        return Hold(Plain(Reason.VALIDATOR_MISSING), since)
    return Hold(Starting(unready.ref, Reason.VALIDATOR_STARTING, _before(node, unready) or _seen(unready)), since)


def _before(node: NodeFacts, validator: PodView) -> PodTrouble | None:
    """Say which operand fails that the validator waits for, such as the container toolkit."""
    first = next(iter(node.operands), validator)
    if first.ref == validator.ref or trouble_of(first) is None:
        return None
    return PodTrouble(f"pod {first.name} is not ready: {stuck_in(first)}", validator.restarts)


def _seen(pod: PodView) -> PodTrouble:
    return PodTrouble(pod.waiting, pod.restarts)
