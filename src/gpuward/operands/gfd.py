"""State `gpu-feature-discovery`: labels on each node that say which GPUs it has."""

from __future__ import annotations

from gpuward import names
from gpuward.operands import common_plugin_config, images, rbac
from gpuward.operands.common import set_container, set_envs, set_gpu_access, set_host_network, set_mig_strategy
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import fill_validation, wait_for_toolkit
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    Json,
    env,
    field_env,
    find,
    host_path,
    mount,
    namespace_env,
    node_name_env,
    privileged,
)
from gpuward.operands.state import ObjectRef

NAME = "gpu-feature-discovery"
ACCOUNT = "nvidia-gpu-feature-discovery"
DAEMON_SET = CONTAINER = "gpu-feature-discovery"
FEATURES_DIR = "/etc/kubernetes/node-feature-discovery/features.d"


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants GPU feature discovery."""
    return ctx.spec.gfd.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (*rbac.access_refs(ctx.namespace, ACCOUNT), ref(ctx.namespace, DAEMON_SET))


def objects(ctx: Context) -> list[Json]:
    """Return the account and DaemonSet of GPU feature discovery."""
    rules = [
        rbac.use_privileged_scc(),
        rbac.rule("nfd.k8s-sigs.io", ["nodefeatures"], [*rbac.READ, "create", "update"]),
        rbac.rule("", ["pods"], ["get"]),
    ]
    made = rbac.access(ctx.namespace, ACCOUNT, rules, [rbac.read_nodes()])
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=DAEMON_SET, component="gpu-feature-discovery", account=ACCOUNT,
                      selector={names.PART_OF_LABEL: "nvidia-gpu"})
        made.append(daemon_set(ctx, frame, _pod(ctx), _fill))
    return made


def _pod(ctx: Context) -> Json:
    container = {
        "name": CONTAINER,
        "command": ["gpu-feature-discovery"],
        "env": [
            env("GFD_SLEEP_INTERVAL", "60s"),
            env("GFD_FAIL_ON_INIT_ERROR", "true"),
            namespace_env("NAMESPACE"),
            node_name_env(),
            field_env("POD_NAME", "metadata.name"),
        ],
        "securityContext": privileged(),
        "volumeMounts": [mount("output-dir", FEATURES_DIR), mount("host-sys", "/sys", read_only=True)],
    }
    return {
        "initContainers": [wait_for_toolkit("run-nvidia", "/run/nvidia"), *common_plugin_config.init_container(ctx)],
        "containers": [container, *common_plugin_config.sidecar(ctx, "gpu-feature-discovery")],
        "volumes": [
            host_path("output-dir", FEATURES_DIR),
            host_path("host-sys", "/sys"),
            host_path("run-nvidia", "/run/nvidia", "Directory"),
        ],
    }


def _fill(ctx: Context, template: Json) -> None:
    gfd = ctx.spec.gfd
    pod = template["spec"]
    container = find(pod["containers"], CONTAINER)
    fill_validation(ctx, pod)
    set_container(pod, container, images.resolve("spec.gfd", gfd, "GFD_IMAGE", ctx.images), gfd)
    set_envs(container, gfd.env)
    common_plugin_config.fill_plugin_config(ctx, pod, CONTAINER, gfd.resources)
    set_gpu_access(ctx, template, CONTAINER)
    set_mig_strategy(container, ctx.spec.mig.strategy)
    set_host_network(pod, gfd.host_network)
