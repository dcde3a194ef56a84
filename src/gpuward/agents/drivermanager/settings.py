"""Flags and environment of the driver manager, as NVIDIA's has them: each flag reads a variable, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuward.agents.drivermanager.facts import Settings
from gpuward.agents.flags import TRUE, Flag, read_flags
from gpuward.errors import InputError
from gpuward.model.selectors import is_selector

COMMANDS: Final = ("uninstall_driver", "preflight_check")
FLAGS: Final = {
    "node-name": Flag("NODE_NAME", "", "The node that this runs on."),
    "operator-namespace": Flag("OPERATOR_NAMESPACE", "gpu-operator", "Where the operands run."),
    "enable-gpu-pod-eviction": Flag(
        "ENABLE_GPU_POD_EVICTION", "true", "Evict the GPU pods before the driver is unloaded.", switch=True),
    "enable-auto-drain": Flag("ENABLE_AUTO_DRAIN", "true", "Drain the node where evicting GPU pods does not do.", switch=True),
    "drain-use-force": Flag("DRAIN_USE_FORCE", "false", "Evict pods without a controller, too.", switch=True),
    "drain-delete-emptydir-data": Flag(
        "DRAIN_DELETE_EMPTYDIR_DATA", "false", "Evict pods with emptyDir volumes; the data is lost.", switch=True),
    "drain-pod-selector-label": Flag("DRAIN_POD_SELECTOR_LABEL", "", "Drain only pods with these labels."),
    "drain-timeout-seconds": Flag("DRAIN_TIMEOUT_SECONDS", "0s", "How long to wait for pods to go; 0s is no limit."),
    "node-label-for-gpu-pod-eviction": Flag(
        "NODE_LABEL_FOR_GPU_POD_EVICTION", "", "Another label that turns operands on and off."),
    "gpu-direct-rdma-enabled": Flag("GPU_DIRECT_RDMA_ENABLED", "false", "Wait for Mellanox' driver.", switch=True),
    "use-host-mofed": Flag("USE_HOST_MOFED", "false", "Take the host's Mellanox driver for it.", switch=True),
    "force-reinstall": Flag("FORCE_REINSTALL", "false", "Unload a driver of the wanted configuration, too.", switch=True),
    "kubeconfig": Flag("KUBECONFIG", "", "Use this kubeconfig file."),
}
ABOUT: Final = "Make room on a node for the driver that is to be installed."
HELP: Final = """Commands:
  uninstall_driver  unload the driver that is there, unless it is the wanted one
  preflight_check   check flags, variables and the way to the API server"""


@dataclass(frozen=True, slots=True)
class Called:
    """Say what the driver manager is to do, and how."""

    command: str
    settings: Settings
    kubeconfig: str = ""


class UnknownCommandError(InputError):
    """Refuse a subcommand, with the exit code that NVIDIA's has for it."""

    exit_code = 3


def read_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> Called:
    """Read flags before the subcommand, and variables for those that are not given.

    Raises:
        InputError: a value cannot be used; the message names the flag or the variable.
    """
    flags = read_flags("driver-manager", ABOUT, FLAGS, arguments, environ, HELP)
    if flags.words in (("help",), ("h",)):
        read_flags("driver-manager", ABOUT, FLAGS, ["--help"], environ, HELP)
    command = " ".join(flags.words) or "preflight_check"
    if command not in COMMANDS:
        raise UnknownCommandError("command", command, f"there are {' and '.join(COMMANDS)}")
    _check_selector(*flags.named("drain-pod-selector-label"))
    if not flags.text("node-name"):
        raise InputError("NODE_NAME", "", "set it to the name of the node that this runs on")
    return Called(command, Settings(
        node=flags.node("node-name"), namespace=flags.text("operator-namespace"), force=flags.switch("drain-use-force"),
        eviction=flags.switch("enable-gpu-pod-eviction"), auto_drain=flags.switch("enable-auto-drain"),
        delete_empty_dir=flags.switch("drain-delete-emptydir-data"), selector=flags.text("drain-pod-selector-label"),
        timeout=flags.duration("drain-timeout-seconds"),
        custom_label=flags.text("node-label-for-gpu-pod-eviction"), rdma=flags.switch("gpu-direct-rdma-enabled"),
        host_mofed=flags.switch("use-host-mofed"), reinstall=flags.switch("force-reinstall"),
        digest=environ.get("DRIVER_CONFIG_DIGEST", ""), switches=environ.get("BIND_NVSWITCHES", "") in TRUE),
        flags.text("kubeconfig"))


def _check_selector(name: str, selector: str) -> None:
    if not is_selector(selector):
        raise InputError(name, selector, "write a label selector, such as app=training")
