"""Options of the driver: kernel modules, probe, vGPU licence, and where packages and certificates come from."""

from __future__ import annotations

from collections.abc import Mapping

from gpuward import names
from gpuward.crd.shapes import Probe
from gpuward.errors import PolicyError
from gpuward.operands.common import add_volume, set_env
from gpuward.operands.facts import Context, Runtime
from gpuward.operands.objects import Json, config_map_volume, find, host_path, mount, secret_volume, volume_name

MODULES_DIR = "/drivers"
LICENCE = ("gridd.conf", "/drivers/gridd.conf")
LICENCE_TOKEN = ("client_configuration_token.tok", "/drivers/ClientConfigToken/client_configuration_token.tok")
TOPOLOGY = ("nvidia-topologyd.conf", "/etc/nvidia/nvidia-topologyd.conf")

_RED_HAT = ("/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem")
_DEBIAN = ("/etc/apt/sources.list.d", "/usr/local/share/ca-certificates")
_SUSE = ("/etc/zypp/repos.d", "/etc/pki/trust/anchors")
PACKAGE_DIRS: Mapping[str, tuple[str, str]] = {
    "centos": _RED_HAT, "rhcos": _RED_HAT, "rhel": _RED_HAT, "rocky": _RED_HAT, "ol": _RED_HAT,
    "debian": _DEBIAN, "ubuntu": _DEBIAN,
    "sles": _SUSE, "sl-micro": _SUSE,
}
"""Where each operating system's package manager reads repository files and certificates, by the ID of os-release."""

SUBSCRIPTIONS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "rhel": (
        ("/run/secrets/etc-pki-entitlement", names.SUBSCRIPTION, "Directory"),
        ("/run/secrets/redhat.repo", "/etc/yum.repos.d/redhat.repo", "File"),
        ("/run/secrets/rhsm", "/etc/rhsm", "Directory"),
    ),
    "sles": (
        ("/etc/SUSEConnect", "/etc/SUSEConnect", "FileOrCreate"),
        ("/etc/zypp/credentials.d", "/etc/zypp/credentials.d", "Directory"),
    ),
}
"""A subscribed host's files that let its containers download packages: path in the container, on the host, type."""


def fill_features(ctx: Context, pod: Json, container: Json) -> None:
    """Say which flavour of the kernel modules to build, and which other modules will be loaded."""
    driver = ctx.spec.driver
    set_env(container, "KERNEL_MODULE_TYPE", driver.kernel_module_type)
    if driver.kernel_module_type == "open":
        set_env(container, "OPEN_KERNEL_MODULES_ENABLED", "true")
    if ctx.spec.gdrcopy.is_enabled:
        set_env(container, "GDRCOPY_ENABLED", "true")
    if ctx.spec.gds.is_enabled:
        set_env(container, "GDS_ENABLED", "true")
    if driver.rdma.is_enabled:
        set_env(container, "GPU_DIRECT_RDMA_ENABLED", "true")
    if driver.rdma.uses_host_mofed:
        find(pod["volumes"], "mlnx-ofed-usr-src")["hostPath"]["path"] = "/usr/src"
        set_env(container, "USE_HOST_MOFED", "true")


def fill_probe(container: Json, probe: Probe | None) -> None:
    """Override the timings of the startup probe that the policy gives; what is absent or 0 keeps the usual value."""
    if probe is None:
        return
    timings = {
        "initialDelaySeconds": probe.initial_delay_seconds,
        "timeoutSeconds": probe.timeout_seconds,
        "failureThreshold": probe.failure_threshold,
        "successThreshold": probe.success_threshold,
        "periodSeconds": probe.period_seconds,
    }
    container["startupProbe"].update({name: value for name, value in timings.items() if value})


def fill_vgpu(ctx: Context, pod: Json, container: Json) -> None:
    """Mount what guests with a virtual GPU need: licence and topology; and the parameters of the kernel modules.

    Raises:
        PolicyError: a ConfigMap or the Secret of the licence does not exist, or one is called as another volume.
    """
    driver = ctx.spec.driver
    licensing = driver.licensing_config
    if licensing.secret_name:
        ctx.facts.need_secret("spec.driver.licensingConfig.secretName", licensing.secret_name)
    elif licensing.config_map_name:
        ctx.config_map_keys("spec.driver.licensingConfig.configMapName", licensing.config_map_name)
    if licensing.secret_name or licensing.config_map_name:
        files = [LICENCE, LICENCE_TOKEN] if licensing.is_nls_enabled else [LICENCE]
        items = [(name, name) for name, _ in files]
        container["volumeMounts"] += [mount("licensing-config", path, read_only=True, sub_path=name) for name, path in files]
        pod["volumes"].append(
            secret_volume("licensing-config", licensing.secret_name, items) if licensing.secret_name
            else config_map_volume("licensing-config", licensing.config_map_name, items=items))
    if driver.virtual_topology.config:
        ctx.config_map_keys("spec.driver.virtualTopology.config", driver.virtual_topology.config)
        name, path = TOPOLOGY
        container["volumeMounts"].append(mount("topology-config", path, read_only=True, sub_path=name))
        pod["volumes"].append(config_map_volume("topology-config", driver.virtual_topology.config, items=[(name, name)]))
    container["volumeMounts"] += module_config_mounts(ctx)
    add_config_volume(ctx, pod, "spec.driver.kernelModuleConfig.name", driver.kernel_module_config.name)


