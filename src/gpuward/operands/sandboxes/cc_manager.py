"""State `state-cc-manager`: the manager that sets the confidential computing mode of a node's GPUs."""

from __future__ import annotations

from gpuward import names
from gpuward.operands import images, rbac
from gpuward.operands.common import set_container, set_env, set_envs, set_host_network
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import STATUS_FILES
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, env, exec_action, find, host_path, mount, node_name_env, privileged
from gpuward.operands.state import ObjectRef

NAME = "state-cc-manager"
APP = names.CC_MANAGER_APP


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants confidential containers, which Kata runs."""
    sandbox = ctx.spec.sandbox_workloads
    return sandbox.is_enabled and sandbox.mode == "kata" and ctx.spec.cc_manager.is_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (*rbac.access_refs(ctx.namespace, APP), ref(ctx.namespace, APP))


def objects(ctx: Context) -> list[Json]:
    """Return the manager's account and DaemonSet."""
    rules = [rbac.use_privileged_scc(), rbac.rule("", ["pods"], rbac.READ)]
    made = rbac.access(ctx.namespace, APP, rules, [rbac.rule("", ["nodes"], ["get", "list", "patch", "watch"])])
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(name=APP, component="cc-manager", account=APP, selected_by="name")
        made.append(daemon_set(ctx, frame, _pod(), _fill))
    return made


def _pod() -> Json:
    return {
        "terminationGracePeriodSeconds": 30,
        "containers": [{
            "name": APP,
            "env": [node_name_env(), env("NVIDIA_VISIBLE_DEVICES", "void")],
            "lifecycle": {"preStop": exec_action("/bin/rm", "-f", f"{STATUS_FILES}/.cc-manager-ctr-ready")},
            "resources": {"limits": {"memory": "200Mi"}, "requests": {"cpu": "100m", "memory": "200Mi"}},
            "securityContext": privileged(se_linux=True),
            "volumeMounts": [mount("host-sys", "/sys"), mount("run-nvidia", "/run/nvidia")],
        }],
        "volumes": [
            host_path("host-sys", "/sys", "Directory"),
            host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
        ],
    }


def _fill(ctx: Context, template: Json) -> None:
    section = ctx.spec.cc_manager
    pod = template["spec"]
    container = find(pod["containers"], APP)
    set_container(pod, container, images.resolve("spec.ccManager", section, "CC_MANAGER_IMAGE", ctx.images), section)
    if section.default_mode:
        set_env(container, "DEFAULT_CC_MODE", section.default_mode)
    set_envs(container, section.env)
    set_host_network(pod, section.host_network)
