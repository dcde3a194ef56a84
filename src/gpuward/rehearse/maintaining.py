"""Play the maintenance operator, of whose limits nothing is known: it lets each node be maintained at once."""

from __future__ import annotations

from typing import Any, Final

from gpuward import names
from gpuward.model.maintenance import API_VERSION, KIND, Asked
from gpuward.model.plan import Plan
from gpuward.model.reasons import Reason
from kubesandbox.store import Store

_OPEN: Final[dict[str, Any]] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
PLURAL: Final = "nodemaintenances"
CRD: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{names.MAINTENANCE_GROUP}"},
    "spec": {
        "group": names.MAINTENANCE_GROUP, "scope": "Namespaced",
        "names": {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower()},
        "versions": [{"name": API_VERSION.partition("/")[2], "served": True, "storage": True, "subresources": {"status": {}},
                      "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}}}],
    },
}
"""As open as it can be: nothing but its name matters here."""


def let_maintain(store: Store, plan: Plan) -> bool:
    """Let the nodes go on that wait for a maintenance operator; tell whether there were any."""
    found = [name for name, status in plan.nodes.items()
             if status.hold is not None and status.hold.reason is Reason.MAINTENANCE_AWAITED]
    for name in found:
        if (node := store.find("nodes", None, name)) is not None and _noted(node) != Asked.READY:
            store.modify("nodes", None, name, _let)
    return bool(found)


def _noted(node: dict[str, Any]) -> str:
    return str((node["metadata"].get("annotations") or {}).get(names.NODE_MAINTENANCE, ""))


def _let(node: dict[str, Any]) -> None:
    node["metadata"].setdefault("annotations", {})[names.NODE_MAINTENANCE] = str(Asked.READY)
