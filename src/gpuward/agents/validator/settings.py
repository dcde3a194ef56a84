"""Flags and environment of the validator, as NVIDIA's has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuward.agents.flags import Flag, Flags, checked_text, read_flags
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.errors import InputError

COMPONENTS: Final = (
    "driver", "toolkit", "cuda", "plugin", "mofed", "metrics", "vfio-pci", "vgpu-manager", "vgpu-devices", "cc-manager",
    "nvidia-fs", "gdrcopy", "nvidia-peermem")
SKIPPABLE: Final = ("toolkit", "cuda", "plugin")
NEEDS_NODE: Final = ("cuda", "plugin", "metrics", "vfio-pci", "vgpu-manager", "vgpu-devices", "cc-manager", "mofed")
NEEDS_NAMESPACE: Final = ("cuda", "plugin")
WORKLOAD_POD: Final = (
    "VALIDATOR_IMAGE", "VALIDATOR_IMAGE_PULL_POLICY", "VALIDATOR_IMAGE_PULL_SECRETS", "VALIDATOR_RUNTIME_CLASS")
FLAGS: Final = {
    "component": Flag("COMPONENT", "", f"What to validate: {', '.join(COMPONENTS)}.", "c"),
    "node-name": Flag("NODE_NAME", "", "The node that this runs on.", "n"),
    "namespace": Flag("OPERATOR_NAMESPACE", "", "Where the operands run.", "ns"),
    "with-wait": Flag("WITH_WAIT", "false", "Wait until the component is well.", "w", switch=True),
    "with-workload": Flag("WITH_WORKLOAD", "true", "Run a pod that uses a GPU.", "l", switch=True),
    "output-dir": Flag("OUTPUT_DIR", "/run/nvidia/validations", "Where the status files are.", "o"),
    "cleanup-all": Flag("CLEANUP_ALL", "false", "Remove all status files first.", "r", switch=True),
    "sleep-interval-seconds": Flag("SLEEP_INTERVAL_SECONDS", "1", "How long to wait between looks.", "s"),
    "mig-strategy": Flag("MIG_STRATEGY", "single", "Accepted as NVIDIA's has it. It changes nothing.", "m"),
    "metrics-port": Flag("METRICS_PORT", "0", "Where the metrics are served.", "p"),
    "default-gpu-workload-config": Flag("DEFAULT_GPU_WORKLOAD_CONFIG", "", "What nodes without a label are for.", "g"),
    "disable-dev-char-symlink-creation": Flag(
        "DISABLE_DEV_CHAR_SYMLINK_CREATION", "false", "Make no links in /dev/char.", switch=True),
    "host-root": Flag("HOST_ROOT", "/", "The root of the host."),
    "driver-install-dir": Flag("DRIVER_INSTALL_DIR", "/run/nvidia/driver", "Where a driver's container shows its root."),
    "driver-install-dir-ctr-path": Flag("DRIVER_INSTALL_DIR_CTR_PATH", "/run/nvidia/driver", "The same, in this container."),
    "driver-validation-skip-gpu-init": Flag(
        "DRIVER_VALIDATION_SKIP_GPU_INIT", "false", "Ask nvidia-smi for its version only.", switch=True),
    "skip-validation": Flag(
        "SKIP_VALIDATION", "false", f"Say that all is well without looking ({', '.join(SKIPPABLE)}).", switch=True),
    "kubeconfig": Flag("KUBECONFIG", "", "Use this kubeconfig file."),
}
HELP: Final = """Commands in place of --component:
  idle                     do nothing until told to end, then remove the status files: those of nodes for virtual machines with
                           --component of one of these, else those of nodes for containers
  await FILE ...           wait until one of these status files is there
  await-for WORKLOAD FILE  wait until this status file is there, or the node is for another kind of workload
  vector-add               add two vectors on the first GPU, by the driver's own library"""
COMMANDS: Final = {"idle": range(1), "await": range(1, 10), "await-for": range(2, 3), "vector-add": range(1)}
"""How many words may follow each."""


@dataclass(frozen=True, slots=True)
class ValidatorCall:
    """Say what the validator is to do, and how."""

    settings: ValidatorSettings
    words: tuple[str, ...] = ()
    clean: bool = False
    kubeconfig: str = ""


def read_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> ValidatorCall:
    """Read flags, and variables for those that are not given.

    Raises:
        InputError: a value cannot be used; the message names the flag or the variable.
    """
    flags = read_flags(
        "nvidia-validator", "Tell whether a component of the GPU stack works on this node.", FLAGS, arguments, environ, HELP)
    words, component = flags.words, flags.text("component")
    if words and len(words) - 1 not in COMMANDS.get(words[0], ()):
        raise InputError("command", " ".join(words), f"there are {', '.join(COMMANDS)}, see --help")
    if not words:
        _check(flags, component)
    return ValidatorCall(ValidatorSettings(
        component=component, node=flags.node("node-name"), namespace=flags.text("namespace"), wait=flags.switch("with-wait"),
        workload=flags.switch("with-workload"), output=flags.text("output-dir").rstrip("/"),
        every=float(flags.number("sleep-interval-seconds", least=1, most=3600)), port=flags.number("metrics-port", most=65535),
        default_workload=flags.text("default-gpu-workload-config"),
        dev_char=not flags.switch("disable-dev-char-symlink-creation"), host_root=flags.text("host-root"),
        install_dir=flags.text("driver-install-dir"), install_dir_here=flags.text("driver-install-dir-ctr-path"),
        skip_gpu_init=flags.switch("driver-validation-skip-gpu-init"), skip=flags.switch("skip-validation"),
        rdma=environ.get("GPU_DIRECT_RDMA_ENABLED") == "true", host_mofed=environ.get("USE_HOST_MOFED") == "true",
        workload_pod={name: checked_text(name, environ[name]) for name in WORKLOAD_POD if environ.get(name)},
    ), words, flags.switch("cleanup-all"), flags.text("kubeconfig"))


def _check(flags: Flags, component: str) -> None:
    where = flags.named("component")[0]
    if component not in COMPONENTS:
        raise InputError(where, component, f"there are {', '.join(COMPONENTS)}")
    if component in NEEDS_NODE and not flags.text("node-name"):
        raise InputError("NODE_NAME", "", f"set it to the name of the node that this runs on, for {component}")
    if component in NEEDS_NAMESPACE and not flags.text("namespace"):
        raise InputError("OPERATOR_NAMESPACE", "", f"set it to the namespace of the operator, for {component}")
    if component == "metrics" and not flags.number("metrics-port", most=65535):
        raise InputError(flags.named("metrics-port")[0], flags.text("metrics-port"), "name a port")
    if flags.switch("skip-validation") and component not in SKIPPABLE:
        raise InputError(flags.named("skip-validation")[0], "true", f"it is for {', '.join(SKIPPABLE)} only")
