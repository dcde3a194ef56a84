"""What users and administrators do in a run, through the store as the API server keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpuward import names
from gpuward.model.states import State
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.driver import set_cordon
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox import errors
from kubesandbox.builders import deployment
from kubesandbox.sim.objects import is_ready
from kubesandbox.sim.programs import RUN_SECONDS
from kubesandbox.store import Event
from tools.simulate.gangs import GANG, SIZE
from tools.simulate.policies import NVIDIA_DRIVERS, is_broken

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault, Scenario
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]
T = TypeVar("T")

POLICY: Final = "cluster-policy"
POLICIES: Final = "clusterpolicies.nvidia.com"
ROLLOUTS: Final = "rolloutpolicies.gpuward.io"
BUDGETS: Final = "poddisruptionbudgets.policy"
DEPLOYMENTS: Final = "deployments.apps"
DAEMONSETS: Final = "daemonsets.apps"
CLAIMS: Final = "resourceclaims.resource.k8s.io"


class People:
    """Act on a sandbox."""

    sandbox: Sandbox
    scenario: Scenario
    may_kill: bool
    # Nodes.

    def gpu_nodes(self) -> list[str]:
        """Return the names of the GPU nodes there are."""
        found = (node["metadata"]["name"] for node in self.sandbox.store.list("nodes"))
        return [name for name in found if name.startswith("gpu-")]

    def pick(self, of: Sequence[T], fault: Fault) -> T | None:
        """Choose one of what there is."""
        return of[int(fault.pick * len(of))] if of else None

    def nodes_in(self, *states: State) -> list[str]:
        """Return the names of the GPU nodes whose label says one of these states."""
        return [name for name in self.gpu_nodes() if self.state_label(name) in states]

    def some_node(self, fault: Fault) -> str | None:
        """Choose a GPU node."""
        return self.pick(self.gpu_nodes(), fault)

    def node(self, name: str) -> Object:
        """Return a node."""
        return self.sandbox.store.get("nodes", None, name)

    def change_node(self, name: str, change: Callable[[Object], None]) -> None:
        """Change a node, if it is still there."""
        if self.sandbox.store.find("nodes", None, name) is not None:
            self.sandbox.store.modify("nodes", None, name, change)

    def label(self, name: str, key: str, value: str | None) -> None:
        """Set a label of a node, or take it away."""

        def change(node: Object) -> None:
            labels = node["metadata"].setdefault("labels", {})
            labels.pop(key, None)
            if value is not None:
                labels[key] = str(value)

        self.change_node(name, change)

    def cordon(self, name: str, wanted: bool) -> None:
        """Make a node unschedulable, or schedulable."""
        set_cordon(self.sandbox.store, name, wanted, "kubectl-cordon")

    def is_cordoned(self, name: str) -> bool:
        """Tell whether a node is unschedulable."""
        return bool(self.node(name)["spec"].get("unschedulable"))

    def state_label(self, name: str) -> str:
        """Return a node's state label, empty where there is none."""
        found = self.sandbox.store.find("nodes", None, name)
        return str((found or {"metadata": {}})["metadata"].get("labels", {}).get(names.UPGRADE_STATE, ""))

    def recover(self, name: str) -> None:
        """Let a node's kubelet run and report that all is well."""
        if self.sandbox.store.find("nodes", None, name) is not None:
            self.sandbox.reconnect(name)

    # Pods.

    def pods(self, app: str) -> list[Object]:
        """Return the operator's pods of one operand."""
        return [pod for pod in self.sandbox.store.list("pods", names.DEFAULT_NAMESPACE)
                if (pod["metadata"].get("labels") or {}).get("app") == app]

    def driver_pods(self, node: str = "") -> list[Object]:
        """Return the driver pods, of the ClusterPolicy's DaemonSets and of NVIDIADrivers' ones."""
        store = self.sandbox.store
        pods = store.lookup("pods", "node", node) if node else store.list("pods", names.DEFAULT_NAMESPACE)
        return [pod for pod in pods if is_driver(pod)]

    def has_stray_driver_pod(self, node: str) -> bool:
        """Tell whether a driver pod that nobody made is ready on a node: it looks like a loaded driver, and has loaded none."""
        return any(is_ready(pod) and not pod["metadata"].get("ownerReferences") for pod in self.driver_pods(node))

    def workload_pods(self) -> list[Object]:
        """Return the users' pods."""
        return self.sandbox.store.list("pods", WORKLOAD_NAMESPACE)

    def pick_pod(self, of: Sequence[Object], fault: Fault) -> Object | None:
        """Choose a pod."""
        return self.pick(sorted(of, key=lambda pod: str(pod["metadata"]["name"])), fault)

    def delete_pod(self, pod: Object) -> None:
        """Delete a pod as kubectl does."""
        self.sandbox.store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])

    def run_bare_pod(self, name: str, node: str, *, holds: bool) -> Callable[[], None]:
        """Start a pod without a controller on a node; return what ends it."""
        template = _template("bare", gpus=0 if holds else 1, holds=holds)
        meta = {**template["metadata"], "name": name, "namespace": WORKLOAD_NAMESPACE}
        self.sandbox.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**template["spec"], "nodeName": node}})
        return lambda: self._end_pod(name)

    def _end_pod(self, name: str, place: str = WORKLOAD_NAMESPACE) -> None:
        if self.sandbox.store.find("pods", place, name) is not None:
            self.sandbox.store.delete("pods", place, name)

    def run_static_pod(self, name: str, node: str) -> Callable[[], None]:
        """Let a kubelet run a GPU pod of its own, which shows in the API as a mirror; return what ends it."""
        template = _template("static")
        meta = {**template["metadata"], "name": name, "namespace": WORKLOAD_NAMESPACE, "annotations": {names.MIRROR_POD: name}}
        self.sandbox.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**template["spec"], "nodeName": node}})
        return lambda: self._end_pod(name)

    def run_pod_with_claim(self, name: str, node: str, driver: str, *, consumed: bool) -> Callable[[], None]:
        """Start a pod with a ResourceClaim of some driver's devices, which its container is given or not; return what ends it."""
        request = {"name": "gpu", "exactly": {"deviceClassName": driver}}
        self.sandbox.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                            "metadata": {"name": name, "namespace": WORKLOAD_NAMESPACE},
                            "spec": {"devices": {"requests": [request]}}})
        result = {"request": "gpu", "driver": driver, "pool": node, "device": "gpu-0"}
        self.sandbox.store.patch_status(CLAIMS, WORKLOAD_NAMESPACE, name, lambda obj: obj.setdefault("status", {}).update(
            allocation={"devices": {"results": [result]}}))
        template = _template("claims", gpus=0)
        spec = {**template["spec"], "nodeName": node, "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}
        if consumed:
            spec["containers"] = [{**container, "resources": {"claims": [{"name": "gpu"}]}} for container in spec["containers"]]
        meta = {**template["metadata"], "name": name, "namespace": WORKLOAD_NAMESPACE}
        self.sandbox.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        return lambda: self._end_pod(name)

    def claims_gpus(self, pod: Object) -> bool:
        """Tell whether a pod has GPUs by a ResourceClaim."""
        for entry in pod["spec"].get("resourceClaims") or ():
            claim = self.sandbox.store.get(CLAIMS, WORKLOAD_NAMESPACE, entry["resourceClaimName"])
            results = claim["status"]["allocation"]["devices"]["results"]
            if any(result["driver"] == names.DRA_DRIVER for result in results):
                return True
        return False

    def run_second_driver(self, name: str, node: str) -> Callable[[], None]:
        """Start a driver pod that nobody owns, as a DaemonSet of an NVIDIADriver leaves one behind; return what ends it."""
        template = _template("former-driver", gpus=0)
        meta = {"name": name, "namespace": names.DEFAULT_NAMESPACE, "labels": {names.COMPONENT_LABEL: names.DRIVER_COMPONENT}}
        self.sandbox.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**template["spec"], "nodeName": node}})
        return lambda: self._end_pod(name, names.DEFAULT_NAMESPACE)

    # Workloads.

    def run_workload(self, kind: str) -> None:
        """Start one of the workloads that a run may have."""
        many = max(1, self.scenario.nodes)
        if kind == "inference":
            self._deploy(kind, many, _template(kind))
            self.set_budget(kind, 1)
        elif kind == "batch":
            self._deploy(kind, many // 2 + 1, _template(kind, priority="system-cluster-critical"))
        elif kind == "training":
            self._deploy(kind, many // 3 + 1, _template(kind, seconds=400.0))
        elif kind == "bare":
            self.run_bare_pod("bare-first", self.gpu_nodes()[0], holds=False)
        elif kind == "empty-dir":
            self._deploy(kind, many // 3 + 1, _template(kind, empty_dir=True))
        elif kind == "tolerant":
            template = _template(kind)
            template["spec"]["tolerations"] = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
            # Where its pods may go elsewhere, they do: only those that belong to a node come back to it.
            template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.gpu_nodes()[0]}
            self._deploy(kind, 2, template)
        elif kind == "daemonset":
            self._daemonset(kind, self.gpu_nodes()[-1])
        elif kind == "holder":
            self._deploy(kind, 1, _template(kind, gpus=0, holds=True))
        elif kind == "two-budgets":
            self._deploy(kind, many // 3 + 1, _template(kind))
            self.set_budget(kind, 1)
            self.set_budget(f"{kind}-too", 1, app=kind)
        else:
            self._deploy(kind, many, _template(kind, gpus=0))

    def run_gang(self) -> None:
        """Start a workload whose pods are one gang."""
        self._deploy(GANG, SIZE, _apart(_template(GANG, gpus=2)))

    def _deploy(self, name: str, replicas: int, template: Object) -> None:
        self.sandbox.apply(deployment(name, WORKLOAD_NAMESPACE, replicas, template))

    def _daemonset(self, name: str, node: str) -> None:
        template = _template(name)
        template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        self.sandbox.apply({"apiVersion": "apps/v1", "kind": "DaemonSet",
                            "metadata": {"name": name, "namespace": WORKLOAD_NAMESPACE},
                            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}})

    def scale(self, name: str, replicas: int) -> None:
        """Let a workload have another number of pods."""
        if self.sandbox.store.find(DEPLOYMENTS, WORKLOAD_NAMESPACE, name) is not None:
            self.sandbox.store.modify(DEPLOYMENTS, WORKLOAD_NAMESPACE, name, lambda obj: obj["spec"].update(replicas=replicas))

    def remove_workload(self, name: str, resource: str = DEPLOYMENTS) -> None:
        """Take a workload away."""
        if self.sandbox.store.find(resource, WORKLOAD_NAMESPACE, name) is not None:
            self.sandbox.store.delete(resource, WORKLOAD_NAMESPACE, name)

    def set_budget(self, name: str, max_unavailable: int, *, app: str = "") -> None:
        """Protect a workload by a disruption budget, or change that."""
        self.sandbox.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                            "metadata": {"name": name, "namespace": WORKLOAD_NAMESPACE},
                            "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": app or name}}}})

    def remove_budget(self, name: str) -> None:
        """Take a disruption budget away."""
        self.remove_workload(name, BUDGETS)

    # Policies.

    def change_policy(self, change: Callable[[Object], None]) -> None:
        """Edit the ClusterPolicy's spec."""
        self.sandbox.store.modify(POLICIES, None, POLICY, lambda obj: change(obj["spec"]))

    def annotate_policy(self, key: str, value: str) -> None:
        """Annotate the ClusterPolicy."""
        self.sandbox.store.modify(POLICIES, None, POLICY,
                                  lambda obj: obj["metadata"].setdefault("annotations", {}).update({key: value}))

    def policy_spec(self) -> Object:
        """Return the ClusterPolicy's spec."""
        spec: Object = self.sandbox.store.get(POLICIES, None, POLICY)["spec"]
        return spec

    def rollout_spec(self) -> Object | None:
        """Return gpuward's own settings as they are written, None where there are none."""
        found = self.sandbox.store.find(ROLLOUTS, None, "default")
        return None if found is None else dict(found["spec"])

    def set_rollout_policy(self, spec: Object) -> None:
        """Write gpuward's own settings."""
        self.may_kill = self.may_kill or bool(spec.get("killAtDeadline"))
        if spec.get("prestage"):
            took = self.scenario.random("images").choice((1.0, 5.0, 20.0))
            self.sandbox.pull_seconds = lambda image: took if "driver" in image else 0.0
        self.sandbox.apply({"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
                            "spec": spec})

    def be_impatient(self, **settings: Any) -> None:
        """Change some of gpuward's own settings, unless somebody has written there what cannot be followed."""
        before = self.rollout_spec() or {}
        if not is_broken(before):
            self.set_rollout_policy({**before, **settings})

    def remove_rollout_policy(self) -> None:
        """Take gpuward's own settings away, if there are any."""
        try:
            self.sandbox.store.delete(ROLLOUTS, None, "default")
        except errors.NotFound:
            return


