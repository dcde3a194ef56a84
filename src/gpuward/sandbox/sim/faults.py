"""What can be made to go wrong in the sandbox, on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from gpuward.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


class FaultKind(StrEnum):
    """Name the faults of pods."""

    DRIVER_CRASH = "driver-crash"
    """The driver container exits with an error while it installs."""
    DRIVER_NEVER_READY = "driver-never-ready"
    """The driver container runs, and its startup probe never succeeds."""
    VALIDATOR_NEVER_READY = "validator-never-ready"
    """The validator's steps never come to an end."""
    IMAGE_PULL = "image-pull"
    """Images cannot be pulled: ImagePullBackOff."""
    STUCK_TERMINATING = "stuck-terminating"
    """The pod does not end when it is told to, grace period or not."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Say what goes wrong, and where: shell patterns on the node's name, the pod's name and the container's image."""

    kind: FaultKind
    node: str = "*"
    pod: str = "*"
    image: str = "*"

    def __post_init__(self) -> None:
        for field in ("node", "pod", "image"):
            if not getattr(self, field):
                raise InputError(f"fault.{field}", "", 'give a name or a pattern; "*" means every one')


class Faults:
    """Hold the faults that are in force; a change of them is told to the kubelets."""

    def __init__(self) -> None:
        self._active: list[Fault] = []
        self._listeners: list[Callable[[Fault], None]] = []

    def listen(self, callback: Callable[[Fault], None]) -> None:
        """Call back whenever a fault begins or ends."""
        self._listeners.append(callback)

    def add(self, fault: Fault) -> None:
        """Let a fault begin."""
        self._active.append(fault)
        self._tell(fault)

    def clear(self, fault: Fault | None = None) -> None:
        """Let a fault end, or all of them."""
        gone = [found for found in self._active if fault is None or found == fault]
        self._active = [found for found in self._active if found not in gone]
        for found in gone:
            self._tell(found)

    def hits(self, kind: FaultKind, node: str, pod: str, image: str = "") -> bool:
        """Tell whether a fault of this kind is in force for a container of a pod on a node."""
        return any(
            fault.kind is kind and fnmatchcase(node, fault.node) and fnmatchcase(pod, fault.pod)
            and fnmatchcase(image, fault.image) for fault in self._active)

    def _tell(self, fault: Fault) -> None:
        for callback in self._listeners:
            callback(fault)
