"""What of a cluster's objects goes into a capture: what decisions and the sandbox depend on, and nothing that may be a secret.

Of users' pods and their owners only the fields named here are kept. What the GPU stack is made of is kept whole, but for values
of environment variables, commands and their arguments, and what looks like a credential.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpuward import names
from gpuward.cli.redaction import LEFT_OUT, redacted

Object = dict[str, Any]

KEPT_VARIABLES: Final = frozenset({
    names.DRIVER_CONFIG_DIGEST, names.NO_HEALTH_CHECKS, "NVIDIA_VISIBLE_DEVICES", "COMPONENT", "WITH_WAIT", "WITH_WORKLOAD",
    "VALIDATOR_IMAGE", "VALIDATOR_RUNTIME_CLASS", "ENABLE_GPU_POD_EVICTION", "ENABLE_AUTO_DRAIN", "CONTAINERD_CONFIG",
    "CONTAINERD_SOCKET", "CONTAINERD_RUNTIME_CLASS", "CONTAINERD_SET_AS_DEFAULT", "DOCKER_CONFIG", "DOCKER_SOCKET",
    "CRIO_CONFIG", "CRIO_SOCKET", "RUNTIME", "RUNTIME_CONFIG", "RUNTIME_SOCKET", "CDI_ENABLED",
})
"""Variables whose values decide something, and tell nothing."""
_DROPPED: Final = frozenset({"command", "args", "lifecycle", "managedFields"})
_META: Final = ("name", "generateName", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
                "deletionGracePeriodSeconds", "generation", "labels", "ownerReferences", "finalizers")
_ANNOTATIONS: Final = ("gpuward.io/", "nvidia.com/", "sandbox.gpuward.io/", "kubesandbox/", names.MIRROR_POD,
                       "deprecated.daemonset.template.generation", "deployment.kubernetes.io/revision",
                       *names.VOLCANO_POD_GROUPS, names.KUEUE_SERVING, names.JOB_INDEX)
_POD: Final = ("nodeName", "nodeSelector", "affinity", "tolerations", "priority", "priorityClassName", "preemptionPolicy",
               "terminationGracePeriodSeconds", "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates",
               "overhead", "resourceClaims", "readinessGates", "activeDeadlineSeconds", "schedulingGroup")
_STATUS: Final = ("phase", "startTime", "resourceClaimStatuses", "extendedResourceClaimStatus", "qosClass")
_OWNER: Final = ("replicas", "selector", "completions", "parallelism", "backoffLimit", "activeDeadlineSeconds", "suspend",
                 "minReadySeconds", "strategy", "completionMode", "revisionHistoryLimit", "progressDeadlineSeconds")
_COUNTS: Final = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "observedGeneration", "succeeded",
                  "failed", "active", "startTime")


def _only(value: Mapping[str, Any] | None, fields: Iterable[str]) -> Object:
    return {key: value[key] for key in fields if value is not None and key in value}


def slim_meta(meta: Mapping[str, Any]) -> Object:
    """Return metadata with the annotations that are ours, NVIDIA's or Kubernetes' own, or say which pods are one gang."""
    notes = {key: value for key, value in (meta.get("annotations") or {}).items() if key.startswith(_ANNOTATIONS)}
    return {**_only(meta, _META), **({"annotations": notes} if notes else {})}


def slim_pod(pod: Mapping[str, Any]) -> Object:
    """Return a pod of users: where it is, what it asks for, and how it stands."""
    status = _pod_status(pod.get("status") or {})
    return {"metadata": slim_meta(pod["metadata"]), "spec": _pod_spec(pod["spec"]), "status": status}


def _pod_spec(spec: Mapping[str, Any]) -> Object:
    kept = _only(spec, _POD)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        if spec.get(field):
            kept[field] = [_container(each) for each in spec[field]]
    if spec.get("volumes"):
        kept["volumes"] = [_volume(each) for each in spec["volumes"]]
    return kept


def _container(container: Mapping[str, Any]) -> Object:
    kept = {"image": "left-out", **_only(container, ("name", "resources", "restartPolicy"))}
    if (container.get("securityContext") or {}).get("privileged") is not None:
        kept["securityContext"] = {"privileged": container["securityContext"]["privileged"]}
    if env := [one for one in container.get("env") or () if one["name"] in KEPT_VARIABLES]:
        kept["env"] = env
    return kept


def _volume(volume: Mapping[str, Any]) -> Object:
    """Return a volume that matters: data that goes with the pod, and what is the host's; others as mere names."""
    kind = next((kind for kind in ("hostPath", "emptyDir") if kind in volume), "")
    if kind == "hostPath":
        return {"name": volume["name"], "hostPath": _only(volume["hostPath"], ("path",))}
    return {"name": volume["name"], "emptyDir": {}} if kind else {"name": volume["name"], "downwardAPI": {}}


def _pod_status(status: Mapping[str, Any]) -> Object:
    conditions = [_only(one, ("type", "status", "reason", "lastTransitionTime")) for one in status.get("conditions") or ()]
    kept = {**_only(status, _STATUS), **({"conditions": conditions} if conditions else {})}
    for field in ("initContainerStatuses", "containerStatuses"):
        if status.get(field):
            kept[field] = [{**_only(one, ("name", "ready", "restartCount", "started")), "image": "left-out", "imageID": "",
                            "state": _states(one.get("state") or {})} for one in status[field]]
    return kept


def _states(state: Mapping[str, Any]) -> Object:
    return {kind: _only(one, ("startedAt", "finishedAt", "exitCode", "reason")) for kind, one in state.items()}


def slim_owner(obj: Mapping[str, Any]) -> Object:
    """Return an owner of pods: how many it wants, and of which kind."""
    spec, template = obj.get("spec") or {}, (obj.get("spec") or {}).get("template")
    kept = {"metadata": slim_meta(obj["metadata"]), "spec": _only(spec, _OWNER), "status": _only(obj.get("status"), _COUNTS)}
    if template is not None:
        kept["spec"]["template"] = {"metadata": slim_meta(template.get("metadata") or {}), "spec": _pod_spec(template["spec"])}
    return kept


def slim_node(node: Mapping[str, Any]) -> Object:
    """Return a node: its labels, what is on it, and how it stands."""
    status = node.get("status") or {}
    conditions = [_only(one, ("type", "status", "reason", "lastTransitionTime", "lastHeartbeatTime"))
                  for one in status.get("conditions") or ()]
    return {"metadata": slim_meta(node["metadata"]), "spec": _only(node.get("spec"), ("unschedulable", "taints")),
            "status": {**_only(status, ("capacity", "allocatable", "nodeInfo")), "conditions": conditions}}


def slim_stack(value: Mapping[str, Any]) -> Object:
    """Return an object of the GPU stack, or a policy, without values of variables, commands and credentials."""
    meta = slim_meta(value["metadata"])
    for key in (names.VALID_SPEC, names.VALID_ROLLOUT_POLICY):  # a whole spec once more, with all that is left out of it here
        meta.get("annotations", {}).pop(key, None)
    found: Object = redacted(_without_values({**value, "metadata": meta}))
    return found


def _without_values(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_values(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _env(each) if key == "env" and isinstance(each, list) else _without_values(each)
            for key, each in value.items() if key not in _DROPPED}


def _env(variables: list[Any]) -> list[Any]:
    return [{**each, "value": LEFT_OUT} if isinstance(each, Mapping) and each.get("value") and not _is_kept(each) else each
            for each in variables]


def _is_kept(variable: Mapping[str, Any]) -> bool:
    name = str(variable.get("name"))
    return name in KEPT_VARIABLES or name.endswith("_IMAGE")
