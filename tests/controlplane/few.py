"""A control plane with few nodes for stories of single nodes, and workloads that belong to one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.controlplane import lent

from gpuward import names
from kubesandbox.builders import deployment, namespace
from tests.controlplane.plane import Plane, eventually

FEW = 8
BROKEN = "0.0.0"
"""A version of the driver whose pods never get ready."""
HOST = "kubernetes.io/hostname"

Body = dict[str, Any]


@contextmanager
def few_nodes(state: Path, *options: str, nodes: int = FEW, with_workloads: bool = False) -> Iterator[Plane]:
    """Keep a control plane with few GPU nodes running, furnished; the options are those of `./dev controlplane up`."""
    with lent.running(state, "--nodes", str(nodes), *options):
        plane = Plane(state)
        plane.furnish(with_workloads=with_workloads)
        yield plane


class Tenant:
    """Stand for a namespace of somebody whose pods belong to certain nodes."""

    def __init__(self, plane: Plane, name: str) -> None:
        self.plane = plane
        self.name = name
        self.create(namespace(name))

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the namespace."""
        return self.plane.kubectl("-n", self.name, *words)

    def create(self, body: Body) -> None:
        """Create an object here."""
        self.plane.kubectl("create", "-f", "-", given=json.dumps(body))

    def serve(self, app: str, at: str, *, part_of: str = "", **pod: Any) -> None:
        """Run a Deployment of one pod on a node; apps that are `part_of` another share its budget."""
        labels = {"app": app, "of": part_of or app}
        self.create(deployment(app, self.name, 1, {"metadata": {"labels": labels}, "spec": tied(at, **pod)}))
        self.started(app)

    def bare(self, name: str, at: str) -> None:
        """Run a GPU pod without an owner on a node."""
        meta = {"name": name, "namespace": self.name, "labels": {"app": name}}
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": tied(at)})
        self.started(name)

    def job(self, name: str, at: str) -> None:
        """Run a Job on a node that ends when somebody says so."""
        self.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": self.name}, "spec": {
            "template": {"metadata": {"labels": {"app": name}}, "spec": tied(at, restartPolicy="Never")}}})
        self.started(name)

    def budget(self, of: str, **spec: Any) -> None:
        """Put a disruption budget over apps, and wait until its controller has counted them."""
        self.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": of, "namespace": self.name},
                     "spec": {"selector": {"matchLabels": {"of": of}}, **spec}})
        self.kubectl("wait", f"poddisruptionbudget/{of}", "--for=jsonpath={.status.observedGeneration}=1", "--timeout=60s")

    def change(self, what: str, spec: Body) -> None:
        """Change fields of an object's spec."""
        self.kubectl("patch", what, "--type=merge", "-p", json.dumps({"spec": spec}))

    def pod(self, app: str) -> Body:
        """Return the one pod of an app."""
        [found] = self.plane.get("pods", "-n", self.name, "-l", f"app={app}")["items"]
        return dict(found)

    def started(self, app: str) -> None:
        """Wait until the pod of an app is ready."""
        # `kubectl wait --for=create` came with 1.31, and some machines have the kubectl of the server's release.
        eventually("the pod is made", lambda: bool(self.plane.get("pods", "-n", self.name, "-l", f"app={app}")["items"]))
        self.kubectl("wait", "pod", "-l", f"app={app}", "--for=condition=Ready", "--timeout=60s")

    def leave(self) -> None:
        """Remove everything."""
        self.plane.kubectl("delete", "namespace", self.name, "--wait=false")


def tied(at: str, *, gpus: int = 1, **spec: Any) -> Body:
    """Return the spec of a pod for one node, which uses a GPU if not told otherwise."""
    resources = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    return {"nodeSelector": {HOST: at}, "containers": [{"name": "work", "image": "registry.example/work:1", **resources}], **spec}


def rollout_policy(plane: Plane, **spec: Any) -> None:
    """Make these gpuward's own settings; what is not said has its default."""
    body = {"apiVersion": f"{names.GPUWARD_GROUP}/{names.ROLLOUT_POLICY_VERSION}", "kind": "RolloutPolicy",
            "metadata": {"name": "default"}, "spec": spec}
    plane.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(body))


def start_rollout(plane: Plane, version: str, **policy: Any) -> None:
    """Change the driver's version under an upgrade policy without limits, but for what is said, whatever was before."""
    usual = {"autoUpgrade": True, "maxParallelUpgrades": 0, "maxUnavailable": "100%", "podDeletion": {"timeoutSeconds": 300},
             "waitForCompletion": {"podSelector": "", "timeoutSeconds": 0}}
    plane.change_policy(version=version, upgradePolicy={**usual, **policy})


def reasons(plane: Plane) -> dict[str, str]:
    """Return why each node waits, as `gpuward status` says."""
    nodes = json.loads(plane.gpuward("status", "-o", "json"))["nodes"]
    return {node["name"]: node["reason"] for node in nodes if node["reason"]}


def driver_pods(plane: Plane) -> dict[str, str]:
    """Return the uid of each node's driver pod."""
    pods = plane.get("pods", "-n", names.DEFAULT_NAMESPACE, "-l", f"app={names.DRIVER_APP}")["items"]
    return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in pods}
