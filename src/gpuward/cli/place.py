"""Whether the operator's namespace is the one that it should run in."""

from __future__ import annotations

from gpuward import names
from gpuward.errors import ApiError, Forbidden, InputError, NotFound
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.resources import CLUSTER_POLICIES, DAEMON_SETS, NAMESPACES
from gpuward.model.views import PolicyView
from gpuward.wire.policies import policy_view

_FIELD = "OPERATOR_NAMESPACE"


async def check_place(client: Client, namespace: str) -> None:
    """Make sure that the operator's namespace is there, and that no ClusterPolicy has its operands in another one.

    A program that is started by hand may name any namespace. In a wrong one it would make the whole stack once more, take roles
    away from the operands that run, and two drivers would fight for each node.

    Raises:
        InputError: the namespace cannot be used.
    """
    try:
        await client.get(NAMESPACES, namespace)
    except ApiError as error:  # whoever may not look is told so where it matters
        if error.is_of_a_missing_namespace:
            raise InputError(_FIELD, namespace, "there is no such namespace: set it to the one in which the operator and its "
                             "operands live") from None
    for view in await _policies(client):
        home = str((view.body.get("status") or {}).get("namespace") or "")
        if home not in ("", namespace) and await _has_operands(client, view, home):
            raise InputError(_FIELD, namespace, f"ClusterPolicy {view.name} has its operands in {home}: set it to that "
                             "namespace, or delete what is in there first")


async def _policies(client: Client) -> list[PolicyView]:
    try:
        return [policy_view(raw) async for raw in client.list(Selection(CLUSTER_POLICIES))]
    except NotFound:
        return []


async def _has_operands(client: Client, policy: PolicyView, home: str) -> bool:
    """Tell whether a ClusterPolicy's validator is there: it is part of every stack, and any DaemonSet may be read by its name."""
    try:
        answer = await client.get(DAEMON_SETS, names.VALIDATOR_APP, home)
    except (NotFound, Forbidden):
        return False
    owners = answer.object()["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == policy.uid for owner in owners)
