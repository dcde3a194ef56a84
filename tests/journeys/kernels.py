"""Nodes that run another kernel, as their kubelet and discovery tell it."""

from __future__ import annotations

from gpuward import names
from tests.journeys.stage import Stage


async def runs_kernel(stage: Stage, node: str, kernel: str) -> None:
    """Let a node tell of another kernel, as after a reboot, while all that ran there runs on."""
    stage.sandbox.store.patch_status("nodes", None, node, lambda found: found["status"]["nodeInfo"].update(kernelVersion=kernel))
    await stage.label(node, names.NFD_KERNEL, kernel)
