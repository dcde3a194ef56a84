"""What the programs of a node read: configurations of containerd, its network plugins and the kubelet."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tools.node import network
from tools.node.network import Address
from tools.node.root import OWN

PAUSE = "localhost/gpuward-node/pause:1"
SOCKET = "/run/containerd/containerd.sock"
CTR = ("ctr", "--address", SOCKET)
"""How containerd's own command line begins, within a node."""
KUBERNETES = "k8s.io"
"""The namespace of containerd that the kubelet's images and containers are in."""
CNI_BIN = ("/usr/lib/cni", "/opt/cni/bin")
"""Where distributions put network plugins."""
PLUGINS = ("ptp", "host-local", "loopback")


def cni_bin() -> Path | None:
    """Return the folder with the network plugins that nodes need; None where none has them all."""
    return next((Path(each) for each in CNI_BIN if all((Path(each) / name).is_file() for name in PLUGINS)), None)


def write(own: Path, node: Address, kubeconfig: Path) -> None:
    """Write them all to the folder that the node will see as its own."""
    own.mkdir(parents=True, exist_ok=True)
    (own / "cni").mkdir(exist_ok=True)
    (own / "containerd.toml").write_text(_containerd())
    (own / "cni" / "10-pods.conflist").write_text(json.dumps(_pods(node)))
    (own / "kubelet.json").write_text(json.dumps(_kubelet(node)))
    (own / "kubeconfig").write_text(_kubeconfig(kubeconfig))
    (own / "kubeconfig").chmod(0o600)


def _containerd() -> str:
    cri = '[plugins."io.containerd.grpc.v1.cri"'
    # Without CAP_SYS_RESOURCE no process may be made less likely to be killed than this one is. A profile of AppArmor would
    # stay in the kernel.
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
{cri}]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
{cri}.cni]
  bin_dir = "{cni_bin()}"
  conf_dir = "{OWN}/cni"
{cri}.registry]
  config_path = "{OWN}/registries"
{cri}.containerd]
  default_runtime_name = "runc"
{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def _pods(node: Address) -> dict[str, Any]:
    addresses = {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": node.pods}]],
                 "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}]}


def _kubelet(node: Address) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": node.ip,
        # Only nodes and pods can reach it, and the API server has no certificate to show.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "failCgroupV1": False, "cgroupDriver": "cgroupfs", "cgroupRoot": "/", "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "clusterDNS": [network.SERVICE.rpartition(".")[0] + ".10"], "clusterDomain": "cluster.local", "resolvConf": "",
        "nodeStatusUpdateFrequency": "2s",
        # What is loaded must stay, and the machine's own disk and memory are not the node's to guard.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
    }


def _kubeconfig(source: Path) -> str:
    """Return a node's kubeconfig as it must be within the node, where this machine's files and addresses mean nothing."""
    config = json.loads(source.read_text())
    certificate = Path(config["clusters"][0]["cluster"]["certificate-authority"]).read_bytes()
    cluster = {"server": f"https://{network.SERVICE}", "certificate-authority-data": base64.b64encode(certificate).decode()}
    name = config["current-context"]
    return json.dumps({**config, "clusters": [{"name": config["clusters"][0]["name"], "cluster": cluster}],
                       "contexts": [each for each in config["contexts"] if each["name"] == name],
                       "users": [each for each in config["users"] if each["name"] == name]})
