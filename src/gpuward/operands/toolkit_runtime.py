"""Where the toolkit finds the container runtime's configuration and socket, on the host and in its own container.

The policy's `toolkit.env` names files of the host; the container sees their directories mounted under /runtime, so that the
variables are rewritten to the paths in the container.
"""

from __future__ import annotations

import posixpath

import msgspec

from gpuward.operands.common import get_env, set_env
from gpuward.operands.facts import Context, Runtime
from gpuward.operands.objects import Json, host_path, mount

CONFIG_DIR = "/runtime/config-dir/"
DROP_IN_DIR = "/runtime/config-dir.d/"
SOCKET_DIR = "/runtime/sock-dir/"
NRI_SOCKET_DIR = "/runtime/nri-sock-dir/"
NRI_SOCKET = "/var/run/nri/nri.sock"


class RuntimeFiles(msgspec.Struct, frozen=True):
    """Name the variables of a container runtime, and its files on a host that keeps them in the usual place."""

    config_variable: str
    config: str
    drop_in: str = ""
    socket_variable: str = ""
    socket: str = ""


RUNTIMES: dict[Runtime, RuntimeFiles] = {
    "containerd": RuntimeFiles(
        "CONTAINERD_CONFIG", "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml",
        "CONTAINERD_SOCKET", "/run/containerd/containerd.sock",
    ),
    "docker": RuntimeFiles(
        "DOCKER_CONFIG", "/etc/docker/daemon.json",
        socket_variable="DOCKER_SOCKET", socket="/var/run/docker.sock",
    ),
    "crio": RuntimeFiles("CRIO_CONFIG", "/etc/crio/config.toml", "/etc/crio/crio.conf.d/99-nvidia.conf"),
}


def fill(ctx: Context, pod: Json, container: Json) -> None:
    """Tell the toolkit which runtime to configure, and mount that runtime's files."""
    runtime = ctx.facts.runtime
    set_env(container, "RUNTIME", runtime)
    if ctx.spec.cdi.is_nri_plugin_enabled:
        _mount_nri_socket(pod, container)
        return
    if runtime == "containerd":
        set_env(container, "CONTAINERD_RUNTIME_CLASS", ctx.runtime_class)
    files = RUNTIMES[runtime]
    _mount_config(runtime, files, pod, container)
    if files.drop_in:
        _mount_drop_in(runtime, files, pod, container)
    _rewrite_sources(container)
    if files.socket:
        _mount_socket(runtime, files, pod, container)


def _mount_nri_socket(pod: Json, container: Json) -> None:
    socket = get_env(container, "NRI_SOCKET") or NRI_SOCKET
    set_env(container, "NRI_SOCKET", NRI_SOCKET_DIR + posixpath.basename(socket))
    _mount(pod, container, "nri-socket", (posixpath.dirname(socket), NRI_SOCKET_DIR), "DirectoryOrCreate")


def _mount_config(runtime: Runtime, files: RuntimeFiles, pod: Json, container: Json) -> None:
    path = get_env(container, files.config_variable) or get_env(container, "RUNTIME_CONFIG") or files.config
    for variable in ("RUNTIME_CONFIG", files.config_variable):
        set_env(container, variable, CONFIG_DIR + posixpath.basename(path))
    _mount(pod, container, f"{runtime}-config", (posixpath.dirname(path), CONFIG_DIR), "DirectoryOrCreate")


def _mount_drop_in(runtime: Runtime, files: RuntimeFiles, pod: Json, container: Json) -> None:
    path = get_env(container, "RUNTIME_DROP_IN_CONFIG") or files.drop_in
    set_env(container, "RUNTIME_DROP_IN_CONFIG", DROP_IN_DIR + posixpath.basename(path))
    set_env(container, "RUNTIME_DROP_IN_CONFIG_HOST_PATH", path)
    _mount(pod, container, f"{runtime}-drop-in-config", (posixpath.dirname(path), DROP_IN_DIR), "DirectoryOrCreate")


def _mount_socket(runtime: Runtime, files: RuntimeFiles, pod: Json, container: Json) -> None:
    path = get_env(container, files.socket_variable) or files.socket
    for variable in ("RUNTIME_SOCKET", files.socket_variable):
        set_env(container, variable, SOCKET_DIR + posixpath.basename(path))
    _mount(pod, container, f"{runtime}-socket", (posixpath.dirname(path), SOCKET_DIR), "")


def _mount(pod: Json, container: Json, name: str, paths: tuple[str, str], kind: str) -> None:
    on_host, in_container = paths
    container["volumeMounts"].append(mount(name, in_container))
    pod["volumes"].append(host_path(name, on_host, kind))


def _rewrite_sources(container: Json) -> None:
    """Point the `file=` entries of RUNTIME_CONFIG_SOURCE at the host's root as the container sees it.

    Entries are separated by commas and not trimmed, so that ` file=/x` is left as it is: NVIDIA's operator does so too.
    """
    sources = get_env(container, "RUNTIME_CONFIG_SOURCE")
    if not sources:
        return
    rewritten = [
        f"file={posixpath.normpath('/host/' + entry.removeprefix('file='))}" if entry.startswith("file=") else entry
        for entry in sources.split(",")
    ]
    set_env(container, "RUNTIME_CONFIG_SOURCE", ",".join(rewritten))
