"""How far the containers of a pod are that is not ready, for people who wait for it."""

from __future__ import annotations

import hashlib

import msgspec

from gpuward.model.taints import Toleration


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

    @property
    def runs(self) -> str:
        """Say that it runs, and what it is waited for."""
        return "runs, and has not ended" if self.init else "runs, but is not ready"


class Pull(msgspec.Struct, frozen=True, gc=False):
    """Name an image that a container needs, and when its kubelet asks the registry for it."""

    container: str
    image: str
    policy: str = ""


class PodShape(msgspec.Struct, frozen=True, gc=False):
    """Hold of a DaemonSet's template what pulling the images of its pods depends on."""

    pulls: tuple[Pull, ...] = ()
    """The regular containers' first, as the driver's image is the first of theirs; each image once."""
    tolerations: tuple[Toleration, ...] = ()

    @property
    def digest(self) -> str:
        """Return what is another one for other images."""
        told = sorted((pull.image, pull.policy) for pull in self.pulls)
        return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]


class PullProgress(msgspec.Struct, frozen=True, gc=False):
    """Say how far a pod is that only has images pulled."""

    there: bool = False
    """Whether all of them are on its node."""
    trouble: str = ""
    """Why they are not, where its kubelet says that something is wrong."""
