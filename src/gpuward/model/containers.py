"""How far the containers of a pod are that is not ready, for people who wait for it."""

from __future__ import annotations

import msgspec


class ContainerProgress(msgspec.Struct, frozen=True, gc=False):
    """Name the container that a pod waits for: the first that is not ready, init containers first."""

    name: str
    reason: str = ""
    """Why it does not run, such as ImagePullBackOff; empty while it runs, and where the kubelet does not say."""
    restarts: int = 0
    init: int = 0
    """Its number among the init containers, from 1; 0 for a regular container."""
    inits: int = 0
    """How many init containers the pod has."""
    exit_code: int | None = None
    """How it ended last, where it was started again since."""

    def __str__(self) -> str:
        """Return the words for it, such as `init container toolkit-validation (1 of 4)`."""
        return f"init container {self.name} ({self.init} of {self.inits})" if self.init else f"container {self.name}"
