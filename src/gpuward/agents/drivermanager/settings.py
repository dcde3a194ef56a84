"""Flags and environment of the driver manager, as NVIDIA's has them: each flag reads a variable, too."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from gpuward.agents.drivermanager.facts import Settings
from gpuward.crd.durations import parse_duration
from gpuward.errors import InputError
from gpuward.model.selectors import is_selector

COMMANDS: Final = ("uninstall_driver", "preflight_check")
TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False", ""})
"""What Go reads as booleans; nothing at all is false."""
SWITCHES: Final = {
    "drain-use-force": ("DRAIN_USE_FORCE", "false", "Evict pods without a controller, too."),
    "drain-delete-emptydir-data": ("DRAIN_DELETE_EMPTYDIR_DATA", "false", "Evict pods with emptyDir volumes; the data is lost."),
    "enable-auto-drain": ("ENABLE_AUTO_DRAIN", "true", "Drain the node where evicting the GPU pods does not do."),
    "enable-gpu-pod-eviction": ("ENABLE_GPU_POD_EVICTION", "true", "Evict the GPU pods before the driver is unloaded."),
    "gpu-direct-rdma-enabled": ("GPU_DIRECT_RDMA_ENABLED", "false", "Wait for Mellanox' driver."),
    "use-host-mofed": ("USE_HOST_MOFED", "false", "Take the host's Mellanox driver for it."),
    "force-reinstall": ("FORCE_REINSTALL", "false", "Unload a driver of the wanted configuration, too."),
}
TEXTS: Final = {
    "node-name": ("NODE_NAME", "", "The node that this runs on."),
    "operator-namespace": ("OPERATOR_NAMESPACE", "gpu-operator", "Where the operands run."),
    "drain-pod-selector-label": ("DRAIN_POD_SELECTOR_LABEL", "", "Drain only pods with these labels."),
    "drain-timeout-seconds": ("DRAIN_TIMEOUT_SECONDS", "0s", "How long to wait for pods to go; 0s is no limit."),
    "node-label-for-gpu-pod-eviction": ("NODE_LABEL_FOR_GPU_POD_EVICTION", "", "Another label that turns operands on and off."),
    "kubeconfig": ("KUBECONFIG", "", "Use this kubeconfig file."),
}


@dataclass(frozen=True, slots=True)
class Called:
    """Say what the driver manager is to do, and how."""

    command: str
    settings: Settings
    kubeconfig: str = ""


class UnknownCommandError(InputError):
    """Refuse a subcommand, with the exit code that NVIDIA's has for it."""

    exit_code = 3


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError("arguments", message, "see --help")


def read_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> Called:
    """Read flags before the subcommand, and variables for those that are not given.

    Raises:
        InputError: a value cannot be used; the message names the flag or the variable.
    """
    parser = _Parser(prog="driver-manager", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
                     description="Make room on a node for the driver that is to be installed.",
                     epilog="Commands:\n  uninstall_driver  unload the driver that is there, unless it is the wanted one\n"
                            "  preflight_check   check flags, variables and the way to the API server")
    for flag, (variable, _, said) in {**TEXTS, **SWITCHES}.items():
        parser.add_argument(f"--{flag}", metavar=variable, help=said)
    parser.add_argument("command", nargs="?", default="preflight_check")
    # As in Go, a switch takes a value by = only.
    given = parser.parse_args([f"{each}=true" if each.removeprefix("--") in SWITCHES else each for each in arguments])
    if given.command not in COMMANDS:
        raise UnknownCommandError("command", given.command, f"there are {' and '.join(COMMANDS)}")

    def text(flag: str) -> tuple[str, str]:
        variable, default, _ = {**TEXTS, **SWITCHES}[flag]
        said = getattr(given, flag.replace("-", "_"))
        return (f"--{flag}", said) if said is not None else (variable, environ.get(variable) or default)

    def switch(flag: str) -> bool:
        name, value = text(flag)
        if value not in TRUE | FALSE:
            raise InputError(name, value, "write true or false")
        return value in TRUE

    name, value = text("drain-timeout-seconds")
    timeout = parse_duration(name, value)
    if timeout < 0:
        raise InputError(name, value, "write a time that is not negative, such as 300s")
    _check_selector(*text("drain-pod-selector-label"))
    if not text("node-name")[1]:
        raise InputError("NODE_NAME", "", "set it to the name of the node that this runs on")
    return Called(given.command, Settings(
        node=text("node-name")[1], namespace=text("operator-namespace")[1], eviction=switch("enable-gpu-pod-eviction"),
        auto_drain=switch("enable-auto-drain"), force=switch("drain-use-force"),
        delete_empty_dir=switch("drain-delete-emptydir-data"), selector=text("drain-pod-selector-label")[1], timeout=timeout,
        custom_label=text("node-label-for-gpu-pod-eviction")[1], rdma=switch("gpu-direct-rdma-enabled"),
        host_mofed=switch("use-host-mofed"), reinstall=switch("force-reinstall"),
        digest=environ.get("DRIVER_CONFIG_DIGEST", "")), text("kubeconfig")[1])


def _check_selector(name: str, selector: str) -> None:
    if not is_selector(selector):
        raise InputError(name, selector, "write a label selector, such as app=training")
