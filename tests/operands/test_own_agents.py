"""Pods whose validator or driver manager is gpuward's: no shell is started, and nothing else changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuward.operands.objects import Json
from gpuward.operands.own_agents import is_own
from tests.operands.build import container, names, objects, states

EVERY: Json = {"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}}
OWN = {"repository": "registry.example/tools", "image": "gpuward", "version": "0.1.0"}
IMAGE = "registry.example/tools/gpuward:0.1.0"


def pods(spec: Json) -> dict[str, Json]:
    made = objects(states({**EVERY, **spec}).values())
    return {obj["metadata"]["name"]: obj["spec"]["template"]["spec"] for obj in made.values() if obj["kind"] == "DaemonSet"}


def every(pod: Json) -> list[Json]:
    return [*pod.get("initContainers", []), *pod["containers"]]


@pytest.mark.parametrize(("image", "own"), [
    ("gpuward", True), ("r:5000/a/gpuward:1", True), ("r/gpuward@sha256:ab", True), ("r/gpuward-extra:1", False),
    ("nvcr.io/nvidia/gpu-operator:v26.7.0", False), ("gpuward/other:1", False), ("", False)])
def test_an_image_is_known_by_its_name(image: str, own: bool) -> None:
    assert is_own(image) is own


def test_all_that_runs_in_the_validators_image_starts_it_without_a_shell() -> None:
    rendered = pods({"validator": OWN})
    ours = {(name, each["name"]): (each["command"], each.get("args")) for name, pod in rendered.items() for each in every(pod)
            if each["image"] == IMAGE}
    alone, toolkit = (["nvidia-validator"], None), (["nvidia-validator"], ["await", "toolkit-ready"])
    validator = "nvidia-operator-validator"
    assert ours.pop((validator, validator)) == (["nvidia-validator"], ["idle"])
    for component in ("driver", "toolkit", "cuda", "plugin"):
        assert ours.pop((validator, f"{component}-validation")) == alone
    assert ours.pop(("nvidia-container-toolkit-daemonset", "driver-validation")) == alone
    assert ours
    assert all(started == toolkit for (_, name), started in ours.items() if name == "toolkit-validation")
    assert {name for _, name in ours} == {"toolkit-validation"}


SANDBOXES: Json = {
    "sandboxWorkloads": {"enabled": True}, "ccManager": {"enabled": True},
    "vgpuManager": {"enabled": True, "repository": "r", "image": "vgpu-manager", "version": "1"}}
MANAGED: Json = {"vgpuManager": {**SANDBOXES["vgpuManager"], "driverManager": OWN}, "vfioManager": {"driverManager": OWN}}


def started(rendered: dict[str, Json]) -> dict[tuple[str, str], tuple[list[str], list[str] | None]]:
    """Return how the containers start that have our image."""
    return {(name, each["name"]): (each["command"], each.get("args")) for name, pod in rendered.items() for each in every(pod)
            if each["image"] == IMAGE}


@pytest.mark.parametrize("mode", ["kubevirt", "kata"])
def test_what_waits_on_nodes_for_virtual_machines_waits_for_the_same_files(mode: str) -> None:
    rendered = pods({**SANDBOXES, "sandboxWorkloads": {"enabled": True, "mode": mode}, "validator": OWN})
    ours = {key: args for key, (_, args) in started(rendered).items()
            if "sandbox" in key[0] or "vgpu" in key[0]}
    validator = "nvidia-sandbox-validator"
    for component in ("vfio-pci", "vgpu-manager", "vgpu-devices", "cc-manager"):
        assert ours.pop((validator, f"{component}-validation")) is None
    assert ours.pop((validator, validator)) == ["idle", "--component=vgpu-devices"], "it removes what its own pod has left"
    assert ours.pop(("nvidia-vgpu-device-manager", "vgpu-manager-validation")) == [
        "await", "vgpu-manager-ready", "host-vgpu-manager-ready"]
    plugin = "nvidia-kata-sandbox-device-plugin-daemonset" if mode == "kata" else "nvidia-sandbox-device-plugin-daemonset"
    assert ours.pop((plugin, "vfio-pci-validation")) == ["await-for", "vm-passthrough", "vfio-pci-ready"]
    if mode == "kubevirt":
        assert ours.pop((plugin, "vgpu-devices-validation")) == ["await-for", "vm-vgpu", "vgpu-devices-ready"]
    assert ours == {}


def test_no_container_of_ours_is_left_with_a_shell() -> None:
    rendered = pods({**SANDBOXES, **MANAGED, "validator": OWN, "nodeStatusExporter": {"enabled": True, **OWN}})
    assert {command[0] for command, _ in started(rendered).values()} == {"nvidia-validator", "driver-manager"}


def test_driver_managers_of_virtual_machines_are_root_and_see_who_uses_gpus() -> None:
    before, after = pods(SANDBOXES), pods({**SANDBOXES, **MANAGED})
    for name in ("nvidia-vfio-manager", "nvidia-vgpu-manager-daemonset"):
        manager = container(after[name], "k8s-driver-manager")
        assert (manager["image"], manager["securityContext"]["runAsUser"], after[name]["hostPID"]) == (IMAGE, 0, True)
    assert "hostPID" not in before["nvidia-vfio-manager"]


def rights(spec: Json, name: str) -> set[tuple[str, str]]:
    """Return what an account may do in the cluster, as pairs of a verb and a resource."""
    made = objects(states({**EVERY, **spec}).values())
    rules = next(obj["rules"] for obj in made.values() if obj["kind"] == "ClusterRole" and obj["metadata"]["name"] == name)
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize("name", ["nvidia-driver", "nvidia-vfio-manager", "nvidia-vgpu-manager"])
def test_a_driver_manager_of_ours_may_tell_why_it_waits(name: str) -> None:
    ours = rights({**SANDBOXES, **MANAGED, "driver": {"manager": OWN}}, name)
    assert {("create", "events"), ("get", "resourceclaims")} <= ours
    assert ("create", "events") not in rights(SANDBOXES, name)


def test_arguments_of_people_do_not_stop_the_operator() -> None:
    pod = pods({"validator": {**OWN, "args": ["one", "two"]}})["nvidia-operator-validator"]
    assert container(pod, "nvidia-operator-validator")["args"] == ["one", "two"]


def test_the_agents_are_root_and_nobody_else_becomes_it() -> None:
    before, after = pods({}), pods({"validator": OWN, "driver": {"manager": OWN}})
    for name, pod in after.items():
        for old, new in zip(every(before[name]), every(pod), strict=True):
            if new["image"] == IMAGE:
                assert new["securityContext"] == {**old["securityContext"], "runAsUser": 0, "runAsNonRoot": False}
            else:
                assert {**new, "env": 0} == {**old, "env": 0}


def test_the_driver_manager_is_started_by_its_name() -> None:
    pod = pods({"driver": {"manager": OWN}})["nvidia-driver-daemonset"]
    manager = container(pod, "k8s-driver-manager")
    assert (manager["image"], manager["command"], manager["args"]) == (IMAGE, ["driver-manager"], ["uninstall_driver"])
    assert names(pod["initContainers"]) == ["k8s-driver-manager"]


def test_the_validator_that_stays_takes_its_files_away_itself() -> None:
    assert "lifecycle" in container(pods({})["nvidia-operator-validator"], "nvidia-operator-validator")
    assert "lifecycle" not in container(pods({"validator": OWN})["nvidia-operator-validator"], "nvidia-operator-validator")


def test_the_exporter_looks_at_the_driver_where_the_validator_does() -> None:
    """As on hosts whose driver is in another folder; NVIDIA's tells of none there."""
    spec = {"nodeStatusExporter": {"enabled": True, **OWN}, "hostPaths": {"driverInstallDir": "/home/kubernetes/bin/nvidia"}}
    exporter = container(pods(spec)["nvidia-node-status-exporter"], "nvidia-node-status-exporter")
    said = {each["name"]: each.get("value") for each in exporter["env"]}
    assert said["DRIVER_INSTALL_DIR_CTR_PATH"] == "/host/home/kubernetes/bin/nvidia"
    usual = container(pods({"nodeStatusExporter": {"enabled": True, **OWN}})["nvidia-node-status-exporter"],
                      "nvidia-node-status-exporter")
    assert "DRIVER_INSTALL_DIR_CTR_PATH" not in {each["name"] for each in usual["env"]}


