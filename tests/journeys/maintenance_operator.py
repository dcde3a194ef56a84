"""NVIDIA's maintenance operator, as its clients see it: so many nodes are maintained at once, each for one thing at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from gpuward.model.maintenance import NOT_COLLECTED
from kubesandbox.store import Event
from tests.journeys.stage import Stage

KEY = "nodemaintenances.maintenance.nvidia.com"
FINALIZER = "maintenance.finalizers.nvidia.com"
INITIAL = "maintenance.nvidia.com/node-initial-state.unschedulable"
_OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": KEY},
    "spec": {
        "group": "maintenance.nvidia.com", "scope": "Namespaced",
        "names": {"kind": "NodeMaintenance", "listKind": "NodeMaintenanceList", "plural": "nodemaintenances",
                  "singular": "nodemaintenance"},
        "versions": [{"name": "v1alpha1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "required": ["nodeName", "requestorID"], "properties": {
                    "requestorID": {"type": "string", "minLength": 2, "maxLength": 63}, "nodeName": {"type": "string"},
                    "cordon": {"type": "boolean", "default": True}, "waitForPodCompletion": _OPEN, "drainSpec": _OPEN,
                    "additionalRequestors": {"type": "array", "items": {"type": "string"}}}},
                "status": _OPEN}}}}],
    },
}
PHASES = ("Pending", "Scheduled", "Cordon", "WaitForPodCompletion", "Draining", "Ready")


class MaintenanceOperator:
    """Take objects through their phases, a second for each, and put nodes back as they were once an object is to go."""

    def __init__(self, stage: Stage, parallel: int = 1) -> None:
        self.stage, self.parallel = stage, parallel
        self.most = 0
        """How many were under way at most."""
        self.lifted: list[str] = []
        """Nodes that it has put back into service."""
        self._work: asyncio.Task[None] | None = None

    @classmethod
    def installed(cls, stage: Stage, parallel: int = 1) -> MaintenanceOperator:
        """Install the CRD, and let an operator run."""
        stage.sandbox.apply(CRD)
        made = cls(stage, parallel)
        made.begin()
        return made

    def begin(self) -> None:
        self._work = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def objects(self) -> list[dict[str, Any]]:
        return list(self.stage.sandbox.store.list(KEY))

    def phase(self, node: str) -> str:
        return next((phase_of(one) for one in self.objects() if one["spec"]["nodeName"] == node), "")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(1)
            for one in self.objects():
                self._step(one)

    def _step(self, one: dict[str, Any]) -> None:
        name, node, phase = one["metadata"]["name"], one["spec"]["nodeName"], phase_of(one)
        if one["metadata"].get("deletionTimestamp"):
            if (one["metadata"].get("annotations") or {}).get(INITIAL) == "false":
                self._cordon(node, None)
                self.lifted.append(node)
            self._change(name, lambda obj: obj["metadata"].update(finalizers=[]))
            return
        under_way = [other for other in self.objects() if phase_of(other) in PHASES[1:]]
        self.most = max(self.most, len(under_way))
        following = PHASES[min(PHASES.index(phase) + 1, 5)] if phase else PHASES[0]
        if following == "Scheduled" and (len(under_way) >= self.parallel or any(
                other["spec"]["nodeName"] == node for other in under_way)):
            return
        if phase == "Cordon":
            cordoned = bool(self.stage.node(node)["spec"].get("unschedulable"))
            initial = str(cordoned).lower()
            self._change(name, lambda obj: obj["metadata"].setdefault("annotations", {}).setdefault(INITIAL, initial))
            self._cordon(node, True)
        if following == "Scheduled":
            # It writes the whole object, without what is false, and the API server defaults that.
            self._change(name, lambda obj: (obj["metadata"].update(finalizers=[FINALIZER]), obj["spec"].update(cordon=True)))
        if following != phase:
            self.stage.sandbox.store.patch_status(KEY, "gpu-operator", name, lambda obj: obj.update(status={"conditions": [
                {"type": "Ready", "status": str(following == "Ready"), "reason": following, "message": ""}]}))

    def _change(self, name: str, change: Any) -> None:
        self.stage.sandbox.store.modify(KEY, "gpu-operator", name, change)

    def _cordon(self, node: str, value: bool | None) -> None:
        if bool(self.stage.node(node)["spec"].get("unschedulable")) is not bool(value):
            self.stage.sandbox.store.modify("nodes", None, node, lambda obj: obj["spec"].update(unschedulable=value))


def phase_of(one: dict[str, Any]) -> str:
    return next((str(each["reason"]) for each in (one.get("status") or {}).get("conditions") or ()), "")


def is_kept(one: dict[str, Any]) -> bool:
    """Tell whether it is not taken for a forgotten one."""
    return bool((one["metadata"].get("annotations") or {}).get(NOT_COLLECTED) == "true")


def watch_evictions(stage: Stage, operator: MaintenanceOperator) -> list[str]:
    """Note each pod that is asked to go, and each driver pod, while its node's maintenance is not ready."""
    wrong: list[str] = []

    def look(event: Event) -> None:
        pod = event.obj
        node = pod["spec"].get("nodeName", "")
        going = pod["metadata"].get("deletionTimestamp") and (pod["metadata"]["namespace"] != "gpu-operator")
        if going and node.startswith("gpu-") and operator.phase(node) != "Ready":
            wrong.append(f"{pod['metadata']['name']} on {node}: {operator.phase(node) or 'none'}")

    stage.sandbox.store.subscribe(look, "pods")
    return wrong
