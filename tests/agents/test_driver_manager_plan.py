"""What the driver manager does next, case by case, and the labels by which operands go and come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuward.agents.drivermanager.facts import Facts, Settings
from gpuward.agents.drivermanager.operands import pause_labels
from gpuward.agents.drivermanager.plan import next_step
from gpuward.agents.drivermanager.settings import UnknownCommandError, read_settings
from gpuward.agents.drivermanager.steps import (
    Clean,
    Cordon,
    Evict,
    Finish,
    GiveUp,
    SetLabels,
    Step,
    UnbindVfio,
    Unload,
    Wait,
    WaitFor,
)
from gpuward.agents.host import DeviceUser
from gpuward.errors import InputError
from gpuward.model.obstacles import LosesData, NotStartedAgain
from gpuward.model.pauses import paused, restore_labels, restored
from gpuward.model.views import Owner, PodView
from gpuward.upgrade.evictable_pods import Blocked, EvictablePods

DEPLOY = "nvidia.com/gpu.deploy."
PLUGIN, GONE = {DEPLOY + "device-plugin": "true"}, {DEPLOY + "device-plugin": "paused-for-driver-upgrade"}
POD = PodView("training", "job-1", uid="u1", owner=Owner("Job", "job", "u0"))
OPERAND = PodView("gpu-operator", "nvidia-device-plugin-daemonset-abc", uid="u2")
TOOLKIT = {DEPLOY + "container-toolkit": "true"}
TOOLKIT_POD = PodView("gpu-operator", "nvidia-container-toolkit-daemonset-abc", uid="u3",
                      labels={"app": "nvidia-container-toolkit-daemonset"})
USER = DeviceUser(4711, "python", "/dev/nvidia0", "u1", "training/job-1")
OF_HOST = DeviceUser(1, "dcgm", "/dev/nvidiactl")
BY_ITSELF, BY_OPERATOR = Settings("gpu-1"), Settings("gpu-1", eviction=True, auto_drain=True, digest="new")
LOADED: dict[str, Any] = {"loaded": True, "modules": ("nvidia_uvm", "nvidia"), "digest": "old", "mounted": True, "pid_file": True}
ALONE = EvictablePods((POD,))

CASES: dict[str, tuple[Facts, Settings, set[Wait], Step]] = {
    "nothing is loaded, nothing is left": (Facts(), BY_ITSELF, set(), Finish({}, uncordon=False)),
    "a root of before is mounted": (Facts(mounted=True), BY_ITSELF, set(), Clean()),
    "labels of an attempt that was killed": (Facts(labels=GONE), BY_ITSELF, set(), Finish(PLUGIN, uncordon=False)),
    "its cordon of an attempt that was killed": (
        Facts(unschedulable=True, cordoned=True), BY_ITSELF, set(), Finish({}, uncordon=True)),
    "somebody else's cordon": (Facts(unschedulable=True), BY_ITSELF, set(), Finish({}, uncordon=False)),
    "nouveau goes last": (Facts(nouveau=True, labels=GONE), BY_ITSELF, set(), Unload(("nouveau",), Wait.NOUVEAU)),
    "nouveau that the console uses": (
        Facts(nouveau=True), BY_ITSELF, {Wait.NOUVEAU},
        GiveUp("the module nouveau is in use, and no driver of NVIDIA's can be loaded beside it: keep it from being loaded "
               "(modprobe.blacklist=nouveau) and restart the node")),
    "nouveau beside the wanted driver": (
        Facts(loaded=True, digest="new", nouveau=True), BY_OPERATOR, {Wait.NOUVEAU}, Finish({}, uncordon=False)),
    "by itself it cordons first": (Facts(**LOADED), BY_ITSELF, set(), Cordon()),
    "then evicts": (Facts(**LOADED, unschedulable=True, to_evict=ALONE), BY_ITSELF, set(), Evict((POD.ref,), Wait.EVICTION)),
    "the operator empties nodes itself": (Facts(**LOADED, policy=True, labels=PLUGIN), BY_OPERATOR, set(), SetLabels(GONE)),
    "operands are all waited for at once": (
        Facts(**LOADED, policy=True, labels=GONE, operands=(OPERAND, OPERAND)), BY_OPERATOR, set(),
        WaitFor(Wait.OPERANDS, f"the operands gpu-operator/{OPERAND.name}, gpu-operator/{OPERAND.name} have to end")),
    "and not for ever": (
        Facts(**LOADED, policy=True, labels=GONE, operands=(OPERAND,)), BY_OPERATOR, {Wait.OPERANDS},
        GiveUp(f"the operands gpu-operator/{OPERAND.name} did not end in time")),
    "the toolkit goes last": (
        Facts(**LOADED, policy=True, labels=PLUGIN | TOOLKIT, operands=(OPERAND, TOOLKIT_POD)), BY_OPERATOR, set(),
        SetLabels(GONE)),
    "once the others have ended": (
        Facts(**LOADED, policy=True, labels=GONE | TOOLKIT, operands=(OPERAND, TOOLKIT_POD)), BY_OPERATOR, set(),
        WaitFor(Wait.OPERANDS, f"the operands gpu-operator/{OPERAND.name} have to end")),
    "which restarts containerd as it ends": (
        Facts(**LOADED, policy=True, labels=GONE | TOOLKIT, operands=(TOOLKIT_POD,)), BY_OPERATOR, set(),
        SetLabels({key: paused(value) for key, value in TOOLKIT.items()})),
    "and is waited for, too": (
        Facts(**LOADED, policy=True, labels=GONE | {key: paused(value) for key, value in TOOLKIT.items()},
              operands=(TOOLKIT_POD,)), BY_OPERATOR, set(),
        WaitFor(Wait.OPERANDS, f"the operands gpu-operator/{TOOLKIT_POD.name} have to end")),
    "then the modules go": (
        Facts(**LOADED, policy=True, labels=GONE), BY_OPERATOR, set(), Unload(("nvidia_uvm", "nvidia"), Wait.MODULES)),
    "that are in use": (
        Facts(**LOADED, policy=True, labels=GONE), BY_OPERATOR, {Wait.MODULES},
        GiveUp("the module nvidia_uvm is in use, by no process that can be seen from here: "
               "see `lsmod` and `dmesg` on the node, or else restart the node")),
    "by who goes with a label, and does not": (
        Facts(**LOADED, policy=True, labels=GONE, going_users=(USER,)), BY_OPERATOR, {Wait.MODULES},
        GiveUp("the driver's modules are in use by process 4711 (python) of pod training/job-1: stop them")),
    "that another module uses": (
        Facts(**LOADED, policy=True, labels=GONE, holders=("nv_peer_mem",)), BY_OPERATOR, {Wait.DEVICES},
        GiveUp("the GPUs are in use by the module nv_peer_mem: stop them, or let the operator empty the node")),
    "before anything is disturbed, or half of the driver would be gone": (
        Facts(**LOADED, policy=True, labels=PLUGIN, holders=("nv_peer_mem",)), BY_OPERATOR, set(),
        WaitFor(Wait.DEVICES, "the GPUs are in use by the module nv_peer_mem")),
    "and anybody is evicted": (
        Facts(**LOADED, to_evict=ALONE, to_drain=ALONE, holders=("nv_peer_mem",)), BY_ITSELF, set(),
        WaitFor(Wait.DEVICES, "the GPUs are in use by the module nv_peer_mem")),
    "a root that cannot be detached": (
        Facts(mounted=True), BY_ITSELF, {Wait.ROOT}, GiveUp("the driver's root cannot be detached")),
    "devices of virtual machines": (Facts(vfio=("0000:3b:00.0",)), BY_ITSELF, set(), UnbindVfio(("0000:3b:00.0",))),
    "that do not let go": (
        Facts(vfio=("0000:3b:00.0",)), BY_ITSELF, {Wait.VFIO},
        GiveUp("0000:3b:00.0 cannot be taken from the driver for virtual machines")),
    "under a machine of the host's the driver that works stays": (
        Facts(**LOADED, policy=True, labels=PLUGIN, vfio=("0000:3b:00.0",), machine_users=(OF_HOST,)), BY_OPERATOR, set(),
        WaitFor(Wait.MACHINES, "0000:3b:00.0 may be in use by virtual machines: process 1 (dcgm) of the host")),
    "and nobody is evicted for another that cannot come": (
        Facts(**LOADED, to_evict=ALONE, to_drain=ALONE, vfio=("0000:3b:00.0",), machine_users=(OF_HOST,)), BY_ITSELF,
        {Wait.MACHINES}, GiveUp("0000:3b:00.0 may be in use by virtual machines: process 1 (dcgm) of the host")),
    "but where the devices are to stay with the machines": (
        Facts(**LOADED, policy=True, labels={DEPLOY + "vfio-manager": "true"}, vfio=("0000:3b:00.0",), machine_users=(OF_HOST,)),
        BY_OPERATOR, set(), Unload(("nvidia_uvm", "nvidia"), Wait.MODULES)),
    "the wanted driver stays under who uses it": (
        Facts(**{**LOADED, "digest": "new"}, labels=GONE, to_evict=ALONE, device_users=(USER,)), BY_OPERATOR, set(), Clean()),
    "operands stay while somebody else uses the GPUs": (
        Facts(**LOADED, policy=True, labels=PLUGIN, device_users=(USER,)), BY_OPERATOR, set(),
        WaitFor(Wait.DEVICES, "the GPUs are in use by process 4711 (python) of pod training/job-1")),
    "and are not taken away for nothing": (
        Facts(**LOADED, policy=True, labels=PLUGIN, device_users=(DeviceUser(1, "dcgm", "/dev/nvidiactl"),)), BY_OPERATOR,
        {Wait.DEVICES},
        GiveUp("the GPUs are in use by process 1 (dcgm) of the host: stop them, or let the operator empty the node")),
    "a pod that would lose data": (
        Facts(**LOADED, unschedulable=True, to_evict=EvictablePods(blocked=(Blocked(POD, LosesData("podDeletion")),))),
        Settings("gpu-1", auto_drain=False), set(),
        GiveUp("pod training/job-1 would lose the data of its emptyDir volumes (DRAIN_DELETE_EMPTYDIR_DATA=true permits it), "
               "and may not be evicted")),
    "no cordon for what cannot be": (
        Facts(**LOADED, to_evict=EvictablePods(blocked=(Blocked(POD, NotStartedAgain("podDeletion")),))),
        Settings("gpu-1", auto_drain=False), set(),
        GiveUp("pod training/job-1 has no controller that would start it again (DRAIN_USE_FORCE=true permits it), and may not be "
               "evicted")),
    "what an eviction may not, a drain may not either": (
        Facts(**LOADED, unschedulable=True, to_evict=EvictablePods(blocked=(Blocked(POD, NotStartedAgain("podDeletion")),)),
              to_drain=EvictablePods(blocked=(Blocked(POD, NotStartedAgain("drain")),))), BY_ITSELF, set(),
        GiveUp("the node cannot be drained: pod training/job-1 has no controller that would start it again (DRAIN_USE_FORCE=true "
               "permits it)")),
    "a drain after an eviction that took too long": (
        Facts(**LOADED, unschedulable=True, to_evict=ALONE, to_drain=EvictablePods((OPERAND,))), BY_ITSELF, {Wait.EVICTION},
        Evict((OPERAND.ref,), Wait.DRAIN)),
    "nobody goes for a driver that stays": (
        Facts(**LOADED, to_evict=ALONE, to_drain=ALONE, device_users=(USER, OF_HOST)), BY_ITSELF, set(),
        WaitFor(Wait.DEVICES, "the GPUs are in use by process 1 (dcgm) of the host")),
    "also where it is a pod's that no eviction takes": (
        Facts(**LOADED, to_evict=ALONE, to_drain=EvictablePods((POD, OPERAND)), device_users=(replace(OF_HOST, pod_uid="u2"),)),
        Settings("gpu-1", auto_drain=False), {Wait.DEVICES},
        GiveUp("the GPUs are in use by process 1 (dcgm) of pod u2: stop them, or let the operator empty the node")),
    "but a drain may take it": (
        Facts(**LOADED, to_evict=ALONE, to_drain=EvictablePods((POD, OPERAND)), device_users=(replace(OF_HOST, pod_uid="u2"),)),
        BY_ITSELF, set(), Cordon()),
    "who has gone before": (
        Facts(**LOADED, unschedulable=True, cordoned=True, to_evict=ALONE, device_users=(OF_HOST,)), BY_ITSELF, set(),
        Evict((POD.ref,), Wait.EVICTION)),
    "no drain ends a process of the host": (
        Facts(**LOADED, unschedulable=True, cordoned=True, to_drain=EvictablePods((OPERAND,)), device_users=(OF_HOST,)),
        BY_ITSELF, {Wait.DEVICES},
        GiveUp("the GPUs are in use by process 1 (dcgm) of the host: stop them, or let the operator empty the node")),
    "none where it is not wished": (
        Facts(**LOADED, unschedulable=True, to_evict=ALONE), Settings("gpu-1", auto_drain=False), {Wait.EVICTION},
        GiveUp("training/job-1 use GPUs and did not go in time")),
    "the plugin of claims goes after all others": (
        Facts(**LOADED, policy=True, labels={**GONE, DEPLOY + "dra-driver": "true"}), BY_OPERATOR, set(),
        SetLabels({DEPLOY + "dra-driver": "paused-for-driver-upgrade"})),
    "also where no driver is loaded, as it has the files of the one before": (
        Facts(labels={**PLUGIN, DEPLOY + "dra-driver": "true"}, dra_plugins=(OPERAND,), mounted=True), BY_ITSELF, set(),
        SetLabels({DEPLOY + "dra-driver": "paused-for-driver-upgrade"})),
    "and its end is waited for": (
        Facts(labels={DEPLOY + "dra-driver": "paused-for-driver-upgrade"}, dra_plugins=(OPERAND,), mounted=True), BY_ITSELF,
        set(), WaitFor(Wait.DRA_PLUGIN, f"the DRA driver's gpu-operator/{OPERAND.name} has to end")),
    "and not under those who hold some": (
        Facts(**LOADED, policy=True, labels={**PLUGIN, DEPLOY + "dra-driver": "true"}, claimants=(POD,)), BY_OPERATOR, set(),
        GiveUp("training/job-1 hold claims of NVIDIA's DRA driver: they have to end first")),
    "Mellanox' driver": (
        Facts(mofed="x is not there", labels=GONE), BY_ITSELF, set(), WaitFor(Wait.MOFED, "Mellanox' driver: x is not there")),
    "not for ever either": (Facts(mofed="x", labels=GONE), BY_ITSELF, {Wait.MOFED}, GiveUp("Mellanox' driver is not ready: x")),
}


@pytest.mark.parametrize("name", CASES)
def test_the_next_step(name: str) -> None:
    facts, settings, overdue, step = CASES[name]
    assert next_step(facts, settings, overdue) == step


@pytest.mark.parametrize(("value", "in_pause"), [
    ("true", "paused-for-driver-upgrade"), ("false", "false"), ("", ""), ("vm", "vm_paused-for-driver-upgrade"),
    ("paused-for-mig-change", "paused-for-mig-change_paused-for-driver-upgrade")])
def test_a_label_comes_back_as_it_was(value: str, in_pause: str) -> None:
    assert paused(value) == in_pause
    assert paused(in_pause) == in_pause
    assert restored(in_pause) == value


def test_labels_that_a_node_lacks_stay_away_and_others_are_left_alone() -> None:
    labels = {**PLUGIN, DEPLOY + "driver": "true", DEPLOY + "dcgm": "false", DEPLOY + "mig-manager": "true", "mine": "true"}
    change = pause_labels(labels, "mine")
    assert change == {**GONE, DEPLOY + "mig-manager": "paused-for-driver-upgrade", "mine": "paused-for-driver-upgrade"}
    assert restore_labels({**labels, **change}, "mine") == {key: labels[key] for key in change}


ENVIRONMENT = {"NODE_NAME": "gpu-1"}


def test_variables_and_flags_are_nvidias() -> None:
    said = {**ENVIRONMENT, "ENABLE_AUTO_DRAIN": "false", "DRAIN_TIMEOUT_SECONDS": "300s", "DRAIN_POD_SELECTOR_LABEL": "a=b",
            "DRIVER_CONFIG_DIGEST": "d", "OPERATOR_NAMESPACE": "ns"}
    called = read_settings(["--drain-use-force", "--enable-gpu-pod-eviction=0", "uninstall_driver"], said)
    assert called.command == "uninstall_driver"
    assert called.settings == Settings(
        "gpu-1", "ns", eviction=False, auto_drain=False, force=True, selector="a=b", timeout=300.0, digest="d")
    assert read_settings([], ENVIRONMENT).settings == Settings("gpu-1")


def test_a_switch_whose_variable_is_empty_is_off() -> None:
    """Else a node would be drained where NVIDIA's driver manager drains none."""
    empty = {**ENVIRONMENT, "ENABLE_AUTO_DRAIN": "", "ENABLE_GPU_POD_EVICTION": "", "DRAIN_TIMEOUT_SECONDS": "", "KUBECONFIG": ""}
    assert read_settings([], empty).settings == Settings("gpu-1", eviction=False, auto_drain=False)
    assert read_settings(["--enable-auto-drain"], empty).settings == Settings("gpu-1", eviction=False)


