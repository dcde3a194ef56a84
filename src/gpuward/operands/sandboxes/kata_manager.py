"""State `state-kata-manager`: NVIDIA's operator no longer deploys it, and removes what earlier versions made."""

from __future__ import annotations

from gpuward.operands import rbac
from gpuward.operands.common_daemonset import ref
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json
from gpuward.operands.state import ObjectRef

NAME = "state-kata-manager"
APP = "nvidia-kata-manager"


def enabled(_ctx: Context) -> bool:
    """Tell whether the policy wants the Kata manager: never, whatever it says."""
    return False


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state has ever consisted of."""
    config_maps = (f"{APP}-config", f"{APP}-entrypoint")
    return (
        *rbac.access_refs(ctx.namespace, APP),
        *(ObjectRef("v1", "ConfigMap", ctx.namespace, name) for name in config_maps),
        ref(ctx.namespace, APP),
    )


def objects(_ctx: Context) -> list[Json]:
    """Return nothing: the state is never wanted."""
    return []
