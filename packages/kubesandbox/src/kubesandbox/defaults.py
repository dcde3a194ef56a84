"""The defaults that the API server writes into built-in objects, by Go type.

Facts from Kubernetes' `SetDefaults_*` functions (v1.34). A default of a nested type applies wherever that type occurs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Object = dict[str, Any]

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
FILE_MODE: Final = 420
_MODES: Final = {"secret": FILE_MODE, "configMap": FILE_MODE, "downwardAPI": FILE_MODE, "projected": FILE_MODE}


def apply(type_name: str, obj: Object) -> None:
    """Set the defaults of a type that need nothing but the object itself, nested ones included; in place."""
    setter = _TOP.get(type_name)
    if setter is not None:
        setter(obj)


def pod_spec(spec: Object) -> None:
    """Default a pod's spec, or that of a pod template."""
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    # The API server mirrors the deprecated name of the service account in both directions.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes") or ():
        _volume(volume)
    for container in containers(spec):
        _container(container)
        if spec.get("hostNetwork"):
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port["containerPort"])


def containers(spec: Object) -> Iterable[Object]:
    """Yield the init containers and the containers of a pod's spec."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _container(container: Object) -> None:
    image = container.get("image", "")
    if "imagePullPolicy" not in container:
        name, _, digest = image.partition("@")
        tag = name.rpartition("/")[2].partition(":")[2]
        latest = not digest and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        reference = variable.get("valueFrom", {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])
    for hook in container.get("lifecycle", {}).values():
        if isinstance(hook, dict):
            _http_get(hook)


def _probe(probe: Object) -> None:
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(name, value)
    _http_get(probe)
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _http_get(action: Object) -> None:
    if "httpGet" in action:
        action["httpGet"].setdefault("path", "/")
        action["httpGet"].setdefault("scheme", "HTTP")


def _volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source, mode in _MODES.items():
        if source in volume:
            volume[source].setdefault("defaultMode", mode)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    _field_references(volume.get("downwardAPI", {}).get("items"))
    for source in volume.get("projected", {}).get("sources") or ():
        _field_references(source.get("downwardAPI", {}).get("items"))
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)


def _field_references(items: list[Object] | None) -> None:
    for item in items or ():
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _pod(obj: Object) -> None:
    spec = obj["spec"]
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in containers(spec):
        needs = container.get("resources", {})
        if needs.get("limits"):
            needs["requests"] = {**needs["limits"], **needs.get("requests", {})}


def _template(obj: Object) -> None:
    template = obj["spec"].get("template")
    if template:
        pod_spec(template.setdefault("spec", {}))


def _daemon_set(obj: Object) -> None:
    spec = obj["spec"]
    _template(obj)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)


def _deployment(obj: Object) -> None:
    spec = obj["spec"]
    _template(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def _replica_set(obj: Object) -> None:
    _template(obj)
    obj["spec"].setdefault("replicas", 1)


def _stateful_set(obj: Object) -> None:
    spec = obj["spec"]
    _template(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    if spec.setdefault("updateStrategy", {}).setdefault("type", "RollingUpdate") == "RollingUpdate":
        spec["updateStrategy"].setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})


def _job_spec(spec: Object) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    for name, value in (("parallelism", 1), ("backoffLimit", 6), ("completionMode", "NonIndexed"), ("suspend", False),
                        ("podReplacementPolicy", "TerminatingOrFailed")):
        spec.setdefault(name, value)
    if spec.get("template"):
        pod_spec(spec["template"].setdefault("spec", {}))


def _job(obj: Object) -> None:
    _job_spec(obj["spec"])


def _cron_job(obj: Object) -> None:
    spec = obj["spec"]
    for name, value in (("concurrencyPolicy", "Allow"), ("suspend", False), ("successfulJobsHistoryLimit", 3),
                        ("failedJobsHistoryLimit", 1)):
        spec.setdefault(name, value)
    template = spec.get("jobTemplate", {}).get("spec")
    if template and template.get("template"):
        pod_spec(template["template"].setdefault("spec", {}))


def _service(obj: Object) -> None:
    spec = obj["spec"]
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if kind == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if kind in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port["port"]


def _binding(obj: Object) -> None:
    obj.setdefault("roleRef", {})["apiGroup"] = obj["roleRef"].get("apiGroup") or RBAC_GROUP
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", RBAC_GROUP)


def _secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")


def _node(obj: Object) -> None:
    status = obj.get("status", {})
    if status.get("capacity") and "allocatable" not in status:
        status["allocatable"] = dict(status["capacity"])


def _custom_resource_definition(obj: Object) -> None:
    spec = obj["spec"]
    names = spec.get("names") or {}
    kind = names.get("kind", "")
    if not names.get("singular"):
        names["singular"] = kind.lower()
    names.setdefault("listKind", kind + "List")
    spec.setdefault("conversion", {"strategy": "None"})


def _priority_class(obj: Object) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _claim(obj: Object) -> None:
    for request in obj["spec"].get("devices", {}).get("requests") or ():
        if "exactly" in request:
            exactly = request["exactly"]
            if exactly.setdefault("allocationMode", "ExactCount") == "ExactCount":
                exactly.setdefault("count", 1)


_TOP: Final[dict[str, Callable[[Object], None]]] = {
    "core.v1.Pod": _pod, "core.v1.Service": _service, "core.v1.Secret": _secret, "core.v1.Node": _node,
    "apps.v1.DaemonSet": _daemon_set, "apps.v1.Deployment": _deployment, "apps.v1.ReplicaSet": _replica_set,
    "apps.v1.StatefulSet": _stateful_set, "batch.v1.Job": _job, "batch.v1.CronJob": _cron_job,
    "rbac.v1.RoleBinding": _binding, "rbac.v1.ClusterRoleBinding": _binding,
    "apiextensions.v1.CustomResourceDefinition": _custom_resource_definition,
    "scheduling.v1.PriorityClass": _priority_class, "resource.v1.ResourceClaim": _claim,
}
