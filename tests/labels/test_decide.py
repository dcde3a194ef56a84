"""Which labels a node gets, by what discovery and people wrote on it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.labels.decide import Labelling, decide_labels, mig_capable
from gpuward.labels.policy import KNOWN, LabelPolicy
from gpuward.model.record import format_time
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView
from gpuward.model.workloads import Workload, WorkloadKept
from tests.build import NOW, driver_pod, gpu_pod

GPU = {names.NFD_GPU_LABELS[0]: "true"}
CONTAINER = {
    names.DEPLOY_PREFIX + operand: "true"
    for operand in ("driver", "gpu-feature-discovery", "container-toolkit", "device-plugin", "dcgm", "dcgm-exporter",
                    "node-status-exporter", "operator-validator", "client")
}
READY = {**GPU, names.GPU_PRESENT: "true", **CONTAINER}


def changes(labels: dict[str, str], policy: LabelPolicy | None = None, *, pods: tuple[PodView, ...] = (),
            annotations: dict[str, str] | None = None) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return what one node's labels and annotations are changed to."""
    node = NodeView("n0", "uid", labels=labels, annotations=annotations or {})
    patches = decide_labels(Snapshot("gpu-operator", {"n0": node}, {"n0": pods}), policy or LabelPolicy(), NOW).patches
    assert len(patches) <= 1
    return (dict(patches[0].labels), dict(patches[0].annotations)) if patches else ({}, {})


def test_a_fresh_gpu_node_gets_every_operand_of_containers() -> None:
    labels, annotations = changes(GPU)
    assert labels == {names.GPU_PRESENT: "true", **CONTAINER}
    assert annotations == {}


@pytest.mark.parametrize("label", names.NFD_GPU_LABELS)
def test_any_of_the_pci_labels_makes_a_gpu_node(label: str) -> None:
    assert changes({label: "true"})[0][names.GPU_PRESENT] == "true"


