"""What a person and a pod can do with real nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.node.realnodes import ROOT, Nodes, build_image, eventually, running

pytestmark = pytest.mark.realnode


def test_the_nodes_are_real_and_ready(nodes: Nodes) -> None:
    found = {node["metadata"]["name"]: node["status"] for node in nodes.get("nodes")["items"]}
    assert set(found) == {"node-1", "node-2"}
    for status in found.values():
        assert status["nodeInfo"]["kubeletVersion"] == "v1.36.3"
        assert status["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
        assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"


def test_status_says_what_runs(nodes: Nodes) -> None:
    said = nodes.run("status")
    assert {"kube-apiserver", "router", "node-1", "node-2"} <= set(nodes.pids(said))
    assert "kwok" not in said
    assert "ready, 2 nodes are too" in said
    assert f"KUBECONFIG={nodes.kubeconfig}\n" in said


def test_logs(nodes: Nodes) -> None:
    assert nodes.kubectl("logs", "probe-2") == "serving\n"


def test_exec_with_input(nodes: Nodes) -> None:
    assert nodes.kubectl("exec", "-i", "probe-1", "--", "/probe", "repeat", given="to and fro\n") == "to and fro\n"


def test_port_forward(nodes: Nodes) -> None:
    with nodes.forward("probe-1") as port, urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
        assert answer.read() == b"hello from probe-1\n"


def test_a_pod_reaches_the_api_server_with_its_token(nodes: Nodes) -> None:
    user = json.loads(nodes.execute("probe-1", "api"))["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:default"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == ["node-1"]


def test_a_pod_reaches_one_on_another_node(nodes: Nodes) -> None:
    address = nodes.get("pod", "probe-2")["status"]["podIP"]
    assert nodes.execute("probe-1", "get", f"http://{address}:8080/") == "hello from probe-2\n"


def test_an_image_that_is_nowhere_is_told(nodes: Nodes) -> None:
    nodes.kubectl("run", "nowhere", "--image=localhost/nowhere:1", "--restart=Never")

    def reason() -> str:
        statuses = nodes.get("pod", "nowhere")["status"].get("containerStatuses") or [{"state": {}}]
        told: str = statuses[0]["state"].get("waiting", {}).get("reason", "")
        return told

    eventually("the pull fails", lambda: reason() in ("ErrImagePull", "ImagePullBackOff"))
    nodes.kubectl("delete", "pod", "nowhere", "--now")


def test_an_image_is_pulled_from_the_registry_whatever_its_name_says(nodes: Nodes, tmp_path: Path) -> None:
    name = "nvcr.io/nvidia/cloud-native/probe:v2"
    nodes.run("push", str(build_image(tmp_path, name)))
    nodes.pod("pulled", {"image": name, "imagePullPolicy": "Always"})
    events = nodes.get("events", "--field-selector=involvedObject.name=pulled,reason=Pulled")["items"]
    assert [event["message"].partition('" in')[0] for event in events] == [f'Successfully pulled image "{name}']


def test_a_node_may_change_itself_only(nodes: Nodes) -> None:
    """Each kubelet acts as its node, under the rules of real clusters."""
    asked = ["kubectl", "--kubeconfig", str(nodes.state / "controlplane" / "node-1.kubeconfig"), "annotate", "node"]
    subprocess.run([*asked, "node-1", "a=b"], capture_output=True, check=True)
    refused = subprocess.run([*asked, "node-2", "a=b"], capture_output=True, text=True, check=False)
    assert "only its own Node object" in refused.stderr


def test_a_device_plugin_hands_out_devices(nodes: Nodes, tmp_path: Path) -> None:
    nodes.run("load", str(build_image(tmp_path, "docker.io/library/plugin:1", "plugin.go", ROOT / "tools" / "controlplane")))
    folders = {"plugins": "/var/lib/kubelet/device-plugins", "cdi": "/var/run/cdi"}
    nodes.pod("plugin", {"image": "plugin:1", "volumeMounts": [{"name": name, "mountPath": at} for name, at in folders.items()]},
              nodeName="node-1",
              volumes=[{"name": name, "hostPath": {"path": at, "type": "DirectoryOrCreate"}} for name, at in folders.items()])
    eventually("the devices count", lambda: nodes.get("node", "node-1")["status"]["allocatable"].get("gpuward.io/part") == "2")
    nodes.pod("user", {"resources": {"limits": {"gpuward.io/part": 1}}})
    assert nodes.get("pod", "user")["spec"]["nodeName"] == "node-1"
    device = nodes.execute("user", "env", "PART")
    assert device in ("one\n", "two\n")
    # Debian's containerd does not know CDI.
    assert nodes.execute("user", "env", "PART_BY_CDI") == (device if os.environ.get("GPUWARD_CONTAINERD") == "2" else "\n")


@pytest.mark.parametrize("program", ["kubelet", "containerd"])
def test_a_program_that_is_killed_comes_back_and_finds_the_pods(nodes: Nodes, program: str) -> None:
    before = nodes.get("pod", "probe-1")["status"]["containerStatuses"][0]["containerID"]
    killed = running(nodes.state, program)
    for each in killed:
        os.kill(each, signal.SIGKILL)
    eventually("there are others", lambda: len(set(running(nodes.state, program)) - set(killed)) == 2)
    eventually("a node answers", lambda: subprocess.run(
        nodes.kubectl_line("exec", "probe-1", "--", "/probe", "say", "yes"), capture_output=True, check=False).stdout == b"yes\n")
    assert nodes.get("pod", "probe-1")["status"]["containerStatuses"][0]["containerID"] == before
