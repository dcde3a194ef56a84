"""What rendering answers: for every state of the policy its objects, or what must not exist, or why it cannot be followed."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from gpuward import names
from gpuward.errors import PolicyError
from gpuward.model.views import Ref
from gpuward.operands.objects import Json

OwnerKind = Literal["ClusterPolicy", "NVIDIADriver"]


class ObjectRef(msgspec.Struct, frozen=True, order=True):
    """Name an object of any kind; the namespace of a cluster-scoped one is empty."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class OperandState(msgspec.Struct, frozen=True):
    """Hold one state of the ClusterPolicy, such as `state-driver`.

    With an `error` there are neither objects nor absent ones: what runs stays as it is until the policy is mended.
    """

    name: str
    enabled: bool
    objects: tuple[Json, ...] = ()
    """In the order in which they must be written: a pod's account and configuration before the DaemonSet."""
    absent: tuple[ObjectRef, ...] = ()
    """What must not exist now; objects that are neither here nor in `objects` are left alone."""
    error: PolicyError | None = None


def ref_of(obj: Json) -> ObjectRef:
    """Return the reference of a rendered object."""
    meta = obj["metadata"]
    return ObjectRef(obj["apiVersion"], obj["kind"], meta.get("namespace", ""), meta["name"])


def with_owner(obj: Json, name: str, uid: str, kind: OwnerKind = "ClusterPolicy") -> Json:
    """Return the object as controlled by a custom resource, so that it goes with it; owners that it has already stay behind."""
    version = names.CLUSTER_POLICY_VERSION if kind == "ClusterPolicy" else names.NVIDIA_DRIVER_VERSION
    owner = {
        "apiVersion": f"{names.NVIDIA_GROUP}/{version}",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner, *obj["metadata"].get("ownerReferences", ())]}}


def beside_controller(policy: Ref) -> Json:
    """Return the owner reference of a ClusterPolicy that owns what another one controls: the garbage collector leaves that."""
    return {"apiVersion": f"{names.NVIDIA_GROUP}/{names.CLUSTER_POLICY_VERSION}", "kind": "ClusterPolicy", "name": policy.name,
            "uid": policy.uid}


def applied_hash(obj: Json) -> str:
    """Return a hash of an object that is the same in every process, blind to the hash annotation itself.

    NVIDIA hashes a dump of its Go types, which no other program can repeat; any stable value serves.
    """
    meta = obj["metadata"]
    annotations = {key: value for key, value in meta.get("annotations", {}).items() if key != names.APPLIED_HASH}
    bare = {key: value for key, value in meta.items() if key != "annotations"}
    hashed = {**obj, "metadata": {**bare, **({"annotations": annotations} if annotations else {})}}
    if obj["kind"] == "DaemonSet" and "spec" in obj:
        hashed["spec"] = _with_pull_policies(obj["spec"])
    return hashlib.sha256(msgspec.json.encode(hashed, order="deterministic")).hexdigest()[:16]


def _with_pull_policies(spec: Json) -> Json:
    """Return the spec with the pull policies that the API server chooses: to take one away that says the same changes nothing."""
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    lists = {key: [{"imagePullPolicy": _default_pull_policy(container.get("image", "")), **container} for container in pod[key]]
             for key in ("initContainers", "containers") if pod.get(key)}
    return {**spec, "template": {**template, "spec": {**pod, **lists}}}


def _default_pull_policy(image: str) -> str:
    """Return the pull policy of an image without one, as in Kubernetes: a digest and any tag but `latest` are not looked for."""
    name = image.rpartition("/")[2]
    pinned = "@" in name or (":" in name and not name.endswith(":latest"))
    return "IfNotPresent" if pinned else "Always"


def with_applied_hash(obj: Json) -> Json:
    """Return the object with `applied_hash` in its annotation `nvidia.com/last-applied-hash`."""
    meta = obj["metadata"]
    annotations = {**meta.get("annotations", {}), names.APPLIED_HASH: applied_hash(obj)}
    return {**obj, "metadata": {**meta, "annotations": annotations}}
