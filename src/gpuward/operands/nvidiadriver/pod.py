"""The pod template of an NVIDIADriver's DaemonSet. The order of lists is NVIDIA's, so that moving here replaces no pod."""

from __future__ import annotations

from collections.abc import Mapping

from gpuward import names
from gpuward.crd.nvidiadriver import NVIDIADriverSpec
from gpuward.crd.shapes import EnvVar, Image, Probe, Sidecar
from gpuward.errors import PolicyError
from gpuward.operands import images
from gpuward.operands.common import add_pull_secrets, set_host_network, set_resources
from gpuward.operands.driver import pod as driver_pod
from gpuward.operands.driver import sidecars as driver_sidecars
from gpuward.operands.driver.digest import Value, digest, mounts_value, volumes_value
from gpuward.operands.nvidiadriver.configs import Configs, DriverContext, configs
from gpuward.operands.objects import Json, env, find, host_path, mount
from gpuward.operands.own_agents import use_own_agent

_ALONE = {"key": names.COMPONENT_LABEL, "operator": "In", "values": [names.DRIVER_COMPONENT, "nvidia-vgpu-manager"]}
_ALONE_ON_HOSTS = (
    {"key": names.COMPONENT_LABEL, "operator": "In", "values": [names.VGPU_HOST_COMPONENT]},
    {"key": "app", "operator": "In", "values": [names.VGPU_MANAGER_APP]},
)
_VOID = ("NVIDIA_VISIBLE_DEVICES", "void")


def pod_spec(ctx: DriverContext, account: str) -> Json:
    """Return the driver pod of a node pool.

    Raises:
        PolicyError: an image is not named, or something that the NVIDIADriver refers to does not exist.
    """
    spec, extra = ctx.spec, configs(ctx)
    pictures = _images(ctx)
    fingerprint = digest(_fields(ctx, pictures, extra))
    rest = driver_sidecars.bare(rdma=spec.rdma.is_enabled, gds=spec.gds.is_enabled, gdrcopy=spec.gdrcopy.is_enabled)
    wanted = names.DEPLOY_VGPU_MANAGER if spec.is_for_hosts else names.DEPLOY_DRIVER
    pod: Json = {
        "hostPID": True,
        "nodeSelector": {wanted: "true", **ctx.pool.node_selector},
        "tolerations": [{"key": names.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}, *map(dict, spec.tolerations)],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchExpressions": [_ALONE]}, "topologyKey": "kubernetes.io/hostname"},
        ]}},
        "priorityClassName": spec.priority_class_name or "system-node-critical",
        "serviceAccountName": account,
        "initContainers": [_manager(spec, fingerprint)],
        "containers": [_driver(spec, fingerprint), *rest],
        "volumes": [*_volumes(ctx), *extra.volumes],
    }
    for container in (*pod["initContainers"], *pod["containers"]):
        container["image"] = pictures[container["name"]]
        set_resources(container, spec.resources)
        use_own_agent(container)
    _fill_sidecars(ctx, rest)
    for container in pod["containers"]:
        container["volumeMounts"] += extra.mounts
    if spec.pod_security_context:
        pod["securityContext"] = dict(spec.pod_security_context)
    set_host_network(pod, spec.host_network)
    if spec.is_for_hosts:
        _turn_to_hosts(pod)
    for image in (_image(spec), spec.manager, *(part for part in (spec.gds, spec.gdrcopy) if part.is_enabled)):
        add_pull_secrets(pod, image.image_pull_secrets)
    return pod


def _turn_to_hosts(pod: Json) -> None:
    """Make of a driver for containers one for hosts of vGPUs: it reaches their devices, no probe looks at it, and it is never
    beside another one for hosts, as a vGPU manager's pod that its DaemonSet left behind or one that is ending.
    """
    alone = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    alone += [{"labelSelector": {"matchExpressions": [one]}, "topologyKey": "kubernetes.io/hostname"} for one in _ALONE_ON_HOSTS]
    pod["terminationGracePeriodSeconds"] = 120
    container = find(pod["containers"], driver_pod.CONTAINER)
    del container["startupProbe"], container["lifecycle"]
    for parts, one in ((container["volumeMounts"], mount), (pod["volumes"], host_path)):
        at = parts.index(find(parts, "host-os-release")) + 1
        parts[at:at] = [one("cgroup", "/sys/fs/cgroup"), one("vfio", "/dev/vfio")]


