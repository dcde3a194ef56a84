"""The facts of a cluster, from its nodes."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.snapshot import References
from gpuward.model.views import NodeView
from gpuward.model.workloads import Workloads
from gpuward.operands import NodeKernel, cluster_facts
from gpuward.operands.cluster import RunningDrivers, os_tag


def node(name: str, system: str = "ubuntu 22.04", *, kernel: str = "5.15.0-101-generic", runtime: str = "containerd://2.1.4",
         gpu: bool = True) -> NodeView:
    system_id, _, version = system.partition(" ")
    labels = {
        names.NFD_OS_ID: system_id, names.NFD_OS_VERSION: version, names.NFD_KERNEL: kernel,
        names.GPU_PRESENT: str(gpu).lower(),
    }
    return NodeView(name=name, labels={key: value for key, value in labels.items() if value}, runtime=runtime)


@pytest.mark.parametrize(("system", "expected"), [
    ("ubuntu 24.04", "ubuntu24.04"), ("rhel 9.4", "rhel9"), ("rocky 8.10", "rocky8"), ("ol 9.5", "ol9"),
    ("sles 15.6", "sles15.6"), ("", ""), ("ubuntu", ""),
])
def test_os_tag(system: str, expected: str) -> None:
    assert os_tag(node("a", system)) == expected


def test_the_first_gpu_node_by_name_decides_on_the_system() -> None:
    nodes = [node("c", "ubuntu 24.04"), node("b", "rhel 9.4"), node("a", "debian 12", gpu=False), node("aa", "")]
    for order in (nodes, nodes[::-1]):
        facts = cluster_facts("gpu-operator", order)
        assert facts.os_tag == "rhel9"
        assert facts.os_id == "rhel"
        assert facts.has_gpu_nodes


@pytest.mark.parametrize(("image", "expected"), [
    ("", "debian12"),
    ("r.example/driver:595-ubuntu24.04", "ubuntu24.04"),
    ("r.example/driver:595-debian12", "debian12"),
    ("r.example/driver:595-rhel9", "debian12"),
    ("r.example/driver@sha256:abc", "debian12"),
])
def test_the_running_drivers_system_stays_while_a_node_has_it(image: str, expected: str) -> None:
    nodes = [node("a", "debian 12"), node("b", "ubuntu 22.04"), node("c", "ubuntu 24.04")]
    assert cluster_facts("ns", nodes, running=RunningDrivers(image)).os_tag == expected


@pytest.mark.parametrize(("image", "expected"), [
    ("r.example/driver:595-ubuntu24.04", "ubuntu24.04"),
    ("r.example/driver:595-rhel9", "rhel9"),
    ("r.example/driver:595-grid-sles15.6", "sles15.6"),
    ("r.example/driver:595-sl-micro6.0", "sl-micro6.0"),
    ("r.example:5000/gpu-driver@sha256:abc", "debian12"),
    ("r.example/driver:595", "debian12"),
])
def test_the_running_drivers_system_stays_while_a_node_does_not_say_what_it_has(image: str, expected: str) -> None:
    nodes = [node("a", "debian 12"), node("b", "")]
    assert cluster_facts("ns", nodes, running=RunningDrivers(image)).os_tag == expected
    assert cluster_facts("ns", nodes[1:], running=RunningDrivers(image)).os_tag == ""


@pytest.mark.parametrize(("runtimes", "expected"), [
    (["cri-o://1.33", "containerd://2.1"], "containerd"),
    (["cri-o://1.33", "docker://27"], "crio"),
    (["docker://27", "cri-o://1.33"], "docker"),
    (["rkt://1", "cri-o://1.33"], "crio"),
    (["rkt://1"], "containerd"),
    (["containerd"], "containerd"),
    ([], "containerd"),
])
def test_runtime(runtimes: list[str], expected: str) -> None:
    nodes = [node(f"gpu-{number}", runtime=runtime) for number, runtime in enumerate(runtimes)]
    assert cluster_facts("ns", [*nodes, node("a-cpu", runtime="docker://27", gpu=False)]).runtime == expected


DRIVEN = {names.DEPLOY_DRIVER: "true"}


@pytest.mark.parametrize("labels", [
    {names.DEPLOY_DRIVER: "pre-installed"}, {names.DEPLOY_DRIVER: "false"}, {names.DEPLOY_OPERANDS: "false"},
    {names.WORKLOAD_CONFIG: "vm-passthrough"}, {names.WORKLOAD_CONFIG: "vm-vgpu"},
])
def test_nodes_that_are_to_have_no_driver_have_no_say_in_its_system(labels: dict[str, str]) -> None:
    without, joined = node("a", "debian 12"), node("b", "ubuntu 24.04")
    without = msgspec.structs.replace(without, labels={**without.labels, **labels})
    running = RunningDrivers("r.example/driver:595-debian12")
    facts = cluster_facts("ns", [without, joined], running=running, workloads=Workloads(enabled=True))
    assert facts.os_tag == "ubuntu24.04"
    assert cluster_facts("ns", [without], running=running, workloads=Workloads(enabled=True)).os_tag == "debian12"


def test_hosts_and_nodes_for_containers_each_decide_on_the_system_of_their_own_driver() -> None:
    nodes = [node("a", "debian 12"), node("b", "ubuntu 22.04"), node("c", "ubuntu 24.04"), node("d", "ubuntu 22.04")]
    still = {names.DEPLOY_VGPU_MANAGER: "true", names.WORKLOAD_CONFIG: "vm-passthrough"}
    labels: list[dict[str, str]] = [still, {names.WORKLOAD_CONFIG: "vm-vgpu"}, DRIVEN, {}]
    nodes = [msgspec.structs.replace(one, labels={**one.labels, **more}) for one, more in zip(nodes, labels, strict=True)]
    workloads = Workloads(enabled=True)
    facts = cluster_facts("ns", nodes, workloads=workloads)
    assert (facts.os_tag, facts.host_os_tag) == ("ubuntu24.04", "debian12")
    running = RunningDrivers("r.example/driver:595-ubuntu22.04", "r.example/manager:595-ubuntu22.04")
    facts = cluster_facts("ns", nodes, running=running, workloads=workloads)
    assert (facts.os_tag, facts.host_os_tag) == ("ubuntu22.04", "ubuntu22.04")


def test_a_vgpu_manager_that_virtual_machines_use_stays_for_the_system_that_it_is_for() -> None:
    host = node("a", "ubuntu 24.04")
    host = msgspec.structs.replace(host, labels={**host.labels, names.DEPLOY_VGPU_MANAGER: "true"})
    for in_use, expected in ((True, "ubuntu22.04"), (False, "ubuntu24.04")):
        running = RunningDrivers(host_image="r.example/manager:580-ubuntu22.04", hosts_in_use=in_use)
        assert cluster_facts("ns", [host, node("b", "debian 12")], running=running).host_os_tag == expected


def test_a_driver_stays_for_its_system_while_none_of_its_nodes_says_which_it_has() -> None:
    silent, other = node("a", ""), node("b", "debian 12")
    nodes = [msgspec.structs.replace(one, labels={**one.labels, names.DEPLOY_DRIVER: label})
             for one, label in ((silent, "true"), (other, "pre-installed"))]
    assert cluster_facts("ns", nodes, running=RunningDrivers("r.example/driver:595-ubuntu22.04")).os_tag == "ubuntu22.04"
    assert cluster_facts("ns", nodes).os_tag == "debian12"


@pytest.mark.parametrize(("made_for", "runtimes", "expected"), [
    ("crio", ["containerd://2.1", "cri-o://1.33"], "crio"),
    ("containerd", ["cri-o://1.33", "containerd://2.1"], "containerd"),
    ("crio", ["containerd://2.1"], "containerd"),
    ("", ["containerd://2.1", "cri-o://1.33"], "containerd"),
    ("nonsense", ["cri-o://1.33"], "crio"),
])
def test_the_runtime_of_a_driver_stays_while_a_node_has_it(made_for: str, runtimes: list[str], expected: str) -> None:
    nodes = [node(f"gpu-{number}", runtime=runtime) for number, runtime in enumerate(runtimes)]
    facts = cluster_facts("ns", nodes, running=RunningDrivers(runtimes={"driver": made_for}))
    assert facts.runtime_of_driver("driver") == expected
    assert facts.runtime_of_driver("another") == facts.runtime


def test_kernels_are_those_of_gpu_nodes_that_report_them() -> None:
    nodes = [
        node("a", kernel="6.8.0-45-generic", system="ubuntu 24.04"), node("b"), node("c"), node("d", kernel=""),
        node("e", kernel="5.4.0-1", gpu=False), node("f", kernel="5.14.0-427.el9.x86_64", system="rhel 9.4"),
    ]
    assert cluster_facts("ns", nodes).kernels == (
        NodeKernel("5.14.0-427.el9.x86_64", "rhel9.4", "rhel9"),
        NodeKernel("5.15.0-101-generic", "ubuntu22.04", "ubuntu22.04"),
        NodeKernel("6.8.0-45-generic", "ubuntu24.04", "ubuntu24.04"),
    )


def test_no_gpu_nodes() -> None:
    facts = cluster_facts("ns", [node("a", gpu=False)], References(has_service_monitors=True, config_maps={"c": ("k",)},
                                                                     secrets=frozenset({"s"})))
    assert not facts.has_gpu_nodes
    assert facts.os_tag == ""
    assert (facts.namespace, facts.has_service_monitor_crd, facts.config_maps, facts.secrets) == (
        "ns", True, {"c": ("k",)}, frozenset({"s"}),
    )
