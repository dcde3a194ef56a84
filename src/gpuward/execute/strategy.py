"""See to it that a DaemonSet whose pods nobody but us may replace stays one.

A driver DaemonSet has the strategy OnDelete. A webhook of the cluster may make another one of it in the very write that brings
another driver: its controller would replace all driver pods at once then, under the pods that use their GPUs. A dry run passes
the same webhooks, and tells before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuward import errors
from gpuward.kube.http.client import Answer, Client
from gpuward.kube.resources import GVR

_OURS: Final = "OnDelete"


async def check_strategy(client: Client, gvr: GVR, body: Mapping[str, Any], *, is_new: bool) -> None:
    """Refuse to write a DaemonSet whose pods would not be left to us; one with another strategy is none of these.

    Raises:
        errors.Invalid: the cluster makes another strategy of it.
        errors.ApiError, errors.Unreachable: the dry run ends as the write would.
    """
    if body["kind"] != "DaemonSet" or _strategy(body) != _OURS:
        return
    try:
        answer = await (client.create if is_new else client.replace)(gvr, body, dry_run=True)
    except errors.BadRequest:  # so kube-apiserver says that a webhook takes no dry runs; the write tells what else it may be
        return
    _judge(answer)


async def check_patch(client: Client, gvr: GVR, name: str, patch: Mapping[str, Any], namespace: str) -> None:
    """Refuse a patch of a DaemonSet by which its pods would be left to us no more; also one that leaves the strategy alone passes
    the webhooks, and its pods may be those of an earlier driver still.

    Raises:
        errors.Invalid: the cluster makes another strategy of it.
        errors.ApiError, errors.Unreachable: the dry run ends as the patch would.
    """
    try:
        answer = await client.patch_merge(gvr, name, patch, namespace, dry_run=True)
    except errors.BadRequest:
        return
    if _strategy(answer.object()) != _OURS and _strategy((await client.get(gvr, name, namespace)).object()) == _OURS:
        _judge(answer)


def _judge(answer: Answer) -> None:
    if (found := _strategy(answer.object())) != _OURS:
        raise errors.Invalid(
            f"a webhook makes {found or 'nothing'} of its updateStrategy {_OURS}, by which its pods, and the drivers with them, "
            "would be replaced at once under pods that use their GPUs: leave this DaemonSet out of that webhook")


def _strategy(body: Mapping[str, Any]) -> str:
    return str(((body.get("spec") or {}).get("updateStrategy") or {}).get("type") or "")