def _image(spec: NVIDIADriverSpec) -> Image:
    """Return the driver's own image as a part of the spec like the others."""
    return Image(repository=spec.repository, image=spec.image, version=spec.version,
                 image_pull_policy=spec.image_pull_policy, image_pull_secrets=spec.image_pull_secrets)


def _images(ctx: DriverContext) -> Mapping[str, str]:
    """Return the image of each container by the container's name."""
    spec, tag = ctx.spec, ctx.pool.os_tag
    driver = images.resolve("spec", _image(spec), "", {})
    if ctx.pool.kernel:
        if "sha256:" in driver:
            raise PolicyError("spec.version", spec.version or spec.image,
                              "name a driver branch such as 580: a digest is the image of one kernel only")
        driver = f"{driver}-{ctx.pool.kernel}"
    driver = images.with_os_tag(driver, tag)
    found = {
        driver_pod.MANAGER: manager_image(ctx),
        driver_pod.CONTAINER: driver,
        driver_sidecars.PEERMEM: driver,
    }
    for name, field, part in _parts(spec):
        found[name] = images.with_os_tag(images.resolve(field, part, "", {}), tag)
    return found


def _parts(spec: NVIDIADriverSpec) -> list[tuple[str, str, Sidecar]]:
    parts: tuple[tuple[str, str, Sidecar], ...] = (
        (driver_sidecars.FS, "spec.gds", spec.gds), (driver_sidecars.GDRCOPY, "spec.gdrcopy", spec.gdrcopy))
    return [part for part in parts if part[2].is_enabled]


def manager_image(ctx: DriverContext) -> str:
    """Return the driver manager's image; raises PolicyError when there is none."""
    return images.resolve("spec.manager", ctx.spec.manager, "DRIVER_MANAGER_IMAGE", ctx.images)


def _manager(spec: NVIDIADriverSpec, fingerprint: str) -> Json:
    container = driver_pod.manager()
    container["imagePullPolicy"] = images.pull_policy(spec.manager)
    container["env"] += [env(names.DRIVER_CONFIG_DIGEST, fingerprint), *_rdma_env(spec), *_env(spec.manager.env)]
    return container


def _driver(spec: NVIDIADriverSpec, fingerprint: str) -> Json:
    container = driver_pod.container()
    container["imagePullPolicy"] = images.pull_policy(_image(spec))
    container["args"] += list(spec.args)
    mounts = container["volumeMounts"]
    firmware = find(mounts, "firmware-search-path")
    mounts.remove(firmware)
    mounts.insert(mounts.index(find(mounts, "host-sys-devices-system")), firmware)
    if spec.secret_env:
        container["envFrom"] = [{"secretRef": {"name": spec.secret_env}}]
    variables = [env(*_VOID), *container["env"], env(names.DRIVER_CONFIG_DIGEST, fingerprint)]
    variables.append(env("KERNEL_MODULE_TYPE", spec.kernel_module_type))
    if spec.kernel_module_type == "open":
        variables.append(env("OPEN_KERNEL_MODULES_ENABLED", "true"))
    if spec.gds.is_enabled:
        variables.append(env("GDS_ENABLED", "true"))
    if spec.gdrcopy.is_enabled:
        variables.append(env("GDRCOPY_ENABLED", "true"))
    container["env"] = [*variables, *_env(spec.env), *_rdma_env(spec)]
    container["startupProbe"] = {"exec": container["startupProbe"]["exec"], **_timings(spec)}
    return container


def _rdma_env(spec: NVIDIADriverSpec) -> list[Json]:
    enabled = [env("GPU_DIRECT_RDMA_ENABLED", "true")] if spec.rdma.is_enabled else []
    return enabled + ([env("USE_HOST_MOFED", "true")] if spec.rdma.uses_host_mofed else [])


def _env(variables: tuple[EnvVar, ...]) -> list[Json]:
    return [env(variable.name, variable.value) for variable in variables]


