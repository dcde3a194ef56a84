"""Where the environment variable NVIDIA_VISIBLE_DEVICES gives a container devices, though it asks Kubernetes for none."""

from __future__ import annotations

from gpuward import names
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView


def spares_default_runtime(snapshot: Snapshot) -> bool:
    """Tell whether the container toolkit that we deploy leaves the nodes' default runtime as it is."""
    return any(ds.name == names.TOOLKIT_APP and ds.namespace == snapshot.namespace and ds.spares_default_runtime
               for ds in snapshot.daemonsets)


def heeds_variable(node: NodeView | None, spared: bool) -> bool:
    """Tell whether a node's runtime may heed the variable in any container, given what `spares_default_runtime` says.

    Only a default runtime of NVIDIA's does. What nobody of ours has set up cannot be known, and may be one.
    """
    ours = node is not None and node.labels.get(names.DEPLOY_TOOLKIT, "false") != "false"
    return not (spared and ours)
