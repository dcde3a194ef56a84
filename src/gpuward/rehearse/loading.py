"""Put a captured cluster into the sandbox, such that the operator finds there what it would find in the real one.

Who puts pods back is simpler here: ReplicaSets stand for themselves, without the Deployments that own them, and for controllers
that the sandbox does not play. DaemonSets of users keep the pods that they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.crd.generate import all_crds
from gpuward.rehearse.assumptions import Assumptions
from gpuward.rehearse.captured import Captured, Object
from gpuward.rehearse.maintaining import CRD
from gpuward.rehearse.sharing import Shared, packed, unpacked
from gpuward.rehearse.templates import DAEMON_SETS, PODS, Change, align
from gpuward.sandbox.cluster import Sandbox
from kubesandbox.sim.containers import FORGIVEN_AFTER_SECONDS
from kubesandbox.sim.kubelet import TERMINATION_SECONDS
from kubesandbox.sim.objects import controller_of, is_finished, seconds
from kubesandbox.sim.programs import RUN_SECONDS
from kubesandbox.store import Store, copy

REPLICA_SETS: Final = "replicasets.apps"
_PUT_BACK_BY_NOBODY: Final = frozenset({"DaemonSet", "Node", *names.OWNER_KINDS})
_FIRST: Final = ("namespaces", "nodes", "clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com", "rolloutpolicies.gpuward.io")


class Loaded(msgspec.Struct, frozen=True):
    """Hold what the sandbox is filled with."""

    packed: Mapping[str, Sequence[bytes]]
    """Objects by resource, in the order in which they come: each as bytes, since as dictionaries they take ten times as much."""
    stood_in: Mapping[str, int] = {}
    """Kinds of controllers that the sandbox does not play, with how many pods a ReplicaSet puts back in their place."""

    def fill(self, store: Store, change: Callable[[str, Object], Object] = lambda resource, obj: obj) -> None:
        """Put everything into a store; `change` is asked about each object with its resource, in their order."""
        fill(store, ((resource, change(resource, unpacked(data))) for resource, many in self.packed.items() for data in many))


def fill(store: Store, objects: Iterable[tuple[str, Object]]) -> None:
    """Put objects into a store, each with its resource; what is equal in them is there once."""
    for crd in (*all_crds(), CRD):
        store.create("customresourcedefinitions.apiextensions.k8s.io", crd)
    seen = Shared()
    for resource, obj in objects:
        if store.find(resource, obj["metadata"].get("namespace"), obj["metadata"]["name"]) is None:
            store.restore(resource, obj, seen.share)


async def loaded(captured: Captured, assumed: Assumptions, change: Change) -> Loaded:
    """Return what a sandbox is filled with; call it on an event loop whose time is that of the capture.

    `change` is what is going to be done there.
    """
    objects = {name: list(map(copy, captured.of(name)))
               for name in dict.fromkeys((*_FIRST, *(name for name in captured.objects if name != PODS), PODS))}
    manifest = captured.manifest
    objects["configmaps"] = [_named("ConfigMap", manifest.namespace, name, data=dict.fromkeys(keys, ""))
                             for name, keys in manifest.config_maps.items()]
    objects["secrets"] = [_named("Secret", manifest.namespace, name) for name in manifest.secrets]
    _let_jobs_end(objects, assumed.job, manifest.at)
    stood_in = _stand_in(objects)
    _simplify(objects, manifest.namespace, assumed)

    def as_captured(store: Store) -> None:
        fill(store, ((resource, obj) for resource, many in objects.items() for obj in many))

    await align(Sandbox(fill=as_captured), objects, captured, change)
    return Loaded({resource: tuple(map(packed, many)) for resource, many in objects.items()}, stood_in)


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