def _timings(spec: NVIDIADriverSpec) -> Json:
    """Return the startup probe's timings: the NVIDIADriver's own replace the usual ones all together."""
    usual = Probe(initial_delay_seconds=5 if spec.is_precompiled else 60, timeout_seconds=60, period_seconds=10,
                  success_threshold=1, failure_threshold=120)
    probe = spec.startup_probe or usual
    timings = {
        "initialDelaySeconds": probe.initial_delay_seconds, "timeoutSeconds": probe.timeout_seconds,
        "periodSeconds": probe.period_seconds, "successThreshold": probe.success_threshold,
        "failureThreshold": probe.failure_threshold,
    }
    return {name: value for name, value in timings.items() if value}


def _volumes(ctx: DriverContext) -> list[Json]:
    made = driver_pod.volumes()
    find(made, "host-root")["hostPath"]["path"] = ctx.host_root or "/"
    if ctx.spec.rdma.uses_host_mofed:
        find(made, "mlnx-ofed-usr-src")["hostPath"]["path"] = "/usr/src"
    return made


def _fill_sidecars(ctx: DriverContext, made: list[Json]) -> None:
    """Put the NVIDIADriver's sections into the sidecars. GPUDirect Storage is always pulled only where it is missing."""
    spec = ctx.spec
    parts = {name: part for name, _, part in _parts(spec)}
    for container in made:
        if container["name"] == driver_sidecars.PEERMEM:
            container["imagePullPolicy"] = images.pull_policy(_image(spec))
            container["env"] = [env(*_VOID), *(_rdma_env(spec)[1:])]
            continue
        part = parts[container["name"]]
        if container["name"] == driver_sidecars.GDRCOPY:
            container["imagePullPolicy"] = images.pull_policy(part)
        if part.env:
            container["env"] = _env(part.env)
        if spec.secret_env:
            container["envFrom"] = [{"secretRef": {"name": spec.secret_env}}]


def _fields(ctx: DriverContext, pictures: Mapping[str, str], extra: Configs) -> dict[str, Value]:
    """Return what the digest covers: unlike with a ClusterPolicy it is what people wrote, not the finished pod."""
    spec = ctx.spec
    rdma = spec.rdma.is_enabled
    return {
        "DriverImage": pictures[driver_pod.CONTAINER], "DriverManagerImage": pictures[driver_pod.MANAGER],
        "DriverType": spec.driver_type, "KernelModuleType": spec.kernel_module_type,
        "DriverArgs": list(spec.args), "SecretEnvSource": spec.secret_env,
        "DriverEnv": _env_value(spec.env), "ManagerEnv": _env_value(spec.manager.env),
        "LicensingConfigName": spec.licensing_config.secret_name,
        "VirtualTopologyConfig": spec.virtual_topology_config.name,
        "KernelModuleConfig": spec.kernel_module_config.name,
        "RepoConfig": spec.repo_config.name, "CertConfig": spec.cert_config.name,
        "GPUDirectRDMAEnabled": rdma, "PeermemImage": pictures[driver_sidecars.PEERMEM] if rdma else "",
        "UseHostMOFED": spec.rdma.uses_host_mofed,
        **_sidecar_fields(spec, pictures),
        "UsePrecompiled": bool(ctx.pool.kernel), "KernelVersion": ctx.pool.kernel,
        "AdditionalVolumeMounts": mounts_value(extra.mounts), "AdditionalVolumes": volumes_value(extra.volumes),
        "HostRoot": ctx.host_root,
    }


def _sidecar_fields(spec: NVIDIADriverSpec, pictures: Mapping[str, str]) -> dict[str, Value]:
    prefixes = {driver_sidecars.FS: "GDS", driver_sidecars.GDRCOPY: "GDRCopy"}
    fields: dict[str, Value] = {}
    for name, _, part in _parts(spec):
        prefix = prefixes[name]
        fields |= {f"{prefix}Image": pictures[name], f"{prefix}Enabled": True, f"{prefix}Env": _env_value(part.env)}
    return fields


def _env_value(variables: tuple[EnvVar, ...]) -> Value:
    return "EnvVar", sorted(({"Name": each.name, "Value": each.value} for each in variables), key=lambda each: each["Name"])
