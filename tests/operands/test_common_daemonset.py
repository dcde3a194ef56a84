"""The policy's sections `daemonsets` and `hostPaths`, on every DaemonSet."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.operands.objects import Json
from tests.operands.build import container, env, objects, pod, states

COUNT = 8
"""DaemonSets of the default policy."""


def daemon_sets(spec: dict[str, Any]) -> dict[str, Json]:
    found = {key.removeprefix("DaemonSet/"): obj for key, obj in objects(states(spec).values()).items() if "DaemonSet/" in key}
    assert len(found) == COUNT
    return found


def test_labels_change_metadata_but_not_what_pods_are_selected_by() -> None:
    labels = {"app": "mine", "app.kubernetes.io/part-of": "mine", "team": "ml"}
    for name, obj in daemon_sets({"daemonsets": {"labels": labels}}).items():
        template = obj["spec"]["template"]["metadata"]["labels"]
        assert labels.items() <= obj["metadata"]["labels"].items()
        assert obj["spec"]["selector"]["matchLabels"].items() <= template.items()
        assert template["app"] == name
        assert template["team"] == "ml"
        assert template.get("app.kubernetes.io/part-of") != "mine"


def test_annotations_are_added_to_daemon_set_and_pods() -> None:
    for name, obj in daemon_sets({"daemonsets": {"annotations": {"note": "x"}}}).items():
        assert obj["metadata"]["annotations"]["note"] == "x"
        assert obj["spec"]["template"]["metadata"]["annotations"]["note"] == "x"
        if name == "nvidia-driver-daemonset":
            assert "kubectl.kubernetes.io/default-container" in obj["spec"]["template"]["metadata"]["annotations"]


def test_tolerations_replace_and_pods_get_class_and_security_context() -> None:
    common = {"tolerations": [{"operator": "Exists"}], "priorityClassName": "high", "podSecurityContext": {"fsGroup": 7}}
    for obj in daemon_sets({"daemonsets": common}).values():
        rendered = obj["spec"]["template"]["spec"]
        assert rendered["tolerations"] == [{"operator": "Exists"}]
        assert rendered["priorityClassName"] == "high"
        assert rendered["securityContext"] == {"fsGroup": 7}


def test_no_tolerations_in_the_policy_keep_the_usual_one() -> None:
    for obj in daemon_sets({"daemonsets": {"tolerations": [], "priorityClassName": ""}}).values():
        rendered = obj["spec"]["template"]["spec"]
        assert rendered["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        assert rendered["priorityClassName"] == "system-node-critical"


@pytest.mark.parametrize(("common", "expected"), [
    ({"rollingUpdate": {"maxUnavailable": "3"}}, {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}),
    ({"rollingUpdate": {"maxUnavailable": "20%"}}, {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}}),
    ({"rollingUpdate": None}, None),
    ({"updateStrategy": "OnDelete"}, {"type": "OnDelete"}),
])
def test_update_strategy_of_all_but_the_driver(common: dict[str, Any], expected: Json | None) -> None:
    for name, obj in daemon_sets({"daemonsets": common}).items():
        wanted = {"type": "OnDelete"} if name == "nvidia-driver-daemonset" else expected
        assert obj["spec"].get("updateStrategy") == wanted


@pytest.mark.parametrize("limit", ["many", "10 %", "-1", "%"])
def test_an_update_limit_that_is_no_number_is_refused(limit: str) -> None:
    failed = states({"daemonsets": {"rollingUpdate": {"maxUnavailable": limit}}})["state-device-plugin"].error
    assert failed is not None
    assert failed.value == limit


def test_host_root_reaches_containers_of_pods_that_mount_it() -> None:
    for name, obj in daemon_sets({"hostPaths": {"rootFS": "/writable/"}}).items():
        rendered = obj["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in rendered["volumes"]}
        containers = (*rendered["initContainers"], *rendered["containers"])
        assert all((env(each).get("HOST_ROOT") == "/writable/") == ("host-root" in volumes) for each in containers), name
        if "host-dev-char" in volumes:
            assert volumes["host-dev-char"]["hostPath"]["path"] == "/writable/dev/char"


def test_driver_install_dir_reaches_the_validation_but_not_the_driver() -> None:
    spec = {"hostPaths": {"driverInstallDir": "/opt/driver"}}
    validation = container(pod("nvidia-operator-validator", spec), "driver-validation")
    assert env(validation)["DRIVER_INSTALL_DIR"] == env(validation)["DRIVER_INSTALL_DIR_CTR_PATH"] == "/opt/driver"
    assert "/opt/driver" in [mount["mountPath"] for mount in validation["volumeMounts"]]
    assert pod("nvidia-driver-daemonset", spec) == pod("nvidia-driver-daemonset")
