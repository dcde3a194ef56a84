"""State `state-dcgm`: the DCGM host engine as a service of its own on every node."""

from __future__ import annotations

from gpuward.operands import images, rbac
from gpuward.operands.common import set_container, set_envs, set_gpu_access, set_host_network
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import fill_validation, wait_for_toolkit
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, find, host_path, metadata, privileged, service, service_port
from gpuward.operands.state import ObjectRef

NAME = "state-dcgm"
APP = "nvidia-dcgm"
CONTAINER = "nvidia-dcgm-ctr"
PORT = 5555


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants a host engine beside the exporter's own."""
    return ctx.spec.dcgm.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (
        *rbac.access_refs(ctx.namespace, APP, cluster=False),
        ref(ctx.namespace, APP),
        ObjectRef("v1", "Service", ctx.namespace, APP),
    )


def objects(ctx: Context) -> list[Json]:
    """Return the host engine's account, DaemonSet and Service, which leads each client to the engine of its own node."""
    made = rbac.access(ctx.namespace, APP, [rbac.use_privileged_scc()])
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=APP, component="dcgm", account=APP, annotations={"openshift.io/scc": "hostmount-anyuid"})
        made.append(daemon_set(ctx, frame, _pod(), _fill))
    meta = metadata(APP, ctx.namespace, {"app": APP})
    return [*made, service(meta, service_port("dcgm", PORT), traffic_policy="Local")]


def _pod() -> Json:
    return {
        "initContainers": [wait_for_toolkit("run-nvidia", "/run/nvidia")],
        "containers": [{
            "name": CONTAINER,
            "securityContext": privileged(),
            "ports": [{"name": "dcgm", "containerPort": PORT}],
            "livenessProbe": {"tcpSocket": {"port": PORT}, "initialDelaySeconds": 15},
            "readinessProbe": {"tcpSocket": {"port": PORT}, "initialDelaySeconds": 15},
        }],
        "volumes": [host_path("run-nvidia", "/run/nvidia", "Directory")],
    }


def _fill(ctx: Context, template: Json) -> None:
    dcgm = ctx.spec.dcgm
    pod = template["spec"]
    container = find(pod["containers"], CONTAINER)
    fill_validation(ctx, pod)
    set_container(pod, container, images.resolve("spec.dcgm", dcgm, "DCGM_IMAGE", ctx.images), dcgm)
    set_envs(container, dcgm.env)
    set_gpu_access(ctx, template, CONTAINER)
    set_host_network(pod, dcgm.host_network)