@pytest.mark.parametrize(("said", "seconds"), [
    ("0", 0.0), ("1500ms", 1.5), ("1000000s", 1e6), ("1h30m", 5400.0), ("90.5s", 90.5), (".5m", 30.0), ("1m1s1m", 121.0)])
def test_durations_are_gos(said: str, seconds: float) -> None:
    assert read_settings([], {**ENVIRONMENT, "DRAIN_TIMEOUT_SECONDS": said}).settings.timeout == seconds


@pytest.mark.parametrize(("arguments", "changed", "said"), [
    ([], {"DRAIN_TIMEOUT_SECONDS": "9999999999s"},
     "DRAIN_TIMEOUT_SECONDS: '9999999999s' cannot be used: write a duration such as 30s, 10m or 1h30m"),
    ([], {"NODE_NAME": "a\udcff"}, "NODE_NAME: 'a\\udcff' cannot be used: write it as UTF-8"),
    ([], {"NODE_NAME": "../pods"},
     "NODE_NAME: '../pods' cannot be used: write the name of a node, of lower-case letters, digits, '-' and '.'"),
    ([], {"NODE_NAME": ""}, "NODE_NAME: '' cannot be used: set it to the name of the node that this runs on"),
    ([], {"DRAIN_TIMEOUT_SECONDS": "300"},
     "DRAIN_TIMEOUT_SECONDS: '300' cannot be used: write a duration such as 30s, 10m or 1h30m"),
    (["--drain-timeout-seconds", "x"], {},
     "--drain-timeout-seconds: 'x' cannot be used: write a duration such as 30s, 10m or 1h30m"),
    ([], {"ENABLE_AUTO_DRAIN": "yes"}, "ENABLE_AUTO_DRAIN: 'yes' cannot be used: write true or false"),
    ([], {"DRAIN_POD_SELECTOR_LABEL": "a b"},
     "DRAIN_POD_SELECTOR_LABEL: 'a b' cannot be used: write a label selector, such as app=training"),
    (["--nonsense"], {}, "arguments: 'unrecognized arguments: --nonsense' cannot be used: see --help"),
    (["nonsense"], {}, "command: 'nonsense' cannot be used: there are uninstall_driver and preflight_check"),
])
def test_what_cannot_be_used_is_named(arguments: list[str], changed: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as error:
        read_settings(arguments, {**ENVIRONMENT, **changed})
    assert str(error.value) == said
    assert error.value.exit_code == (3 if isinstance(error.value, UnknownCommandError) else 1)


@pytest.mark.parametrize("arguments", [["--help"], ["help"], ["h"]])
def test_help_is_no_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(arguments, {})
    assert ended.value.code == 0
    assert "uninstall_driver" in capsys.readouterr().out
