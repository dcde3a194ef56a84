"""The config manager beside device plugin, GPU feature discovery and MPS daemon: it picks each node's plugin configuration."""

from __future__ import annotations

from gpuward import names
from gpuward.crd.shapes import Resources
from gpuward.operands import images
from gpuward.operands.common import add_volume, set_env, set_resources
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    Json,
    config_map_volume,
    empty_dir,
    env,
    find,
    mount,
    node_name_env,
    privileged,
    volume_name,
)

CONFIG_FILE = "/config/config.yaml"
CONFIGS_DIR = "/available-configs"


def plugin_image(ctx: Context) -> str:
    """Return the device plugin's image; raises PolicyError when there is none."""
    return images.resolve("spec.devicePlugin", ctx.spec.device_plugin, "DEVICE_PLUGIN_IMAGE", ctx.images)


def sidecar(ctx: Context, process: str) -> list[Json]:
    """Return the container that follows the node's label and tells `process` to reload; none without a configuration."""
    if not ctx.spec.device_plugin.config.name:
        return []
    return [{**_manager("config-manager", oneshot="false", signal="1", process=process), "securityContext": privileged()}]


def init_container(ctx: Context) -> list[Json]:
    """Return the init container that writes the first configuration; none without a configuration."""
    if not ctx.spec.device_plugin.config.name:
        return []
    return [_manager("config-manager-init", oneshot="true", signal="", process="")]


def _manager(name: str, *, oneshot: str, signal: str, process: str) -> Json:
    return {
        "name": name,
        "command": ["config-manager"],
        "env": [
            env("ONESHOT", oneshot),
            env("KUBECONFIG", ""),
            node_name_env(),
            env("NODE_LABEL", names.DEVICE_PLUGIN_CONFIG),
            env("CONFIG_FILE_SRCDIR", CONFIGS_DIR),
            env("CONFIG_FILE_DST", CONFIG_FILE),
            env("DEFAULT_CONFIG", ""),
            env("SEND_SIGNAL", "true" if process else "false"),
            env("SIGNAL", signal),
            env("PROCESS_TO_SIGNAL", process),
        ],
    }


def fill_plugin_config(ctx: Context, pod: Json, main: str, init_resources: Resources | None) -> None:
    """Give the pod the plugin's configurations and fill the config manager; nothing without a configuration.

    Raises:
        PolicyError: there is no image for the device plugin, or the ConfigMap's name is that of another volume.
    """
    plugin = ctx.spec.device_plugin
    if not plugin.config.name:
        return
    container = find(pod["containers"], main)
    set_env(container, "CONFIG_FILE", CONFIG_FILE)
    if not pod.get("hostPID"):
        pod["shareProcessNamespace"] = True
    volume = volume_name(plugin.config.name)
    for each in (config_map_volume(volume, plugin.config.name), empty_dir("config")):
        add_volume(pod, each, "spec.devicePlugin.config.name", plugin.config.name)
    init = find(pod["initContainers"], "config-manager-init")
    follower = find(pod["containers"], "config-manager")
    set_resources(init, init_resources)
    for manager in (init, follower):
        manager["image"] = plugin_image(ctx)
        if plugin.image_pull_policy:
            manager["imagePullPolicy"] = images.pull_policy(plugin)
        set_env(manager, "DEFAULT_CONFIG", plugin.config.default)
        set_env(manager, "FALLBACK_STRATEGIES", "empty")
    for each in (container, init, follower):
        each.setdefault("volumeMounts", []).extend([mount("config", "/config"), mount(volume, CONFIGS_DIR)])
