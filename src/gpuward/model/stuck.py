"""Which pod of a DaemonSet that is not ready to look at first, where it is, and in what it is stuck."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpuward.model.troubles import trouble_of
from gpuward.model.views import PodView

_RUNS: Final = "runs, "
"""How the words for a container that runs begin."""
_NOT_STARTED = ("PodInitializing", "ContainerCreating")


class StuckPod(msgspec.Struct, frozen=True):
    """Name the pod to look at first of an operand that is not ready."""

    pod: str
    node: str
    container: str = ""
    """Such as `init container toolkit-validation (1 of 4)`; empty where its kubelet has not said."""
    why: str = ""
    """Such as `CrashLoopBackOff, 5 restarts`."""
    in_trouble: bool = False
    """Whether it may be more than a start that takes its time."""
    silent: bool = False
    """Whether its node says nothing, so that nobody can read what it has written."""

    def __str__(self) -> str:
        """Return the words for it."""
        joint = " " if self.why.startswith(_RUNS) else ", "
        return f"{self.node or 'no node'}: {joint.join(filter(None, (self.container, self.why))) or 'not started yet'}"


def stuck_pod(pods: Iterable[PodView]) -> StuckPod | None:
    """Return the pod to look at first: one that is in trouble before one that may just be starting, the oldest of them."""
    unready = [pod for pod in pods if not pod.ready and not pod.deleting]
    pod = min(unready, key=lambda pod: (pod.unheard or trouble_of(pod) is None, pod.created, pod.name), default=None)
    if pod is None:
        return None
    if pod.unheard:
        return StuckPod(pod.name, pod.node, "", "its node is not Ready", in_trouble=True, silent=True)
    troubled = trouble_of(pod) is not None
    if pod.progress is None or pod.turned_away:
        return StuckPod(pod.name, pod.node, "", pod.waiting, troubled)
    return StuckPod(pod.name, pod.node, str(pod.progress), _why(pod), troubled)


def stuck_in(pod: PodView) -> str:
    """Say what a pod is stuck in, the same from one restart of a container to the next."""
    if pod.progress is None or pod.turned_away:
        return pod.waiting or "not started yet"
    if pod.progress.reason in _NOT_STARTED and not pod.begun:
        return "none of its containers has been started"
    return f"{pod.progress}: {_why(pod, counted=False)}"


def _why(pod: PodView, *, counted: bool = True) -> str:
    assert pod.progress is not None
    progress = pod.progress
    restarts = f"{progress.restarts} restart{'s' if progress.restarts > 1 else ''}" if progress.restarts and counted else ""
    ended = f"its last exit code was {progress.exit_code}" if progress.exit_code else ""
    return ", ".join(filter(None, (progress.reason or progress.runs, restarts, ended)))
