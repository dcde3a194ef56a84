"""Bring faults about on the nodes whose annotation names them, and end them when it goes.

Whoever wants a fault annotates a node: `gpuward demo --fault`, a test, or a person with `kubectl annotate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpuward.names import DEFAULT_NAMESPACE
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import guarded_workload
from gpuward.sandbox.known_faults import FAULT_ANNOTATION, faults_in, unknown_fault
from kubesandbox.errors import Forbidden
from kubesandbox.preconditions import invalid
from kubesandbox.resources import REGISTRY
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import annotations_of, name_of

if TYPE_CHECKING:
    from kubesandbox.cluster import Sandbox
    from kubesandbox.store import Event

Object = dict[str, Any]

QUEUE: Final = "sandbox-faults"
OWN_PREFIX: Final = "sandbox.gpuward.io/"
DRIVER_IMAGES: Final = "*/driver[:@]*"
_OF_PODS: Final[dict[str, dict[str, str]]] = {
    "driver-crash": {"kind": FaultKind.DRIVER_CRASH},
    "driver-hangs": {"kind": FaultKind.DRIVER_NEVER_READY},
    "image-missing": {"kind": FaultKind.IMAGE_PULL, "image": DRIVER_IMAGES},
    "toolkit-crash": {"kind": FaultKind.TOOLKIT_CRASH},
    "device-plugin-crash": {"kind": FaultKind.DEVICE_PLUGIN_CRASH},
    "validator-hangs": {"kind": FaultKind.VALIDATOR_NEVER_READY},
    "pod-does-not-end": {"kind": FaultKind.STUCK_TERMINATING, "namespace": f"!{DEFAULT_NAMESPACE}"},
}


class Troubles:
    """Keep the faults of one sandbox as its nodes' annotations say."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._store, self._queue = sandbox.store, sandbox.simulation.queue
        self._active: dict[str, list[str]] = {}
        self._queue.register(QUEUE, self._sync)
        self._store.subscribe(self._node_changed, "nodes")
        sandbox.api.webhooks.append(self._admit)

    def _node_changed(self, event: Event) -> None:
        name = name_of(event.obj)
        text = "" if event.type == "DELETED" else annotations_of(event.obj).get(FAULT_ANNOTATION, "")
        if text or name in self._active:
            self._queue.add(QUEUE, name)

    def _sync(self, node: str) -> None:
        found = self._store.find("nodes", None, node)
        wanted = [name for name in faults_in(annotations_of(found or {"metadata": {}}).get(FAULT_ANNOTATION, ""))
                  if not unknown_fault(name)]
        active = self._active.pop(node, [])
        if wanted:
            self._active[node] = wanted
        for name in active:
            if name not in wanted:
                self._switch(name, node, on=False, there=found is not None)
        for name in wanted:
            if name not in active:
                self._switch(name, node, on=True, there=True)

    def _switch(self, name: str, node: str, *, on: bool, there: bool) -> None:
        if name in _OF_PODS:
            fault = Fault(node=node, **_OF_PODS[name])
            (self._sandbox.faults.add if on else self._sandbox.faults.clear)(fault)
        elif name == "budget-blocks":
            (self._guard if on else self._unguard)(node)
        elif name == "node-not-ready" and there:
            self._sandbox.set_node_ready(node, not on)
        elif name == "node-unreachable" and there:
            (self._sandbox.disconnect if on else self._sandbox.reconnect)(node)

    def _guard(self, node: str) -> None:
        for obj in guarded_workload(node):
            if obj["kind"] != "Namespace" or self._store.find("namespaces", None, name_of(obj)) is None:
                self._sandbox.apply(obj)

    def _unguard(self, node: str) -> None:
        for obj in guarded_workload(node):
            if obj["kind"] == "Namespace":
                continue
            key = "deployments.apps" if obj["kind"] == "Deployment" else "poddisruptionbudgets.policy"
            if self._store.find(key, obj["metadata"]["namespace"], name_of(obj)) is not None:
                self._store.delete(key, obj["metadata"]["namespace"], name_of(obj), propagation="Background")

    def _admit(self, key: str, old: Object | None, new: Object) -> None:
        """Refuse a fault that there is none of, and what the fault `webhook-refuses` is there to refuse."""
        if key != "nodes":
            return
        text, before = (annotations_of(node or {"metadata": {}}).get(FAULT_ANNOTATION, "") for node in (new, old))
        if text != before and (why := next(filter(None, map(unknown_fault, faults_in(text))), "")):
            raise invalid(REGISTRY["nodes"], name_of(new), [
                ("FieldValueInvalid", f"metadata.annotations[{FAULT_ANNOTATION}]", f'Invalid value: "{text}": {why}')])
        if old is not None and "webhook-refuses" in self._active.get(name_of(new), ()) and _essence(old) != _essence(new):
            raise Forbidden('admission webhook "nodes.policy.example.com" denied the request: '
                            f"node {name_of(new)} is frozen: its labels, annotations and spec may not be changed")


def _essence(node: Object) -> Object:
    """Return what of a node the webhook protects."""
    notes = {key: value for key, value in annotations_of(node).items() if not key.startswith(OWN_PREFIX)}
    return {"labels": node["metadata"].get("labels") or {}, "notes": notes,
            "finalizers": node["metadata"].get("finalizers") or [], "spec": node.get("spec") or {}}