def fill_host_packages(ctx: Context, pod: Json, container: Json) -> None:
    """Mount package repositories, certificates and subscriptions, and take variables from a Secret.

    Raises:
        PolicyError: a ConfigMap or the Secret does not exist, or the operating system has no known place for them.
    """
    driver = ctx.spec.driver
    container["volumeMounts"] += package_mounts(ctx)
    add_config_volume(ctx, pod, "spec.driver.repoConfig.configMapName", driver.repo_config.config_map_name)
    add_config_volume(ctx, pod, "spec.driver.certConfig.name", driver.cert_config.name)
    fill_secret_env(ctx, container)
    runtime = ctx.facts.runtime_of_driver(names.DRIVER_APP)
    own_repositories = bool(driver.repo_config.config_map_name)
    for number, (inside, outside, kind) in enumerate(subscriptions(ctx.facts.os_id, runtime, own_repositories=own_repositories)):
        name = f"subscription-config-{number}"
        container["volumeMounts"].append(mount(name, inside, read_only=True))
        pod["volumes"].append(host_path(name, outside, kind))


def fill_host_modules(os_id: str, pod: Json, container: Json) -> None:
    """Mount the host's kernel modules, which a precompiled driver links with on SUSE."""
    if os_id in ("sles", "sl-micro"):
        container["volumeMounts"].append(mount("lib-modules", "/run/host/lib/modules", read_only=True))
        pod["volumes"].append(host_path("lib-modules", "/lib/modules", "Directory"))


def module_config_mounts(ctx: Context) -> list[Json]:
    """Return the mounts of the files with kernel module parameters."""
    return config_mounts(ctx, "spec.driver.kernelModuleConfig.name", ctx.spec.driver.kernel_module_config.name, MODULES_DIR)


def package_mounts(ctx: Context) -> list[Json]:
    """Return the mounts of package repository files and certificates; raises PolicyError as `fill_host_packages` does."""
    driver = ctx.spec.driver
    repositories, certificates = driver.repo_config.config_map_name, driver.cert_config.name
    if not repositories and not certificates:
        return []
    field = "spec.driver.repoConfig" if repositories else "spec.driver.certConfig"
    if ctx.facts.os_id not in PACKAGE_DIRS:
        raise PolicyError(field, repositories or certificates,
                          f"remove it: where {ctx.facts.os_id} reads such files is not known, only {', '.join(PACKAGE_DIRS)}")
    repository_dir, certificate_dir = PACKAGE_DIRS[ctx.facts.os_id]
    return [
        *config_mounts(ctx, "spec.driver.repoConfig.configMapName", repositories, repository_dir),
        *config_mounts(ctx, "spec.driver.certConfig.name", certificates, certificate_dir),
    ]


def fill_secret_env(ctx: Context, container: Json) -> None:
    """Take variables from the Secret that the policy names; raises PolicyError when it does not exist."""
    name = ctx.spec.driver.secret_env
    if not name:
        return
    ctx.facts.need_secret("spec.driver.secretEnv", name)
    container.setdefault("envFrom", []).append({"secretRef": {"name": name}})


def config_mounts(ctx: Context, field: str, config_map: str, directory: str) -> list[Json]:
    """Return a mount for each key of the ConfigMap that `field` names, if it names one; raises PolicyError if it is not there."""
    keys = ctx.config_map_keys(field, config_map) if config_map else ()
    return [mount(volume_name(config_map), f"{directory}/{key}", read_only=True, sub_path=key) for key in keys]


def add_config_volume(ctx: Context, pod: Json, field: str, config_map: str) -> None:
    """Add the volume that `config_mounts` mounts."""
    if config_map:
        keys = ctx.config_map_keys(field, config_map)
        volume = config_map_volume(volume_name(config_map), config_map, items=[(key, key) for key in keys])
        add_volume(pod, volume, field, config_map)


def subscriptions(os_id: str, runtime: Runtime, *, own_repositories: bool) -> tuple[tuple[str, str, str], ...]:
    """Return the subscription files to mount. Own repositories stand in for a RHEL subscription, which CRI-O mounts itself."""
    if os_id == "rhel" and (runtime == "crio" or own_repositories):
        return ()
    return SUBSCRIPTIONS.get("sles" if os_id == "sl-micro" else os_id, ())


def made_for_runtime(os_id: str, runtime: Runtime) -> dict[str, str]:
    """Return the annotation of a driver's DaemonSet that says for which runtime `subscriptions` were chosen, where it matters."""
    return {names.DRIVER_RUNTIME: runtime} if os_id == "rhel" else {}
