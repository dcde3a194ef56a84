"""State `state-node-status-exporter`: each node's validation results as metrics."""

from __future__ import annotations

from gpuward.operands import images, monitors, rbac
from gpuward.operands.common import set_container, set_env, set_envs, set_host_network
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    Json,
    env,
    find,
    host_path,
    metadata,
    mount,
    namespace_env,
    node_name_env,
    privileged,
    service,
    service_monitor,
    service_port,
)
from gpuward.operands.own_agents import is_own, use_own_agent
from gpuward.operands.state import ObjectRef

NAME = "state-node-status-exporter"
APP = "nvidia-node-status-exporter"
PORT = 8000
PORT_NAME = "node-status"


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants the exporter."""
    return ctx.spec.node_status_exporter.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (
        *rbac.access_refs(ctx.namespace, APP),
        ObjectRef("v1", "Service", ctx.namespace, APP),
        monitors.ref(ctx.namespace, APP),
        ref(ctx.namespace, APP),
    )


def objects(ctx: Context) -> list[Json]:
    """Return the exporter's account, Service, ServiceMonitor where the cluster knows the kind, and DaemonSet."""
    labels = {"app": APP}
    rules = [
        rbac.rule("security.openshift.io", ["securitycontextconstraints"], ["use"]),
        rbac.rule("", ["pods"], ["get", "list"]),
        rbac.rule("apps", ["daemonsets"], rbac.READ),
    ]
    meta = metadata(APP, ctx.namespace, labels, {"prometheus.io/scrape": "true"})
    made = [
        *rbac.access(ctx.namespace, APP, rules, [rbac.read_nodes()], labels),
        service(meta, service_port(PORT_NAME, PORT)),
    ]
    if ctx.facts.has_service_monitor_crd:
        made.append(service_monitor(ctx.namespace, APP, PORT_NAME, "node-status"))
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=APP, component="node-status-exporter", account=APP, annotations={"openshift.io/scc": APP})
        made.append(daemon_set(ctx, frame, _pod(), _fill))
    return made


def _pod() -> Json:
    return {
        "containers": [{
            "name": APP,
            "command": ["nvidia-validator"],
            "env": [
                env("NVIDIA_VISIBLE_DEVICES", "void"),
                env("COMPONENT", "metrics"),
                env("METRICS_PORT", str(PORT)),
                node_name_env(),
                namespace_env(),
            ],
            "securityContext": {**privileged(), "runAsUser": 0},
            "ports": [{"name": PORT_NAME, "containerPort": PORT}],
            "volumeMounts": [
                mount("run-nvidia", "/run/nvidia", propagation="HostToContainer"),
                mount("host-root", "/host", propagation="HostToContainer", read_only=True),
            ],
        }],
        "volumes": [host_path("run-nvidia", "/run/nvidia", "Directory"), host_path("host-root", "/")],
    }


def _fill(ctx: Context, template: Json) -> None:
    exporter = ctx.spec.node_status_exporter
    pod = template["spec"]
    container = find(pod["containers"], APP)
    image = images.resolve("spec.nodeStatusExporter", exporter, "VALIDATOR_IMAGE", ctx.images)
    set_container(pod, container, image, exporter)
    paths = ctx.spec.host_paths
    directory = paths.effective_driver_install_dir
    if is_own(image) and directory != paths.default_driver_install_dir and paths.effective_root == paths.default_root:
        # NVIDIA's looks where no driver is then, and tells of none. The host's root is mounted here already.
        set_env(container, "DRIVER_INSTALL_DIR", directory)
        set_env(container, "DRIVER_INSTALL_DIR_CTR_PATH", f"/host{directory}")
    set_envs(container, exporter.env)
    set_host_network(pod, exporter.host_network)
    use_own_agent(container)
