"""What a node waits for while its driver, and then a validator, has yet to get ready."""

from __future__ import annotations

from collections.abc import Sequence

from gpuward.model.plan import Hold, Reason
from gpuward.model.views import PodView
from gpuward.upgrade.facts import NodeFacts


def driver_starting(node: NodeFacts, driver: PodView, since: float) -> Hold:
    """Say that the driver pod is not ready, and what is wrong with it if something is."""
    if node.trouble:
        return Hold(Reason.DRIVER_FAILING, {"pod": driver.name, "trouble": node.trouble}, since)
    return Hold(Reason.DRIVER_STARTING, _pod(driver), since)


def unconfirmed(node: NodeFacts, stale: Sequence[PodView], since: float) -> Hold:
    """Say what has to come before the driver counts as validated; `stale` are validator pods that have yet to be replaced."""
    if not node.driver_ready and node.driver is not None:
        return driver_starting(node, node.driver, since)
    if stale:
        return Hold(Reason.VALIDATOR_REPLACING, {"pod": stale[0].name}, since)
    unready = next((pod for pod in node.live_validators if not pod.ready), None)
    return Hold(Reason.VALIDATOR_MISSING, {}, since) if unready is None else Hold(Reason.VALIDATOR_STARTING, _pod(unready), since)


def _pod(pod: PodView) -> dict[str, object]:
    restarts = f"{pod.restarts} restarts" if pod.restarts else ""
    what = ", ".join(filter(None, (pod.waiting, restarts)))
    return {"pod": pod.name, "waiting": f" ({what})" if what else ""}
