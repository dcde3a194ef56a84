"""The manager of confidential computing: as it starts it may take the GPUs of its host from vfio-pci and reset them, to set
another mode. So it comes to no host whose GPUs somebody uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from gpuward import names
from gpuward.model.views import NodeView, PodView, Ref

DEPLOY_CC_MANAGER: Final = names.DEPLOY_PREFIX + "cc-manager"


def is_to_wait(pods: Iterable[PodView], users: Collection[Ref], namespace: str) -> bool:
    """Tell whether it is to wait for the users of a host's GPUs, as no pod of it is there yet."""
    return bool(users) and not any(pod.namespace == namespace and not pod.finished and
                                   pod.labels.get("name") == names.CC_MANAGER_APP for pod in pods)


def may_come(node: NodeView) -> bool:
    """Tell whether it comes to a node by its label, which is not of somebody's own making."""
    return node.labels.get(DEPLOY_CC_MANAGER) in (None, "", "true")