class Broken(dict[str, str]):
    """Be labels or annotations at which whoever asks for one of them fails, as a bug would."""

    def __init__(self, found: dict[str, str], fails_at: str) -> None:
        super().__init__(found)
        self._fails_at = fails_at

    def _check(self, key: object) -> None:
        if key == self._fails_at:
            raise OverflowError("planted")

    def get(self, key: str, default: Any = None) -> Any:
        self._check(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._check(key)
        return super().__contains__(key)


@pytest.mark.parametrize(("labels", "annotations"), [
    (GPU, Broken({}, names.DISCOVERY_LOST)),
    (GPU, Broken({}, names.UPGRADE_ENABLED)),
    (Broken(GPU, names.DEPLOY_DRIVER), {}),
    (Broken(GPU, names.GPU_PRESENT), {}),
    (Broken(GPU, names.NFD_GPU_LABELS[0]), {}),
    (Broken({names.GPU_PRESENT: "true", names.NFD_KERNEL: "6.8"}, names.NFD_GPU_LABELS[0]), {}),
])
def test_a_fault_that_one_node_brings_to_light_stops_that_node_alone(labels: dict[str, str], annotations: dict[str, str]) -> None:
    nodes = {"n0": NodeView("n0", "uid-0", labels=labels, annotations=annotations), "n1": NodeView("n1", "uid-1", labels=GPU),
             "n2": NodeView("n2", "uid-2", labels={**READY, names.NFD_GPU_LABELS[0]: "false", names.NFD_KERNEL: "6.8"})}
    found = decide_labels(Snapshot("gpu-operator", nodes, {}), LabelPolicy(driver_upgrades=True), NOW)
    assert found.troubles == {"n0": "OverflowError: planted"}
    assert [patch.node.name for patch in found.patches] == ["n1", "n2"]


def test_a_node_without_gpus_is_left_alone() -> None:
    assert changes({"feature.node.kubernetes.io/kernel-version.full": "6.8"}) == ({}, {})


def test_a_node_that_is_as_it_should_be_gets_no_patch() -> None:
    assert changes(READY) == ({}, {})


@pytest.mark.parametrize("value", ["false", "paused-for-driver-upgrade", "pre-installed"])
def test_what_somebody_else_chose_stays(value: str) -> None:
    assert changes({**READY, names.DEPLOY_DRIVER: value}) == ({}, {})


def test_an_empty_value_counts_as_absent() -> None:
    assert changes({**READY, names.DEPLOY_DRIVER: ""})[0] == {names.DEPLOY_DRIVER: "true"}


UNUSED = names.DEPLOY_PREFIX + "sandbox-validator"


@pytest.mark.parametrize(("value", "removed"), [("", False), ("paused-for-driver-upgrade", True), ("true", True)])
def test_what_the_driver_manager_writes_without_a_value_stays_until_the_driver_is_ready(value: str, removed: bool) -> None:
    labels = {**READY, UNUSED: value}
    assert changes(labels, pods=(driver_pod(ready=False),))[0] == ({UNUSED: None} if removed else {})
    assert changes(labels, pods=(driver_pod(),))[0] == {UNUSED: None}
    assert changes(labels)[0] == {UNUSED: None}


def test_operands_false_takes_every_operand_away_and_leaves_unknown_ones() -> None:
    unknown = {names.DEPLOY_PREFIX + "mine": "true"}
    labels, _ = changes({**READY, **unknown, names.DEPLOY_OPERANDS: "false"})
    assert labels == dict.fromkeys(CONTAINER)


def test_a_pod_of_a_node_that_registered_anew_keeps_the_operands_though_its_container_was_restarted_since() -> None:
    view = NodeView("n0", "uid", labels={**READY, names.DEPLOY_OPERANDS: "false"}, created=NOW - 600.0)
    pod = gpu_pod(phase="Running", created=NOW - 3600.0, bound=NOW - 3600.0, started=NOW - 60.0)
    found = decide_labels(Snapshot("gpu-operator", {"n0": view}, {"n0": (pod,)}), LabelPolicy(), NOW)
    assert (found.patches, list(found.used)) == ((), ["n0"])


@pytest.mark.parametrize(("labels", "expected"), [
    ({names.MIG_CAPABLE: "true"}, True),
    ({names.MIG_CAPABLE: "false", names.GPU_PRODUCT: "NVIDIA-H100"}, False),
    ({names.GPU_PRODUCT: "NVIDIA-A100-SXM4-80GB"}, True),
    ({names.GPU_PRODUCT: "Tesla-T4"}, False),
    ({names.MIG_CAPABLE: "true", names.VGPU_HOST_DRIVER: "580.1"}, False),
    ({}, False),
])
def test_mig_capability(labels: dict[str, str], expected: bool) -> None:
    assert mig_capable(NodeView("n0", labels=labels)) is expected


def test_a_mig_capable_node_gets_the_manager_and_the_default_layout_once() -> None:
    policy = LabelPolicy(default_mig_config="all-disabled")
    node = {**READY, names.MIG_CAPABLE: "true"}
    manager = names.DEPLOY_PREFIX + "mig-manager"
    assert changes(node, policy)[0] == {manager: "true", names.MIG_CONFIG: "all-disabled"}
    assert changes({**node, manager: "false", names.MIG_CONFIG: "all-1g.10gb"}, policy) == ({}, {})


@pytest.mark.parametrize(("pod", "layout"), [
    (gpu_pod(), None), (gpu_pod(phase="Succeeded"), "all-disabled"), (driver_pod(), "all-disabled")])
def test_the_default_layout_comes_to_no_node_whose_gpus_are_used(pod: PodView, layout: str | None) -> None:
    node = {**READY, names.MIG_CAPABLE: "true", names.DEPLOY_PREFIX + "mig-manager": "true"}
    assert changes(node, LabelPolicy(default_mig_config="all-disabled"), pods=(pod,))[0].get(names.MIG_CONFIG) == layout


@pytest.mark.parametrize(("policy", "wanted"), [
    (LabelPolicy(sandbox_workloads=True, default_workload=Workload.VM_PASSTHROUGH), "sandbox-device-plugin"),
    (LabelPolicy(sandbox_workloads=True, default_workload=Workload.VM_PASSTHROUGH, kata=True), "kata-sandbox-device-plugin"),
    (LabelPolicy(sandbox_workloads=True, default_workload=Workload.VM_VGPU), "vgpu-manager"),
])
def test_nodes_for_virtual_machines_swap_their_operands(policy: LabelPolicy, wanted: str) -> None:
    labels, _ = changes(READY, policy)
    assert labels[names.DEPLOY_PREFIX + wanted] == "true"
    assert labels[names.DEPLOY_DRIVER] is None
    assert set(labels) <= KNOWN


PASSTHROUGH = LabelPolicy(sandbox_workloads=True, default_workload=Workload.VM_PASSTHROUGH)
_MACHINE = PodView("vms", "vm", uses_vm_gpu=True, phase="Running")
_TRAINING = PodView("ml", "train", uses_gpu=True, phase="Running")


def decided(labels: dict[str, str], policy: LabelPolicy, *pods: PodView) -> Labelling:
    node = NodeView("n0", "uid", labels=labels)
    return decide_labels(Snapshot(names.DEFAULT_NAMESPACE, {"n0": node}, {"n0": pods}), policy, NOW)


def kept(labels: dict[str, str], policy: LabelPolicy, pod: PodView) -> tuple[Workload, Workload] | None:
    """Return what a node stays for, and what it should be for."""
    found = decided(labels, policy, pod).used.get("n0")
    return (found.workload, found.wanted) if isinstance(found, WorkloadKept) else None


def of_machines(policy: LabelPolicy = PASSTHROUGH) -> dict[str, str]:
    """Return the labels of a node for virtual machines."""
    return {**GPU, names.GPU_PRESENT: "true", **dict.fromkeys(policy.operand_labels(policy.default_workload), "true")}


@pytest.mark.parametrize("pod", [
    _TRAINING, _MACHINE, msgspec.structs.replace(_TRAINING, phase="Pending"), msgspec.structs.replace(_TRAINING, deleting=True),
    PodView("monitoring", "watcher", holds="hostPath /dev/nvidia0", phase="Running"),
])
def test_a_node_stays_for_containers_while_a_pod_uses_its_gpus(pod: PodView) -> None:
    assert changes(READY, PASSTHROUGH, pods=(pod,)) == ({}, {})
    assert kept(READY, PASSTHROUGH, pod) == (Workload.CONTAINER, Workload.VM_PASSTHROUGH)


@pytest.mark.parametrize("pod", [
    msgspec.structs.replace(_TRAINING, phase="Succeeded"), msgspec.structs.replace(_TRAINING, idle_claim=True),
    PodView("ml", "web", phase="Running"),
    PodView(names.DEFAULT_NAMESPACE, "v", labels={"app": "nvidia-cuda-validator"}, uses_gpu=True, phase="Running"),
])
def test_a_node_changes_its_workload_with_pods_that_use_no_gpu(pod: PodView) -> None:
    assert changes(READY, PASSTHROUGH, pods=(pod,))[0][names.DEPLOY_DRIVER] is None
    assert kept(READY, PASSTHROUGH, pod) is None


@pytest.mark.parametrize("after", [
    LabelPolicy(), LabelPolicy(sandbox_workloads=True), LabelPolicy(sandbox_workloads=True, default_workload=Workload.VM_VGPU),
])
def test_a_node_stays_for_virtual_machines_while_one_runs(after: LabelPolicy) -> None:
    node = of_machines()
    assert changes(node, after, pods=(_MACHINE,))[0].keys() <= {names.DEPLOY_PREFIX + "sandbox-device-plugin"}
    assert changes(node, after)[0][names.DEPLOY_VFIO_MANAGER] is None


def test_a_node_whose_gpus_discovery_loses_keeps_them_bound_under_a_machine() -> None:
    long_ago = {names.DISCOVERY_LOST: format_time(NOW - 10_000.0)}
    node = {key: value for key, value in of_machines().items() if key not in GPU} | {names.NFD_PREFIX + "cpu": "x"}
    assert changes(node, PASSTHROUGH, pods=(_MACHINE,), annotations=long_ago)[0] == {}
    assert changes(node, PASSTHROUGH, annotations=long_ago)[0][names.DEPLOY_VFIO_MANAGER] is None


def test_the_way_in_which_machines_are_run_may_change_under_them() -> None:
    kata = msgspec.structs.replace(PASSTHROUGH, kata=True)
    labels, _ = changes(of_machines(), kata, pods=(_MACHINE,))
    plugin = "sandbox-device-plugin"
    assert labels == {f"{names.DEPLOY_PREFIX}{plugin}": None, f"{names.DEPLOY_PREFIX}kata-{plugin}": "true"}


def test_a_pod_that_the_decision_did_not_know_calls_a_change_of_workload_off() -> None:
    for labels, policy in ((READY, PASSTHROUGH), (of_machines(), LabelPolicy())):
        pod = PodView("ml", "web", "w", phase="Running")
        [patch] = decided(labels, policy, pod).patches
        assert patch.known_pods == {"w": ""}


def test_the_workload_label_counts_only_with_sandbox_workloads() -> None:
    node = {**READY, names.WORKLOAD_CONFIG: "vm-vgpu"}
    assert changes(node) == ({}, {})
    labels, _ = changes(node, LabelPolicy(sandbox_workloads=True))
    assert labels[names.DEPLOY_PREFIX + "vgpu-manager"] == "true"
    assert changes({**READY, names.WORKLOAD_CONFIG: "nonsense"}, LabelPolicy(sandbox_workloads=True)) == ({}, {})


def test_the_annotation_tells_the_driver_manager_that_nodes_are_emptied_for_it() -> None:
    policy = LabelPolicy(driver_upgrades=True)
    assert changes(READY, policy) == ({}, {names.UPGRADE_ENABLED: "true"})
    assert changes(READY, annotations={names.UPGRADE_ENABLED: "true"}) == ({}, {names.UPGRADE_ENABLED: None})
    assert changes(READY, policy, annotations={names.UPGRADE_ENABLED: "true"}) == ({}, {})


def test_nodes_in_doubt_and_nodes_on_their_way_out_are_not_touched() -> None:
    node = NodeView("n0", labels=GPU)
    assert decide_labels(Snapshot("ns", {"n0": node}, unsettled=frozenset({"n0"})), LabelPolicy(), NOW).patches == ()
    assert decide_labels(Snapshot("ns", {"n0": NodeView("n0", labels=GPU, deleting=True)}), LabelPolicy(), NOW).patches == ()


def test_each_changed_label_is_expected_as_it_was_read() -> None:
    node = NodeView("n0", labels={**READY, names.DEPLOY_DRIVER: ""})
    (patch,) = decide_labels(Snapshot("ns", {"n0": node}), LabelPolicy(), NOW).patches
    assert patch.expect_labels.items() >= {names.DEPLOY_DRIVER: ""}.items()


def test_the_cordon_of_nvidias_driver_manager_is_lifted_from_no_node_that_an_upgrade_takes_over_meanwhile() -> None:
    labels = {names.NFD_GPU_LABELS[0]: "true", names.UPGRADE_STATE: "upgrade-required"}
    node = NodeView("n0", "uid", labels=labels, unschedulable=True, cordoners=("driver-manager",))
    (patch,) = decide_labels(Snapshot("gpu-operator", {"n0": node}), LabelPolicy(driver_upgrades=True), NOW).patches
    assert (patch.unschedulable, patch.expect_unschedulable) == (False, True)
    assert patch.expect_labels[names.UPGRADE_STATE] == "upgrade-required"
