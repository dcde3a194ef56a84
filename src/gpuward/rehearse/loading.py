"""Put a captured cluster into the sandbox, such that the operator finds there what it would find in the real one.

Values that a capture leaves out would make the operator write other DaemonSets than those that are there. So DaemonSets that were
as their policies have them get the template that the operator makes of the captured policies; their newest revisions and the
driver pods that were made of it go with that.

Who puts pods back is simpler here: ReplicaSets stand for themselves, without the Deployments that own them, and for controllers
that the sandbox does not play. DaemonSets of users keep the pods that they have.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.crd.generate import all_crds
from gpuward.kube.cluster import Cluster
from gpuward.kube.http.client import Client
from gpuward.model.snapshot import References
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.rehearse.assumptions import Assumptions
from gpuward.rehearse.captured import Captured, Object
from gpuward.report.paper import play
from gpuward.sandbox.cluster import Sandbox
from kubesandbox.sim.containers import FORGIVEN_AFTER_SECONDS
from kubesandbox.sim.kubelet import TERMINATION_SECONDS
from kubesandbox.sim.objects import controller_of, is_finished, seconds
from kubesandbox.sim.programs import RUN_SECONDS
from kubesandbox.store import Store

PODS: Final = "pods"
DAEMON_SETS, REVISIONS, REPLICA_SETS = "daemonsets.apps", "controllerrevisions.apps", "replicasets.apps"
_PUT_BACK_BY_NOBODY: Final = frozenset({"DaemonSet", "Node", *names.OWNER_KINDS})
_FIRST: Final = ("namespaces", "nodes", "clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com", "rolloutpolicies.gpuward.io")


class Loaded(msgspec.Struct, frozen=True):
    """Hold what the sandbox is filled with."""

    objects: Mapping[str, Sequence[Object]]
    """By resource, in the order in which they come."""
    stood_in: Mapping[str, int] = {}
    """Kinds of controllers that the sandbox does not play, with how many pods a ReplicaSet puts back in their place."""

    def fill(self, store: Store) -> None:
        """Put everything into a store."""
        for crd in all_crds():
            store.create("customresourcedefinitions.apiextensions.k8s.io", crd)
        for resource, objects in self.objects.items():
            for obj in objects:
                if store.find(resource, obj["metadata"].get("namespace"), obj["metadata"]["name"]) is None:
                    store.restore(resource, obj)


async def loaded(captured: Captured, assumed: Assumptions) -> Loaded:
    """Return what a sandbox is filled with; call it on an event loop whose time is that of the capture."""
    objects = {name: copy.deepcopy(list(captured.of(name)))
               for name in dict.fromkeys((*_FIRST, *(name for name in captured.objects if name != PODS), PODS))}
    manifest = captured.manifest
    objects["configmaps"] = [_named("ConfigMap", manifest.namespace, name, data=dict.fromkeys(keys, ""))
                             for name, keys in manifest.config_maps.items()]
    objects["secrets"] = [_named("Secret", manifest.namespace, name) for name in manifest.secrets]
    _let_jobs_end(objects, assumed.job, manifest.at)
    stood_in = _stand_in(objects)
    _simplify(objects, manifest.namespace, assumed)
    found = Loaded(objects, stood_in)
    await _align(found, captured)
    return found


def _named(kind: str, namespace: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, **fields}


def _let_jobs_end(objects: Mapping[str, list[Object]], assumed: float, at: float) -> None:
    """Let each Job have what is left of it to do, and its pods run until its deadline, or as long as is assumed."""
    left: dict[str, float] = {}
    for job in objects.get("jobs.batch", ()):
        spec, status = job["spec"], job.get("status") or {}
        done, deadline = status.get("succeeded") or 0, job["spec"].pop("activeDeadlineSeconds", None)
        if spec.get("completions") is not None:
            spec["completions"] = max(1, spec["completions"] - done)
        spec["backoffLimit"] = 1_000_000
        _note(spec["template"], deadline or assumed)
        ran = at - seconds(status["startTime"]) if deadline and status.get("startTime") else 0.0
        left[job["metadata"]["uid"]] = max(1.0, (deadline or assumed) - ran)
    for pod in objects[PODS]:
        owner = controller_of(pod)
        if owner is not None and owner["uid"] in left:
            # A pod that runs already is taken for one that has run for so long.
            _note(pod, left[owner["uid"]] + FORGIVEN_AFTER_SECONDS)


def _note(obj: Object, lasts: float) -> None:
    obj.setdefault("metadata", {}).setdefault("annotations", {}).setdefault(RUN_SECONDS, str(lasts))


def _stand_in(objects: dict[str, list[Object]]) -> dict[str, int]:
    """Let ReplicaSets put back the pods of controllers that the sandbox does not play, StatefulSets and those of CRDs."""
    known = {obj["metadata"]["uid"] for name in (REPLICA_SETS, "jobs.batch", DAEMON_SETS) for obj in objects.get(name, ())}
    orphaned: dict[str, list[Object]] = {}
    told: Counter[str] = Counter()
    for pod in objects[PODS]:
        owner = controller_of(pod)
        if owner is None or owner["uid"] in known or owner["kind"] in _PUT_BACK_BY_NOBODY or is_finished(pod):
            continue
        orphaned.setdefault(owner["uid"], []).append(pod)
        told[owner["kind"]] += 1
    made = [_replica_set(uid, pods) for uid, pods in orphaned.items()]
    objects[REPLICA_SETS] = [*objects.get(REPLICA_SETS, ()), *made]
    objects["statefulsets.apps"] = []
    return dict(told)


def _simplify(objects: dict[str, list[Object]], namespace: str, assumed: Assumptions) -> None:
    """Leave out what would replace pods for reasons of its own: the sandbox does not name their templates as Kubernetes does."""
    objects["deployments.apps"] = []
    for replica_set in objects[REPLICA_SETS]:
        replica_set["metadata"].pop("ownerReferences", None)
    for owner in (*objects[REPLICA_SETS], *objects.get("jobs.batch", ())):
        notes = owner["spec"]["template"].setdefault("metadata", {}).setdefault("annotations", {})
        notes.setdefault(TERMINATION_SECONDS, str(assumed.eviction))
    for ds in objects.get(DAEMON_SETS, ()):
        if ds["metadata"]["namespace"] != namespace:
            ds["spec"]["updateStrategy"] = {"type": "OnDelete"}


def _replica_set(uid: str, pods: Sequence[Object]) -> Object:
    owner, first = controller_of(pods[0]) or {}, pods[0]
    label = {"gpuward.io/rehearsed": uid[:60]}
    for pod in pods:
        pod["metadata"].setdefault("labels", {}).update(label)
        for ref in pod["metadata"]["ownerReferences"]:
            if ref["uid"] == uid:
                ref |= {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    spec = {key: value for key, value in first["spec"].items() if key != "nodeName"}
    template = {"metadata": {key: first["metadata"][key] for key in ("labels", "annotations") if first["metadata"].get(key)},
                "spec": {**spec, "restartPolicy": "Always"}}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": owner.get("name", uid), "namespace": first["metadata"]["namespace"], "uid": uid},
            "spec": {"replicas": len(pods), "selector": {"matchLabels": label}, "template": template}}


async def _align(found: Loaded, captured: Captured) -> None:
    """Give the DaemonSets that were in step the templates that the captured policies come to."""
    manifest = captured.manifest
    sandbox = Sandbox(fill=found.fill)
    for ds in found.objects.get(DAEMON_SETS, ()):
        _name_revision(sandbox.store, found, ds)
    made = await _written(sandbox, captured)
    sets = {ds["metadata"]["name"]: ds for ds in found.objects.get(DAEMON_SETS, ())
            if ds["metadata"]["namespace"] == manifest.namespace}
    for name in manifest.in_step:
        if name in sets and name in made:
            _take_over(sandbox.store, found, sets[name], made[name])
    await sandbox.stop()


async def _written(sandbox: Sandbox, captured: Captured) -> dict[str, Object]:
    """Return the DaemonSets that the operator would write."""
    manifest = captured.manifest
    cluster = Cluster(Client(sandbox.transport()), manifest.namespace, random=Random(0))
    async with asyncio.TaskGroup() as group:
        cluster.start(group)
        await cluster.synced()
        snapshot = cluster.observe()
        cluster.stop()
    read = PolicyReader().read(snapshot)
    views = [view for view in (read.policy.view, *(each.view for each in read.active)) if view is not None]
    references = References(frozenset((view.uid, view.generation) for view in views), False,
                            dict(manifest.config_maps), frozenset(manifest.secrets))
    written = play(msgspec.structs.replace(snapshot, references=references), manifest.images, manifest.at)
    every = (action for action in written.objects if action.kind == "DaemonSet")
    return {action.ref.name: msgspec.json.decode(msgspec.json.encode(action.body)) for action in every}


def _take_over(store: Store, found: Loaded, ds: Object, made: Object) -> None:
    before = _digest(ds["spec"]["template"])
    decoded = store.schema(DAEMON_SETS).decode(made, [])
    ds["spec"] = decoded["spec"]
    notes = made["metadata"].get("annotations") or {}
    ds["metadata"].setdefault("annotations", {}).update(notes)
    ds["metadata"].setdefault("labels", {}).update(made["metadata"].get("labels") or {})
    after, uid = _digest(decoded["spec"]["template"]), ds["metadata"]["uid"]
    own = [one for one in found.objects[REVISIONS] if (controller_of(one) or {}).get("uid") == uid]
    if not own:
        return
    newest = max(own, key=lambda one: int(one["revision"]))
    newest["data"] = {"spec": {"template": {**decoded["spec"]["template"], "$patch": "replace"}}}
    if before == after:
        return
    for pod in found.objects[PODS]:
        if (controller_of(pod) or {}).get("uid") == uid:
            _each_variable(pod["spec"], lambda one: one.update(value=after) if one.get("value") == before else None)


def _name_revision(store: Store, found: Loaded, ds: Object) -> None:
    """Write the revision of a DaemonSet's template as the sandbox writes that: without fields that have no value."""
    for revision in found.objects.get(REVISIONS, ()):
        template = {key: value for key, value in revision["data"]["spec"]["template"].items() if key != "$patch"}
        if (controller_of(revision) or {}).get("uid") == ds["metadata"]["uid"] and template == ds["spec"]["template"]:
            decoded = store.schema(DAEMON_SETS).decode(ds, [])
            revision["data"] = {"spec": {"template": {**decoded["spec"]["template"], "$patch": "replace"}}}


def _digest(template: Mapping[str, Any]) -> str:
    found: list[str] = []
    _each_variable(template["spec"], lambda one: found.append(one.get("value") or ""))
    return next(filter(None, found), "")


def _each_variable(spec: Mapping[str, Any], use: Callable[[Object], object]) -> None:
    """Show every variable of a pod's containers that has the driver's digest."""
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            for one in container.get("env") or ():
                if one["name"] == names.DRIVER_CONFIG_DIGEST:
                    use(one)
