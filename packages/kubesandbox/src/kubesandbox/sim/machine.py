"""The machine under a node: what is true of a host whether there is a Node object for it or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubesandbox.sim.objects import Object, labels_of, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubesandbox.store import Store

KUBELET_LABELS: Final = ("kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os", "beta.kubernetes.io/arch",
                         "beta.kubernetes.io/os")
"""The labels with which a kubelet registers its node."""
NFD_PREFIX: Final = "feature.node.kubernetes.io/"
NFD_KERNEL: Final = NFD_PREFIX + "kernel-version.full"


class Machine:
    """Hold the state of one host that outlives its pods, and the Node object that shows it.

    `changed` is called after every change that somebody on the node may be waiting for.
    """

    def __init__(self, node: Object, changed: Callable[[], None]) -> None:
        self.node = name_of(node)
        self.kubelet_labels = {key: value for key, value in labels_of(node).items() if key in KUBELET_LABELS}
        self.features = {key: value for key, value in labels_of(node).items() if key.startswith(NFD_PREFIX)}
        """The labels that node feature discovery gives the node."""
        self.status: Object = node.get("status") or {}
        """What the kubelet reports of the machine when it registers."""
        self.withdrawn: dict[str, float] = {}
        """When the device plugin went that had offered a resource, while none offers it."""
        self.changed = changed
        self.images: set[str] = set()
        """The images that were pulled; those of pods that ran before the sandbox were before that."""

    def restart(self) -> None:
        """Boot anew: nothing that ran is there any more."""

    def knows(self, runtime_class: str) -> bool:
        """Tell whether the container runtime has the handler of a runtime class; empty is the runtime's own."""
        del runtime_class
        return True

    def prepares(self, pod: Object, store: Store) -> bool:
        """Tell whether the devices that a pod claims can be prepared; before that the kubelet starts none of its containers."""
        del pod, store
        return True
