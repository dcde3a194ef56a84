"""Which cordons are a driver manager's. That of gpuward's carries a note, which stays where the driver manager is killed, and
people may lift that cordon and make one of their own while nobody looks. That of NVIDIA's managedFields alone tell.
"""

from __future__ import annotations

from gpuward import names
from gpuward.model.pauses import restore_labels
from gpuward.model.views import NodeView


def is_driver_managers(node: NodeView) -> bool:
    """Tell whether a node's cordon is for sure that of a driver manager: managedFields name NVIDIA's, or the note of gpuward's is
    there, and they name us or, where they are silent, the labels are still in the pause that goes with it.
    """
    if is_of_nvidias(node):
        return True
    if not node.unschedulable or names.DRIVER_MANAGER_CORDON not in node.annotations:
        return False
    if node.cordoners:
        return not is_somebody_elses(node)
    return names.DRIVER_MANAGER_PAUSE in node.annotations and bool(restore_labels(node.labels))


def is_somebody_elses(node: NodeView) -> bool:
    """Tell whether managedFields say that the cordon under the driver manager's note is another one, or somebody else's too."""
    return any(each != names.FIELD_MANAGER for each in node.cordoners)


def is_of_nvidias(node: NodeView) -> bool:
    """Tell whether a node's cordon is that of NVIDIA's driver manager, and nobody else's."""
    return node.unschedulable and node.cordoners == (names.NVIDIAS_DRIVER_MANAGER,)
