"""State `state-vgpu-manager`: the driver of a host whose GPUs are shared by virtual machines."""

from __future__ import annotations

from gpuward import names
from gpuward.errors import NotDiscovered
from gpuward.labels.discovery import NOT_DISCOVERED, how_to_label
from gpuward.operands import images, rbac
from gpuward.operands.common import set_envs, set_host_network, set_image, set_resources
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.driver.options import MODULES_DIR, add_config_volume, config_mounts
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, find, host_path, mount, privileged
from gpuward.operands.sandboxes import vfio_manager
from gpuward.operands.sandboxes.driver_manager import fill_manager, manager, rules_of_manager
from gpuward.operands.state import ObjectRef

NAME = "state-vgpu-manager"
ACCOUNT = "nvidia-vgpu-manager"
DAEMON_SET = names.VGPU_MANAGER_APP
CONTAINER = "nvidia-vgpu-manager-ctr"
_MANAGER = "spec.vgpuManager.driverManager"
_MODULES = "spec.vgpuManager.kernelModuleConfig.name"


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants vGPU hosts' drivers to be installed, and does not leave that to NVIDIADrivers."""
    return ctx.spec.has_vgpu_manager


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make; nothing where it is left to NVIDIADrivers, as pods that run on still need it."""
    if ctx.spec.driver.is_left_to_nvidia_drivers:
        return ()
    return (*rbac.access_refs(ctx.namespace, ACCOUNT), ref(ctx.namespace, DAEMON_SET))


def objects(ctx: Context) -> list[Json]:
    """Return the vGPU manager's account and DaemonSet.

    Raises:
        NotDiscovered: no GPU node says what it runs; an image without that would take the driver from all hosts, and bring none.
    """
    of_manager = rules_of_manager(ctx, _MANAGER, ctx.spec.vgpu_manager.driver_manager)
    rules = [*vfio_manager.cluster_rules(), rbac.rule("apps", ["daemonsets"], ["get"]), *of_manager]
    made = rbac.access(ctx.namespace, ACCOUNT, [rbac.use_privileged_scc()], rules)
    if ctx.facts.has_gpu_nodes:
        frame = DaemonSetFrame(
            name=DAEMON_SET, component="vgpu-manager", account=ACCOUNT,
            annotations={"openshift.io/scc": ACCOUNT, names.DRIVER_OS: ctx.facts.host_os_tag},
            template_annotations={"kubectl.kubernetes.io/default-container": CONTAINER},
        )
        made.append(daemon_set(ctx, frame, _pod(), _fill))
    return made


def _pod() -> Json:
    return {
        "hostPID": True,
        "hostIPC": True,
        "terminationGracePeriodSeconds": 120,
        "initContainers": [manager()],
        "containers": [_container()],
        "volumes": [
            host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
            host_path("host-os-release", "/etc/os-release"),
            host_path("cgroup", "/sys/fs/cgroup", "Directory"),
            host_path("vfio", "/dev/vfio", "Directory"),
            host_path("host-root", "/"),
            host_path("host-sys", "/sys", "Directory"),
            host_path("var-log", "/var/log", "Directory"),
            host_path("dev-log", "/dev/log"),
            host_path("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
            host_path("nv-firmware", "/run/nvidia/driver/lib/firmware", "DirectoryOrCreate"),
        ],
    }


def _container() -> Json:
    return {
        "name": CONTAINER,
        "command": ["nvidia-driver"],
        "args": ["init"],
        "securityContext": privileged(se_linux=True),
        "volumeMounts": [
            mount("run-nvidia", "/run/nvidia", propagation="Bidirectional"),
            mount("host-os-release", "/host-etc/os-release"),
            mount("vfio", "/dev/vfio"),
            mount("cgroup", "/sys/fs/cgroup"),
            mount("var-log", "/var/log"),
            mount("dev-log", "/dev/log"),
            mount("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
            mount("nv-firmware", "/lib/firmware"),
        ],
    }


def _fill(ctx: Context, template: Json) -> None:
    section = ctx.spec.vgpu_manager
    pod = template["spec"]
    container = find(pod["containers"], CONTAINER)
    fill_manager(ctx, pod, _MANAGER, section.driver_manager, section.resources)
    reference = images.resolve("spec.vgpuManager", section, "VGPU_MANAGER_IMAGE", ctx.images)
    image = images.with_os_tag(reference, ctx.facts.host_os_tag)
    if image != reference and not ctx.facts.host_os_tag:
        raise NotDiscovered("spec.vgpuManager", "", f"{NOT_DISCOVERED} its operating system: {how_to_label(with_gpu=False)}")
    set_image(pod, container, image, section)
    set_resources(container, section.resources)
    if section.args:
        container["args"] = list(section.args)
    set_envs(container, section.env)
    modules = section.kernel_module_config.name
    container["volumeMounts"] += config_mounts(ctx, _MODULES, modules, MODULES_DIR)
    add_config_volume(ctx, pod, _MODULES, modules)
    set_host_network(pod, section.host_network)
