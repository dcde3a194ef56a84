"""State `state-dcgm-exporter`: each node's GPU metrics for Prometheus."""

from __future__ import annotations

from gpuward.operands import dcgm, images, monitors, rbac
from gpuward.operands.common import set_container, set_env, set_envs, set_gpu_access, set_host_network
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import fill_validation, wait_for_toolkit
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    Json,
    config_map_volume,
    env,
    find,
    host_path,
    metadata,
    mount,
    node_name_env,
    privileged,
    service,
    service_monitor,
    service_port,
)
from gpuward.operands.state import ObjectRef

NAME = "state-dcgm-exporter"
APP = "nvidia-dcgm-exporter"
PORT = 9400
PORT_NAME = "gpu-metrics"
READ_PODS = "nvidia-dcgm-exporter-read-pods"
KUBELET_DIR = "/var/lib/kubelet"
METRICS_FILE = "dcgm-metrics.csv"
METRICS_PATH = f"/etc/dcgm-exporter/{METRICS_FILE}"
POD_LABELS = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"
POD_UID = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"
CONFIG_MAP_DATA = "DCGM_EXPORTER_CONFIGMAP_DATA"


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants the exporter."""
    return ctx.spec.dcgm_exporter.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (
        *rbac.access_refs(ctx.namespace, APP, cluster=False),
        ObjectRef(rbac.VERSION, "ClusterRole", "", READ_PODS),
        ObjectRef(rbac.VERSION, "ClusterRoleBinding", "", READ_PODS),
        ObjectRef("v1", "Service", ctx.namespace, APP),
        monitors.ref(ctx.namespace, APP),
        ref(ctx.namespace, APP),
    )


def objects(ctx: Context) -> list[Json]:
    """Return the exporter's account, Service, ServiceMonitor if wanted and known, and DaemonSet.

    The right to read pods is given only when metrics carry pod labels or uids.
    """
    exporter = ctx.spec.dcgm_exporter
    labels = {"app": APP}
    rules = [rbac.use_privileged_scc(), rbac.rule("", ["configmaps"], ["get", "list"])]
    made = rbac.access(ctx.namespace, APP, rules, labels=labels)
    if _reads_pods(ctx):
        made.append(rbac.cluster_role(READ_PODS, [rbac.rule("", ["pods"], rbac.READ)], labels))
        made.append(rbac.cluster_role_binding(ctx.namespace, READ_PODS, APP, labels))
    made.append(service(
        metadata(APP, ctx.namespace, labels, {"prometheus.io/scrape": "true"}), service_port(PORT_NAME, PORT),
        kind=exporter.service.type, traffic_policy=exporter.service.internal_traffic_policy or "",
    ))
    if ctx.facts.has_service_monitor_crd and exporter.service_monitor.is_enabled:
        monitor = service_monitor(ctx.namespace, APP, PORT_NAME, "app")
        made.append(monitors.edited(monitor, exporter.service_monitor))
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=APP, component="dcgm-exporter", account=APP, annotations={"openshift.io/scc": APP})
        made.append(daemon_set(ctx, frame, _pod(), _fill))
    return made


def _own_env(ctx: Context, name: str) -> str:
    return next((variable.value for variable in ctx.spec.dcgm_exporter.env if variable.name == name), "")


def _reads_pods(ctx: Context) -> bool:
    exporter = ctx.spec.dcgm_exporter
    by_env = any(_own_env(ctx, name).lower() == "true" for name in (POD_LABELS, POD_UID))
    return bool(exporter.enable_pod_labels) or bool(exporter.enable_pod_uid) or by_env


def _pod() -> Json:
    probe = {"httpGet": {"path": "/health", "port": PORT}, "initialDelaySeconds": 45}
    return {
        "automountServiceAccountToken": False,
        "initContainers": [wait_for_toolkit("run-nvidia", "/run/nvidia")],
        "containers": [{
            "name": APP,
            "env": [
                env("DCGM_EXPORTER_LISTEN", f":{PORT}"),
                env("DCGM_EXPORTER_KUBERNETES", "true"),
                env("DCGM_EXPORTER_COLLECTORS", "/etc/dcgm-exporter/dcp-metrics-included.csv"),
                node_name_env(),
            ],
            "ports": [{"name": "metrics", "containerPort": PORT}],
            "livenessProbe": {**probe, "periodSeconds": 5},
            "readinessProbe": probe,
            "securityContext": privileged(),
            "volumeMounts": [mount("pod-gpu-resources", f"{KUBELET_DIR}/pod-resources", read_only=True)],
        }],
        "volumes": [
            host_path("pod-gpu-resources", f"{KUBELET_DIR}/pod-resources"),
            host_path("run-nvidia", "/run/nvidia"),
        ],
    }


def _fill(ctx: Context, template: Json) -> None:
    exporter = ctx.spec.dcgm_exporter
    pod = template["spec"]
    container = find(pod["containers"], APP)
    fill_validation(ctx, pod)
    image = images.resolve("spec.dcgmExporter", exporter, "DCGM_EXPORTER_IMAGE", ctx.images)
    set_container(pod, container, image, exporter)
    if exporter.annotations:
        template["metadata"].setdefault("annotations", {}).update(exporter.annotations)
    if ctx.spec.dcgm.is_enabled:
        set_env(container, "DCGM_REMOTE_HOSTENGINE_INFO", f"{dcgm.APP}:{dcgm.PORT}")
    set_gpu_access(ctx, template, APP)
    set_host_network(pod, exporter.host_network)
    if exporter.host_pid:
        pod["hostPID"] = True
    _fill_job_mapping(ctx, pod, container)
    _fill_pod_metadata(ctx, pod, container)
    _fill_metrics(pod, container, exporter.config.name)
    kubelet_dir = (ctx.spec.host_paths.kubelet_root_dir or KUBELET_DIR).rstrip("/")
    find(pod["volumes"], "pod-gpu-resources")["hostPath"]["path"] = f"{kubelet_dir}/pod-resources"
    set_envs(container, exporter.env)


def _fill_job_mapping(ctx: Context, pod: Json, container: Json) -> None:
    mapping = ctx.spec.dcgm_exporter.hpc_job_mapping
    if mapping.is_enabled:
        directory = mapping.effective_directory
        set_env(container, "DCGM_HPC_JOB_MAPPING_DIR", directory)
        container["volumeMounts"].append(mount("hpc-job-mapping", directory, read_only=True))
        pod["volumes"].append(host_path("hpc-job-mapping", directory, "DirectoryOrCreate"))


def _fill_pod_metadata(ctx: Context, pod: Json, container: Json) -> None:
    """Let metrics carry labels and uids of the pods that use the GPUs, for which the exporter must reach the API server."""
    exporter = ctx.spec.dcgm_exporter
    if exporter.enable_pod_labels:
        set_env(container, POD_LABELS, "true")
    if exporter.enable_pod_uid:
        set_env(container, POD_UID, "true")
    if exporter.pod_label_allowlist_regex:
        set_env(container, "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", ",".join(exporter.pod_label_allowlist_regex))
    if _reads_pods(ctx) or _own_env(ctx, CONFIG_MAP_DATA) not in ("", "none"):
        pod["automountServiceAccountToken"] = True


def _fill_metrics(pod: Json, container: Json, config_map: str) -> None:
    """Replace the exporter's list of metrics by the one in a ConfigMap."""
    if config_map:
        container["volumeMounts"].append(mount("metrics-config", METRICS_PATH, read_only=True, sub_path=METRICS_FILE))
        pod["volumes"].append(config_map_volume("metrics-config", config_map, items=[(METRICS_FILE, METRICS_FILE)]))
        set_env(container, "DCGM_EXPORTER_COLLECTORS", METRICS_PATH)