def is_driver(obj: Object) -> bool:
    """Tell whether a pod or a DaemonSet holds drivers, also one that no ClusterPolicy's DaemonSet made."""
    labels = obj["metadata"].get("labels") or {}
    app = labels.get("app", "")
    return (app == names.DRIVER_APP or app.startswith(names.NVIDIA_DRIVER_APP_PREFIXES)
            or labels.get(names.COMPONENT_LABEL) == names.DRIVER_COMPONENT)


def _template(app: str, *, gpus: int = 1, holds: bool = False, empty_dir: bool = False, priority: str = "",
              seconds: float = 0.0) -> Object:
    """Return the template of a workload's pods."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container: Object = {"name": "main", "image": f"registry.example/{app}:1", "resources": resources}
    meta: Object = {"labels": {"app": app}}
    spec: Object = {"containers": [container]}
    if holds:
        meta["labels"]["holds"] = "driver"
        spec["volumes"] = [{"name": "driver", "hostPath": {"path": "/run/nvidia/driver"}}]
        container["volumeMounts"] = [{"name": "driver", "mountPath": "/driver"}]
    if empty_dir:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    if priority:
        spec["priorityClassName"] = priority
    if seconds:
        meta["annotations"] = {RUN_SECONDS: str(seconds)}
    return {"metadata": meta, "spec": spec}


def _apart(template: Object) -> Object:
    """Make pods one gang, each of which is on a node of its own."""
    labels = template["metadata"]["labels"]
    labels[names.POD_GROUP] = GANG
    term = {"labelSelector": {"matchLabels": {"app": labels["app"]}}, "topologyKey": "kubernetes.io/hostname"}
    template["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return template


def tell_change(world: SimulatedWorld, event: Event, who: str) -> None:
    """Add a change of a node or of a pod on one to the story: what people would want to read of it."""
    meta = event.obj["metadata"]
    if event.resource_key == "nodes":
        before, after = _node_facts(event.old), _node_facts(event.obj)
        changes = [f"{key}={after[key]}" for key in after if after[key] != before.get(key)]
        if changes or event.type != "MODIFIED":
            world.tell(meta["name"], f"{who}: {event.type} node {', '.join(changes)} (v{event.version})")
    elif event.resource_key == "pods" and event.obj["spec"].get("nodeName"):
        shown = _pod_facts(event.obj)
        if shown != _pod_facts(event.old) or event.type != "MODIFIED":
            world.tell(event.obj["spec"]["nodeName"], f"{who}: {event.type} pod {meta['name']} {shown} (v{event.version})")
    elif event.resource_key in (POLICIES, NVIDIA_DRIVERS, ROLLOUTS) and _news(event):
        spec = event.obj["spec"]
        text = str(spec["driver"] if "driver" in spec else {key: value for key, value in spec.items() if key != "manager"})
        world.tell("", f"{who}: {event.type} {event.resource_key} {meta['name']} {text} (v{event.version})")
    elif event.resource_key == "daemonsets.apps" and (event.type != "MODIFIED" or _news(event)):
        selector = event.obj["spec"]["template"]["spec"].get("nodeSelector")
        world.tell("", f"{who}: {event.type} DaemonSet {meta['name']} for {selector} (v{event.version})")


def _news(event: Event) -> bool:
    return event.type == "DELETED" or (event.old or {}).get("spec") != event.obj.get("spec")


def _node_facts(node: Object | None) -> dict[str, object]:
    if node is None:
        return {}
    labels, annotations = node["metadata"].get("labels") or {}, node["metadata"].get("annotations") or {}
    ours = {key.rpartition("/")[2]: value for key, value in annotations.items()
            if key.startswith(("gpuward.io/", "nvidia.com/"))}
    ready = [one["status"] for one in node.get("status", {}).get("conditions") or () if one["type"] == "Ready"]
    return {"state": labels.get(names.UPGRADE_STATE, ""), "cordoned": bool(node["spec"].get("unschedulable")),
            "skip": labels.get(names.UPGRADE_SKIP, ""), "driver": labels.get(names.DEPLOY_DRIVER, ""),
            "owner": labels.get(names.DRIVER_OWNER, ""),
            "gpu": labels.get(names.NFD_GPU_LABELS[0], ""), "ready": "".join(ready), "annotations": ours}


def _pod_facts(pod: Object | None) -> str:
    if pod is None:
        return ""
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())
    going = " terminating" if pod["metadata"].get("deletionTimestamp") else ""
    revision = (pod["metadata"].get("labels") or {}).get(names.REVISION_HASH, "")
    return f"{revision} {pod['status'].get('phase', '')}{' ready' if ready else ''}{going}".strip()
