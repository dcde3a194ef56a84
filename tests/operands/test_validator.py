"""The validator's own pod, and its part in the pods of others."""

from __future__ import annotations

import pytest

from gpuward.operands.objects import Json
from tests.operands.build import IMAGES, container, env, facts, names, objects, pod, states

NAME = "nvidia-operator-validator"
EVERY = {"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}}


def pods(spec: Json) -> dict[str, Json]:
    made = objects(states({**EVERY, **spec}).values())
    return {obj["metadata"]["name"]: obj["spec"]["template"]["spec"] for obj in made.values() if obj["kind"] == "DaemonSet"}


def test_checks_run_in_order() -> None:
    checks = ["driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation"]
    assert names(pod(NAME)["initContainers"]) == checks


def test_no_device_plugin_no_check_of_it() -> None:
    rendered = pod(NAME, {"devicePlugin": {"enabled": False}})
    assert names(rendered["initContainers"]) == ["driver-validation", "toolkit-validation", "cuda-validation"]


@pytest.mark.parametrize("check", ["cuda", "plugin"])
def test_workload_checks_know_image_and_secrets(check: str) -> None:
    validator = {"imagePullSecrets": ["a", "b"], "imagePullPolicy": "Always", check: {"env": [{"name": "OWN", "value": "1"}]}}
    values = env(container(pod(NAME, {"validator": validator}), f"{check}-validation"))
    expected = {
        "VALIDATOR_IMAGE": "nvcr.io/nvidia/gpu-operator:v26.7.0", "VALIDATOR_IMAGE_PULL_POLICY": "Always",
        "VALIDATOR_IMAGE_PULL_SECRETS": "a,b", "VALIDATOR_RUNTIME_CLASS": "nvidia", "OWN": "1",
    }
    assert expected.items() <= values.items()


def test_workloads_have_no_runtime_class_where_the_validator_has_none() -> None:
    rendered = pod(NAME, {"cdi": {"enabled": False}}, facts(runtime="crio"))
    assert "VALIDATOR_RUNTIME_CLASS" not in env(container(rendered, "cuda-validation"))


def test_validator_options_reach_the_waiting_containers_of_every_operand() -> None:
    resources = {"limits": {"memory": "64Mi"}}
    validator = {"resources": resources, "imagePullPolicy": "Never", "toolkit": {"env": [{"name": "T", "value": "1"}]},
                 "driver": {"env": [{"name": "D", "value": "1"}]}, "env": [{"name": "V", "value": "1"}]}
    waiting = [
        each for rendered in pods({"validator": validator}).values()
        for each in rendered.get("initContainers", []) if "validation" in each["name"]
    ]
    assert len(waiting) == 4 + 7
    for each in waiting:
        assert each["resources"] == resources
        assert each["imagePullPolicy"] == "Never"
        assert each["securityContext"]["runAsUser"] == 0
        assert ("T" in env(each)) == (each["name"] == "toolkit-validation")
        assert ("D" in env(each)) == (each["name"] == "driver-validation")
        assert "V" not in env(each)


def test_pull_secrets_of_the_validator_are_on_every_pod_that_runs_its_image_to_wait() -> None:
    for name, rendered in pods({"validator": {"imagePullSecrets": ["val"]}}).items():
        expected = None if name in ("nvidia-driver-daemonset", "nvidia-node-status-exporter") else [{"name": "val"}]
        assert rendered.get("imagePullSecrets") == expected, name


def test_the_operators_environment_gives_the_image() -> None:
    blank = {"validator": {"repository": None, "image": None, "version": None}}
    made = objects(states(blank, images={**IMAGES, "VALIDATOR_IMAGE": "mirror.example/validator:1"}).values())
    rendered = made[f"DaemonSet/{NAME}"]["spec"]["template"]["spec"]
    assert {each["image"] for each in (*rendered["initContainers"], *rendered["containers"])} == {"mirror.example/validator:1"}


def test_no_image_of_the_validator_stops_every_state_that_waits_with_it() -> None:
    blank = {"validator": {"repository": None, "image": None, "version": None}}
    failed = {name for name, state in states(blank, images={}).items() if state.error}
    assert failed == {
        "state-container-toolkit", "state-operator-validation", "state-device-plugin", "state-mps-control-daemon",
        "state-dcgm-exporter", "gpu-feature-discovery", "state-mig-manager",
    }
