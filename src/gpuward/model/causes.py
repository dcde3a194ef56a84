"""Make sentences of why a step failed for pods: a record keeps them as text."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward.model.counting import counted
from gpuward.model.explain import arguments, obstacle, sentence
from gpuward.model.obstacles import Obstacle
from gpuward.model.plan import Hold
from gpuward.model.uncordoned import Uncordoned
from gpuward.model.views import Ref
from gpuward.model.waits import ComesBack, OnPod


class StillThere(OnPod, frozen=True):
    """Say how it stands with a pod for which the time to be evicted is up."""

    deleting: bool
    refused: str | None
    returned: ComesBack | Uncordoned | None


def blocked(pods: Iterable[tuple[Ref, Obstacle]]) -> str:
    """Return the cause of a failure: pods that may not be evicted."""
    return "; ".join(f"pod {pod} cannot be evicted: {obstacle(why)}" for pod, why in pods)


def still_there(seconds: float, pods: Iterable[StillThere]) -> str:
    """Return the cause of a failure: pods that have not gone in time."""
    return f"after {int(seconds)} s these were still there: {', '.join(map(_still_there, pods))}"


def not_complete(seconds: float, pods: Iterable[Ref]) -> str:
    """Return the cause of a node that is given up: pods that may finish first and have not."""
    return f"after {int(seconds)} s these have not completed: {', '.join(map(str, pods))}"


def come_back(pod: Ref, lifted: int) -> str:
    """Return the cause of a failure: pods that came to the node whenever it had been emptied."""
    why = f", as somebody has lifted its cordon {_times(lifted)}" if lifted else ""
    return f"pods that use its GPUs come back to the cordoned node again and again{why}: {pod}"


def overdue(hold: Hold, seconds: float, *, ready: bool) -> str:
    """Return the cause of a failure: what was waited for did not come in time, on a node that is Ready or not."""
    return f"{'' if ready else 'the node is not Ready, '}still {sentence(hold)}, after {int(seconds)} s"


def still_offers(pod: str, seconds: float) -> str:
    """Return the cause of a failure: what offers the GPUs of a node whose driver goes has not stopped in time."""
    return f"{its_plugin(pod)} has not stopped after {int(seconds)} s"


def its_plugin(pod: str) -> str:
    """Return what such a cause begins with."""
    return f"its driver goes, and pod {pod}, which offers its GPUs,"


def restarted(pod: str, times: int) -> str:
    """Return the cause of a failure: a driver pod that ends again and again."""
    return f"driver pod {pod} restarted {_times(times)}"


def _times(count: int) -> str:
    return f"{count} time{'' if count == 1 else 's'}"


def unchangeable(message: str) -> str:
    """Return the cause of a failure: the node may not be changed."""
    return f"the API server refuses to change the node: {message}"


def _still_there(pod: StillThere) -> str:
    if pod.deleting:
        return f"{pod.pod} (terminating)"
    if pod.refused is not None:
        return f"{pod.pod} ({pod.refused})"
    if pod.returned:
        lifted = isinstance(pod.returned, Uncordoned)
        told = "somebody has lifted the cordon {times:time|times}" if lifted else "{owner} put pods back {times:time|times}{why}"
        return f"{pod.pod} ({counted(told, arguments(pod.returned))})"
    return str(pod.pod)
