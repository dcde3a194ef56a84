"""Containers beside the driver that load the kernel modules of GPUDirect RDMA, GPUDirect Storage and GDRCopy."""

from __future__ import annotations

from gpuward.crd.shapes import Sidecar
from gpuward.operands import images
from gpuward.operands.common import add_pull_secrets, set_env, set_envs
from gpuward.operands.driver import options as driver_options
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, exec_action, mount, privileged

PEERMEM = "nvidia-peermem-ctr"
FS = "nvidia-fs-ctr"
GDRCOPY = "nvidia-gdrcopy-ctr"


def sidecars(ctx: Context) -> list[Json]:
    """Return the sidecars that the policy turns on, as they are without the rest of it."""
    return bare(rdma=ctx.spec.driver.rdma.is_enabled, gds=ctx.spec.gds.is_enabled, gdrcopy=ctx.spec.gdrcopy.is_enabled)


def bare(*, rdma: bool, gds: bool, gdrcopy: bool) -> list[Json]:
    """Return the sidecars that are wanted, without what is configured about them."""
    made = []
    if rdma:
        made.append(_peermem())
    if gds:
        made.append(_module(FS, "nvidia-gds-driver", "nvidia_fs"))
    if gdrcopy:
        made.append(_module(GDRCOPY, "nvidia-gdrcopy-driver", "gdrdrv"))
    return made


def _peermem() -> Json:
    probe = {**exec_action("sh", "-c", "nvidia-driver probe_nvidia_peermem"), "timeoutSeconds": 10, "successThreshold": 1}
    return {
        "name": PEERMEM,
        "command": ["nvidia-driver"],
        "args": ["reload_nvidia_peermem"],
        "securityContext": privileged(se_linux=True),
        "startupProbe": {**probe, "initialDelaySeconds": 10, "failureThreshold": 120, "periodSeconds": 10},
        "livenessProbe": {**probe, "initialDelaySeconds": 30, "failureThreshold": 1, "periodSeconds": 30},
        "volumeMounts": [
            mount("run-nvidia", "/run/nvidia", propagation="Bidirectional"),
            mount("var-log", "/var/log"),
            mount("dev-log", "/dev/log", read_only=True),
            mount("run-mellanox-drivers", "/run/mellanox/drivers", propagation="HostToContainer"),
        ],
    }


def _module(name: str, installer: str, module: str) -> Json:
    """Return a container that builds and loads a module against the driver, once that is there.

    The command is part of the pod template and of no digest; it is spelled as NVIDIA's, so that moving here replaces no pod.
    """
    wait = "until [ -d /run/nvidia/driver/usr/src ] && lsmod | grep nvidia; do " \
           "echo  Waiting for nvidia-driver to be installed...; sleep 10; done"
    return {
        "name": name,
        "command": ["bash", "-xc"],
        "args": [f"{wait}; exec {installer} install"],
        "imagePullPolicy": "IfNotPresent",
        "securityContext": privileged(se_linux=True),
        "startupProbe": {
            **exec_action("sh", "-c", f"lsmod | grep {module}"),
            "initialDelaySeconds": 10, "periodSeconds": 10, "timeoutSeconds": 10,
            "successThreshold": 1, "failureThreshold": 120,
        },
        "volumeMounts": [
            mount("run-nvidia", "/run/nvidia", propagation="HostToContainer"),
            mount("var-log", "/var/log"),
            mount("dev-log", "/dev/log", read_only=True),
        ],
    }


def fill(ctx: Context, pod: Json, driver_image: str) -> None:
    """Put the policy's sections into the sidecars. Their resources are the driver's, set with those.

    Raises:
        PolicyError: a sidecar has no image.
    """
    for container in pod["containers"]:
        match container["name"]:
            case "nvidia-peermem-ctr":
                _fill_peermem(ctx, container, driver_image)
            case "nvidia-fs-ctr":
                _fill_module(ctx, pod, container, "spec.gds")
            case "nvidia-gdrcopy-ctr":
                _fill_module(ctx, pod, container, "spec.gdrcopy")


def _fill_peermem(ctx: Context, container: Json, driver_image: str) -> None:
    driver = ctx.spec.driver
    container["image"] = driver_image
    container["imagePullPolicy"] = images.pull_policy(driver)
    if driver.rdma.uses_host_mofed:
        set_env(container, "USE_HOST_MOFED", "true")
    container["volumeMounts"] += driver_options.module_config_mounts(ctx)


def _fill_module(ctx: Context, pod: Json, container: Json, field: str) -> None:
    sidecar: Sidecar
    sidecar, variable = (ctx.spec.gds, "GDS_IMAGE") if field == "spec.gds" else (ctx.spec.gdrcopy, "GDRCOPY_IMAGE")
    reference = images.resolve(field, sidecar, variable, ctx.images)
    container["image"] = images.with_os_tag(reference, ctx.facts.os_tag)
    if sidecar.image_pull_policy:
        container["imagePullPolicy"] = images.pull_policy(sidecar)
    add_pull_secrets(pod, sidecar.image_pull_secrets)
    set_envs(container, sidecar.env)
    container["volumeMounts"] += driver_options.package_mounts(ctx)
    driver_options.fill_secret_env(ctx, container)
