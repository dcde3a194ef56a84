"""What an NVIDIADriver mounts beside the driver's own files: packages, certificates, module parameters, vGPU licence."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuward.crd.nvidiadriver import NVIDIADriver, NVIDIADriverSpec
from gpuward.errors import PolicyError
from gpuward.operands.driver.options import LICENCE, LICENCE_TOKEN, MODULES_DIR, PACKAGE_DIRS, TOPOLOGY, subscriptions
from gpuward.operands.facts import ClusterFacts, Runtime
from gpuward.operands.nvidiadriver.pools import Pool, app_name
from gpuward.operands.objects import Json, config_map_volume, host_path, mount, secret_volume, volume_name


class DriverContext(msgspec.Struct, frozen=True):
    """Bundle what the driver of one node pool is rendered from."""

    driver: NVIDIADriver
    pool: Pool
    facts: ClusterFacts
    images: Mapping[str, str] = {}
    """Images that the operator's environment gives for what the NVIDIADriver leaves open."""
    host_root: str = "/"

    @property
    def spec(self) -> NVIDIADriverSpec:
        """Return the NVIDIADriver's spec."""
        return self.driver.spec

    @property
    def runtime(self) -> Runtime:
        """Return the container runtime for which the mounts are chosen."""
        return self.facts.runtime_of_driver(app_name(self.driver, self.pool))


class Configs(msgspec.Struct, frozen=True):
    """Hold mounts and their volumes. The order is part of the pod template."""

    mounts: list[Json]
    volumes: list[Json]

    def add(self, volume: Json, mounts: list[Json]) -> None:
        """Append a volume and the mounts of it; one that is there already is not repeated."""
        self.mounts.extend(mounts)
        if volume not in self.volumes:
            self.volumes.append(volume)


def configs(ctx: DriverContext) -> Configs:
    """Return the further mounts of a pool's driver.

    Raises:
        PolicyError: a ConfigMap or the licence's Secret does not exist, or the operating system has no known place for its files.
    """
    made = Configs([], [])
    if ctx.spec.is_precompiled:
        _add_host_modules(ctx, made)
    else:
        _add_packages(ctx, made)
        _add_subscriptions(ctx, made)
    _add_config_map(ctx, made, "spec.kernelModuleConfig.name", ctx.spec.kernel_module_config.name, MODULES_DIR)
    _add_licence(ctx, made)
    if topology := ctx.spec.virtual_topology_config.name:
        ctx.facts.config_map_keys("spec.virtualTopologyConfig.name", topology)
        key, path = TOPOLOGY
        made.add(config_map_volume("topology-config", topology, items=[(key, key)]),
                 [mount("topology-config", path, read_only=True, sub_path=key)])
    return made


def _add_packages(ctx: DriverContext, made: Configs) -> None:
    wanted = (("spec.repoConfig.name", ctx.spec.repo_config.name), ("spec.certConfig.name", ctx.spec.cert_config.name))
    for place, (field, name) in enumerate(wanted):
        if name and ctx.pool.os_id not in PACKAGE_DIRS:
            raise PolicyError(field, name, f"remove it: where {ctx.pool.os_id} reads such files is not known, "
                                           f"only {', '.join(PACKAGE_DIRS)}")
        if name:
            _add_config_map(ctx, made, field, name, PACKAGE_DIRS[ctx.pool.os_id][place])


def _add_config_map(ctx: DriverContext, made: Configs, field: str, name: str, directory: str) -> None:
    if not name:
        return
    keys = ctx.facts.config_map_keys(field, name)
    volume = volume_name(name)
    made.add(config_map_volume(volume, name, items=[(key, key) for key in keys]),
             [mount(volume, f"{directory}/{key}", read_only=True, sub_path=key) for key in keys])


def _add_subscriptions(ctx: DriverContext, made: Configs) -> None:
    found = subscriptions(ctx.pool.os_id, ctx.runtime, own_repositories=bool(ctx.spec.repo_config.name))
    for number, (inside, outside, kind) in enumerate(found):
        name = f"subscription-config-{number}"
        made.add(host_path(name, outside, kind), [mount(name, inside, read_only=True)])


def _add_host_modules(ctx: DriverContext, made: Configs) -> None:
    """Mount the host's kernel modules, which a precompiled driver links with on SUSE."""
    if ctx.pool.os_id in ("sles", "sl-micro"):
        made.add(host_path("lib-modules", "/lib/modules", "Directory"),
                 [mount("lib-modules", "/run/host/lib/modules", read_only=True)])


def _add_licence(ctx: DriverContext, made: Configs) -> None:
    licence = ctx.spec.licensing_config
    if not (licence.secret_name or licence.name):
        return
    if licence.secret_name:
        ctx.facts.need_secret("spec.licensingConfig.secretName", licence.secret_name)
    else:
        ctx.facts.config_map_keys("spec.licensingConfig.name", licence.name)
    files = [LICENCE, LICENCE_TOKEN] if licence.is_nls_enabled else [LICENCE]
    items = [(key, key) for key, _ in files]
    volume = (secret_volume("licensing-config", licence.secret_name, items) if licence.secret_name
              else config_map_volume("licensing-config", licence.name, items=items))
    made.add(volume, [mount("licensing-config", path, read_only=True, sub_path=key) for key, path in files])
