"""States: which are wanted, what they consist of, what must be absent, and what one state's error does to the others."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.errors import PolicyError
from gpuward.operands import ObjectRef, ref_of
from gpuward.operands.facts import Context
from gpuward.operands.render import OPERANDS
from tests.operands.build import DEFAULT_FACTS, IMAGES, facts, objects, policy, states

ORDER = [
    "pre-requisites", "state-operator-metrics", "state-driver", "state-container-toolkit", "state-operator-validation",
    "state-device-plugin", "state-mps-control-daemon", "state-dcgm", "state-dcgm-exporter", "gpu-feature-discovery",
    "state-mig-manager", "state-node-status-exporter", "state-vgpu-manager", "state-vgpu-device-manager",
    "state-sandbox-validation", "state-vfio-manager", "state-sandbox-device-plugin", "state-kata-device-plugin",
    "state-kata-manager", "state-cc-manager",
]
ALL_ON = {"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}, "dcgmExporter": {"enablePodLabels": True}}


def test_states_come_in_nvidias_order() -> None:
    assert list(states()) == ORDER


def test_default_policy_turns_on_what_the_chart_says() -> None:
    off = {"state-dcgm", "state-node-status-exporter", *ORDER[12:]}
    assert {name for name, state in states().items() if not state.enabled} == off


@pytest.mark.parametrize("name", ORDER[:12])
def test_refs_are_all_that_a_state_makes(name: str) -> None:
    ctx = Context(policy(ALL_ON), facts(has_service_monitor_crd=True), IMAGES)
    operand = next(operand for operand in OPERANDS if name == operand.NAME)
    made = [ref_of(obj) for obj in operand.objects(ctx)]
    assert sorted(made) == sorted(operand.refs(ctx))
    assert len(set(made)) == len(made)


def test_a_disabled_state_must_not_exist() -> None:
    driver = states({"driver": {"enabled": False}})["state-driver"]
    assert not driver.enabled
    assert not driver.objects
    assert {(ref.kind, ref.name) for ref in driver.absent} == {
        ("ServiceAccount", "nvidia-driver"), ("Role", "nvidia-driver"), ("RoleBinding", "nvidia-driver"),
        ("ClusterRole", "nvidia-driver"), ("ClusterRoleBinding", "nvidia-driver"),
        ("ConfigMap", "nvidia-driver-startup-probe"), ("DaemonSet", "nvidia-driver-daemonset"),
    }


@pytest.mark.parametrize(("spec", "state", "gone"), [
    ({"cdi": {"enabled": False}}, "pre-requisites", {"nvidia-cdi", "nvidia-legacy"}),
    ({}, "state-dcgm-exporter", {"nvidia-dcgm-exporter-read-pods"}),
    ({"dcgmExporter": {"enablePodUID": True}}, "state-dcgm-exporter", set()),
    ({"migManager": {"config": {"name": "own"}, "gpuClientsConfig": {"name": "own"}}}, "state-mig-manager", set()),
])
def test_parts_of_a_wanted_state_can_be_absent(spec: dict[str, Any], state: str, gone: set[str]) -> None:
    assert {ref.name for ref in states(spec)[state].absent} == gone


def test_service_monitors_are_left_alone_where_the_cluster_does_not_know_them() -> None:
    for cluster in (DEFAULT_FACTS, facts(has_service_monitor_crd=True)):
        rendered = states({"dcgmExporter": {"serviceMonitor": {"enabled": False}}}, cluster)["state-dcgm-exporter"]
        monitor = ObjectRef("monitoring.coreos.com/v1", "ServiceMonitor", "gpu-operator", "nvidia-dcgm-exporter")
        assert (monitor in rendered.absent) == cluster.has_service_monitor_crd


def test_without_gpu_nodes_daemon_sets_are_neither_made_nor_removed() -> None:
    for state in states(cluster=facts(has_gpu_nodes=False, os_tag="")).values():
        if state.enabled:
            kinds = {obj["kind"] for obj in state.objects} | {ref.kind for ref in state.absent}
            assert "DaemonSet" not in kinds


def test_accounts_and_configuration_come_before_the_daemon_set() -> None:
    for state in states(ALL_ON).values():
        kinds = [obj["kind"] for obj in state.objects]
        if "DaemonSet" in kinds:
            assert set(kinds[kinds.index("DaemonSet") + 1:]) <= {"Service", "DaemonSet"}


def test_one_states_error_leaves_the_others() -> None:
    rendered = states({"toolkit": {"version": None}})
    failed = rendered.pop("state-container-toolkit")
    assert failed.enabled
    assert failed.error is not None
    assert failed.error.field == "spec.toolkit"
    assert failed.error.fix.startswith("set version too")
    assert not failed.objects
    assert not failed.absent
    assert objects(rendered.values()) == {
        key: obj for key, obj in objects(states().values()).items() if "container-toolkit" not in key
    }


def test_drivers_left_to_nvidia_drivers_are_neither_made_nor_removed() -> None:
    left = states({"driver": {"useNvidiaDriverCRD": True}})["state-driver"]
    assert (left.enabled, left.objects, left.error) == (False, (), None)
    assert "DaemonSet" not in {ref.kind for ref in left.absent}


@pytest.mark.parametrize(("spec", "state", "field"), [
    ({"driver": {"livenessProbe": {"timeoutSeconds": 5}}}, "state-driver", "spec.driver.livenessProbe"),
    ({"driver": {"secretEnv": "gone"}}, "state-driver", "spec.driver.secretEnv"),
    ({"driver": {"licensingConfig": {"secretName": "gone"}}}, "state-driver", "spec.driver.licensingConfig.secretName"),
    ({"driver": {"licensingConfig": {"configMapName": "gone"}}}, "state-driver", "spec.driver.licensingConfig.configMapName"),
    ({"driver": {"virtualTopology": {"config": "gone"}}}, "state-driver", "spec.driver.virtualTopology.config"),
    ({"driver": {"repoConfig": {"configMapName": "gone"}}}, "state-driver", "spec.driver.repoConfig.configMapName"),
    ({"driver": {"kernelModuleConfig": {"name": "gone"}}}, "state-driver", "spec.driver.kernelModuleConfig.name"),
    ({"daemonsets": {"rollingUpdate": {"maxUnavailable": "many"}}}, "state-container-toolkit",
     "spec.daemonsets.rollingUpdate.maxUnavailable"),
    ({"sandboxWorkloads": {"enabled": True}, "vfioManager": {"repository": ""}}, "state-vfio-manager", "spec.vfioManager"),
    ({"sandboxWorkloads": {"enabled": True}, "vgpuManager": {"enabled": True, "version": "1"}},
     "state-vgpu-manager", "spec.vgpuManager"),
    ({"sandboxWorkloads": {"enabled": True}, "vgpuManager": {
        "enabled": True, "repository": "r", "version": "1", "kernelModuleConfig": {"name": "gone"},
    }}, "state-vgpu-manager", "spec.vgpuManager.kernelModuleConfig.name"),
])
def test_what_cannot_be_followed_is_that_states_error(spec: dict[str, Any], state: str, field: str) -> None:
    error = states(spec)[state].error
    assert error is not None
    assert error.field == field


def test_a_probe_that_is_refused_is_shown_as_it_was_written() -> None:
    error = states({"driver": {"livenessProbe": {"timeoutSeconds": 5, "failureThreshold": 2}}})["state-driver"].error
    told = "{'timeoutSeconds': 5, 'failureThreshold': 2} cannot be used: remove it: the driver has only driver.startupProbe"
    assert str(error) == f"spec.driver.livenessProbe: {told}"


def test_sandbox_states_of_the_other_mode_stay_off() -> None:
    kubevirt = {name for name, state in states({"sandboxWorkloads": {"enabled": True}}).items() if state.enabled}
    kata = {name for name, state in states({"sandboxWorkloads": {"enabled": True, "mode": "kata"}}).items() if state.enabled}
    assert kubevirt - kata == {"state-sandbox-device-plugin"}
    assert kata - kubevirt == {"state-kata-device-plugin", "state-cc-manager"}


def test_sandbox_states_are_off_without_sandbox_workloads_and_the_kata_manager_always() -> None:
    sandbox = {"state-vgpu-manager", "state-vgpu-device-manager", "state-sandbox-validation", "state-vfio-manager",
               "state-sandbox-device-plugin", "state-kata-device-plugin", "state-kata-manager", "state-cc-manager"}
    wanted = {"enabled": True}
    everything = {"vgpuManager": {**wanted, "repository": "r", "version": "1"}, "kataManager": wanted}
    assert not sandbox & {name for name, state in states(everything).items() if state.enabled}
    on = {name for name, state in states({**everything, "sandboxWorkloads": wanted}).items() if state.enabled}
    assert sandbox - on == {"state-kata-device-plugin", "state-kata-manager", "state-cc-manager"}


def test_own_layouts_of_vgpu_devices_leave_the_built_in_ones_where_they_are() -> None:
    sandbox: dict[str, Any] = {"sandboxWorkloads": {"enabled": True}}
    own = states({**sandbox, "vgpuDeviceManager": {"config": {"name": "mine"}}})["state-vgpu-device-manager"]
    built_in = "ConfigMap gpu-operator/default-vgpu-devices-config"
    assert built_in not in {str(ref) for ref in own.absent}
    assert "default-vgpu-devices-config" not in {obj["metadata"]["name"] for obj in own.objects}
    off = states({**sandbox, "vgpuDeviceManager": {"enabled": False}})["state-vgpu-device-manager"]
    assert built_in in {str(ref) for ref in off.absent}


def test_hosts_drivers_left_to_nvidia_drivers_keep_what_their_pods_need() -> None:
    left = states({"sandboxWorkloads": {"enabled": True}, "driver": {"useNvidiaDriverCRD": True},
                   "vgpuManager": {"enabled": True, "repository": "r", "version": "1"}})["state-vgpu-manager"]
    assert (left.enabled, left.objects, left.absent, left.error) == (False, (), (), None)


@pytest.mark.parametrize("spec", [
    {"cdi": {"enabled": False, "nriPluginEnabled": True}},
    {"cdi": {"nriPluginEnabled": True}, "toolkit": {"enabled": False}},
])
def test_a_policy_that_contradicts_itself_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=r"spec\.cdi\.nriPluginEnabled"):
        states(spec)