def documented() -> dict[str, tuple[set[str], set[str]]]:
    """Return what is mounted by the containers of each row of the table in the docs: all of it, and what is read-only."""
    rows = {}
    text = (Path(__file__).parents[2] / "docs/agents.md").read_text(encoding="utf-8").partition("## What the containers need")[2]
    for line in text.splitlines():
        if line.startswith("| ") and "mounted" not in line:
            _, name, mounted, *_ = (cell.strip() for cell in line.split("|"))
            paths = [set(re.findall("`(/[^`]*)`", part)) for part in mounted.partition("; read-only:")[::2]]
            rows[name.strip("`")] = (paths[0] | paths[1], paths[1])
    return rows


def test_what_the_containers_mount_is_what_the_docs_say() -> None:
    table, waiting = documented(), "those that wait for a status file"
    rest = "all other validations, and the container that stays"
    seen = set()
    for mode in (None, "kubevirt", "kata"):
        virtual = {**SANDBOXES, **MANAGED, "sandboxWorkloads": {"enabled": True, "mode": mode}} if mode else {}
        for name, pod in pods({**virtual, "validator": OWN, "nodeStatusExporter": {"enabled": True, **OWN},
                               "driver": {"manager": OWN}}).items():
            paths = {each["name"]: each.get("hostPath", {}).get("path", "").rstrip("/") or "/host" for each in pod["volumes"]}
            for each in (found for found in every(pod) if found["image"] == IMAGE):
                row = waiting if (each.get("args") or [""])[0].startswith("await") else each["name"]
                row = row if row in table else rest
                seen.add(row)
                everything, read_only = table[row]
                mounted = {paths[mount["name"]] for mount in each["volumeMounts"]}
                assert mounted <= everything, (name, each["name"])
                assert len(mounted) == 1 if row == waiting else mounted >= everything - {"/run/mellanox/drivers"}, (name, row)
                assert {paths[mount["name"]] for mount in each["volumeMounts"] if mount.get("readOnly")} == read_only, (name, row)
    assert seen == set(table) - {"workload pods"} - {"container", "---"}
