"""Images of the GPU stack that a cluster cannot pull, by what its kubelets say: a rehearsal of these would promise too much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuward.rehearse.captured import Captured
from gpuward.rehearse.templates import PODS

_NOT_PULLED: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
"""Reasons for which a container waits whose image does not come."""


def missing_images(captured: Captured) -> tuple[str, ...]:
    """Return the images that a container waits for in vain, and that none has begun with on any node."""
    waiting: set[str] = set()
    there: set[str] = set()
    for pod in captured.of(PODS):
        if pod["metadata"]["namespace"] != captured.manifest.namespace:
            continue
        for image, state in _containers(pod):
            if (state.get("waiting") or {}).get("reason") in _NOT_PULLED:
                waiting.add(image)
            elif "running" in state or "terminated" in state:
                there.add(image)
    return tuple(sorted(waiting - there))


def _containers(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the image of each container, and how it stands."""
    status = pod.get("status") or {}
    for field in ("initContainers", "containers"):
        states = {one["name"]: one.get("state") or {} for one in status.get(f"{field.removesuffix('s')}Statuses") or ()}
        yield from ((one["image"], states.get(one["name"], {})) for one in pod["spec"].get(field) or ())
