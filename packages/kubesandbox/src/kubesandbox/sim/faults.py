"""What can be made to go wrong in the sandbox, on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kubesandbox.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


class FaultKind(StrEnum):
    """Name the faults that a pod of any kind can have; a plug-in has more."""

    IMAGE_PULL = "image-pull"
    """Images cannot be pulled: ImagePullBackOff."""
    STUCK_TERMINATING = "stuck-terminating"
    """The pod does not end when it is told to, grace period or not."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Say what goes wrong, and where: shell patterns on the names of node, pod and namespace and on the container's image.

    `kind` is a FaultKind, or what a plug-in's programs ask for. A pattern of namespaces that begins with `!` means all others.
    """

    kind: str
    node: str = "*"
    pod: str = "*"
    image: str = "*"
    namespace: str = "*"

    def __post_init__(self) -> None:
        for field in ("node", "pod", "image", "namespace"):
            if not getattr(self, field):
                raise InputError(f"fault.{field}", "", 'give a name or a pattern; "*" means every one')

    def meets(self, node: str, pod: str, image: str, namespace: str) -> bool:
        """Tell whether this is about a container of a pod on a node."""
        others = self.namespace.startswith("!")
        return fnmatchcase(node, self.node) and fnmatchcase(pod, self.pod) and fnmatchcase(image, self.image) and (
            fnmatchcase(namespace, self.namespace.removeprefix("!")) is not others)


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

    def hits(self, kind: str, node: str, pod: str, image: str = "", namespace: str = "") -> bool:
        """Tell whether a fault of this kind is in force for a container of a pod on a node."""
        return any(fault.kind == kind and fault.meets(node, pod, image, namespace) for fault in self._active)

    def _tell(self, fault: Fault) -> None:
        for callback in self._listeners:
            callback(fault)
