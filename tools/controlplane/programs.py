"""The programs of the control plane: from which package each is built, and with which flags and files it runs."""

from __future__ import annotations

import base64
import itertools
import json
import random
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

RELEASES: Final = {"1.36": "v1.36.3", "1.32": "v1.32.2", "1.29": "v1.29.15"}
"""The releases of Kubernetes that can be built, the newest first. The Go module proxy does not have all patches of the older."""
NEWEST: Final = next(iter(RELEASES))
PACKAGES: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
"""From a program's name to its Go package."""
OF_KUBERNETES: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Those that come in the version of a release; the others are the same with all."""

DRIVER: Final = "nvidia-driver-daemonset"
VALIDATOR: Final = "nvidia-operator-validator"
OPERATOR_NAMESPACE: Final = "gpu-operator"

_MASTERS: Final = "system:masters"
USERS: Final = {
    "admin": ("admin", _MASTERS),
    "kube-controller-manager": ("system:kube-controller-manager", _MASTERS),
    "kube-scheduler": ("system:kube-scheduler", _MASTERS),
    "kwok": ("kwok", _MASTERS),
    "gpuward": (f"system:serviceaccount:{OPERATOR_NAMESPACE}:gpu-operator",
                f"system:serviceaccounts,system:serviceaccounts:{OPERATOR_NAMESPACE}"),
}
"""From a context of the kubeconfig to its user and groups. `gpuward` may only do what RBAC rules allow it."""

FIRST_PORT: Final = 20000
_LOOPBACK: Final = "127.0.0.1"
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_AUDIT: Final = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
                 "rules": [{"level": "Metadata"}]}
CROWD: Final = 500
"""Nodes for which two cores are enough; with more, heartbeats come late, and so do the controllers' caches."""
_PATIENCE: Final = ["--node-monitor-grace-period=600s"]
_NO_REST: Final = "--feature-gates=StaleControllerConsistencyDaemonSet=false"
"""With that gate, new in 1.36, the DaemonSet controller rests up to 1000 s each time its cache is behind its own writes."""
_NAMED_TOKENS: Final = "--feature-gates=ServiceAccountTokenJTI=true"
"""With that gate, which later releases have by default, the audit log names the token: tests tell operators apart by it."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Hold the TCP ports in use, all on the loopback interface."""

    api: int
    etcd: int
    etcd_peers: int


@dataclass(frozen=True, slots=True)
class Delays:
    """Hold how many seconds pods take to get ready; all others are ready at once."""

    driver: float = 0.0
    validator: float = 0.0


@dataclass(frozen=True, slots=True)
class Programs:
    """Hold where programs are, and of which release those of Kubernetes are."""

    folder: Path
    release: str = NEWEST


@dataclass(frozen=True, slots=True)
class Place:
    """Hold where a control plane lives: its programs, its state and its ports."""

    bin: Path
    run: Path
    ports: Ports
    real: tuple[str, ...] = ()
    """Names of real nodes that may join. With any, there are no simulated ones."""
    release: str = NEWEST

    @property
    def programs(self) -> list[str]:
        """Return the names of the programs that run here: kwok would claim real nodes, too."""
        return [name for name in PACKAGES if name != "kwok" or not self.real]

    @property
    def users(self) -> dict[str, tuple[str, str]]:
        """Return from each user's name in the kubeconfig to its name and groups."""
        return USERS | {name: (f"system:node:{name}", "system:nodes") for name in self.real}

    @property
    def egress(self) -> Path:
        """Return the socket of the proxy through which the API server reaches real nodes."""
        return self.run / "egress.sock"

    @property
    def server(self) -> str:
        """Return the address of the API server."""
        return f"https://{_LOOPBACK}:{self.ports.api}"

    @property
    def certificate(self) -> Path:
        """Return the file in which the API server leaves its certificate and the one that signed it."""
        return self.run / "certs" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig for people; the contexts are `users`."""
        return self.run / "kubeconfig"


def free_ports() -> Ports:
    """Return ports that nobody uses now, and that the kernel gives to no outgoing connection.

    Otherwise a client that tries to reach a server again while it is restarted may be given the server's own port.
    """
    given_out = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    tried = random.sample(range(FIRST_PORT, max(given_out, FIRST_PORT + 1000)), 100)
    return Ports(*itertools.islice(filter(_is_free, tried), 3))


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((_LOOPBACK, port)) != 0


def write_files(place: Place, stages: Path, delays: Delays) -> None:
    """Write everything that the programs read: tokens, keys and configurations."""
    place.run.mkdir(parents=True, mode=0o700)
    tokens = {name: secrets.token_hex(16) for name in place.users}
    rows = [f'{tokens[name]},{user},{name},"{groups}"' for name, (user, groups) in place.users.items()]
    (place.run / "tokens.csv").write_text("\n".join(rows) + "\n")
    (place.run / "service-accounts.key").write_text(new_key())
    for name in place.users:
        _write(place.run / f"{name}.kubeconfig", _kubeconfig(place, tokens, name))
    _write(place.kubeconfig, _kubeconfig(place, tokens, "admin"))
    _write(place.run / "audit-policy.json", _AUDIT)
    if place.real:
        _write(place.run / "egress.json", _egress(place))
    _write(place.run / "scheduler.json", {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(place.run / "kube-scheduler.kubeconfig"), "qps": 2000, "burst": 4000}})
    documents = with_delays(yaml.safe_load_all(stages.read_text()), delays)
    (place.run / "stages.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False))


def with_delays(stages: Iterable[dict[str, Any]], delays: Delays) -> list[dict[str, Any]]:
    """Return the stages with the time that pods of the driver and the validator take to get ready."""
    seconds = {DRIVER: f"{delays.driver}s", VALIDATOR: f"{delays.validator}s"}
    found = list(stages)
    for stage in found:
        if stage["metadata"]["name"] == "pod-ready":
            choice = f'{json.dumps(seconds)}[.metadata.labels.app // ""] // "0s"'
            stage["spec"]["delay"]["durationFrom"] = {"expressionFrom": choice}
    return found


def new_key() -> str:
    """Return a new private key for signing service account tokens: EC, P-256, as PEM (RFC 5915, public key left out)."""
    secret = (secrets.randbelow(_P256_ORDER - 1) + 1).to_bytes(32, "big")
    prime256v1 = bytes.fromhex("06082a8648ce3d030107")
    body = b"\x02\x01\x01" + b"\x04\x20" + secret + b"\xa0\x0a" + prime256v1
    text = base64.b64encode(b"\x30" + bytes([len(body)]) + body).decode()
    lines = [text[start:start + 64] for start in range(0, len(text), 64)]
    return "\n".join(["-----BEGIN EC PRIVATE KEY-----", *lines, "-----END EC PRIVATE KEY-----", ""])


def command_lines(place: Place, nodes: int = 0) -> dict[str, list[str]]:
    """Return from each program's name to its command line, in the order in which they start, for a fleet of so many nodes."""
    flags = {
        "etcd": _etcd(place),
        "kube-apiserver": _apiserver(place),
        "kube-controller-manager": _controller_manager(place) + (_patience(place.release) if nodes > CROWD else []),
        "kube-scheduler": [f"--config={place.run / 'scheduler.json'}", "--secure-port=0"],
        "kwok": [f"--kubeconfig={place.run / 'kwok.kubeconfig'}", f"--config={place.run / 'stages.yaml'}",
                 "--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--cidr=10.244.0.0/16"],
    }
    return {name: [str(place.bin / name), *flags[name]] for name in place.programs}


def _etcd(place: Place) -> list[str]:
    clients = f"http://{_LOOPBACK}:{place.ports.etcd}"
    peers = f"http://{_LOOPBACK}:{place.ports.etcd_peers}"
    return ["--name=etcd", f"--data-dir={place.run / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}", f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=etcd={peers}"]


def _apiserver(place: Place) -> list[str]:
    key = place.run / "service-accounts.key"
    return [
        f"--etcd-servers=http://{_LOOPBACK}:{place.ports.etcd}",
        f"--bind-address={_LOOPBACK}", f"--advertise-address={_LOOPBACK}", f"--secure-port={place.ports.api}",
        # An address of the loopback interface may not stand in the endpoints of the service `kubernetes`.
        "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
        f"--cert-dir={place.certificate.parent}", f"--token-auth-file={place.run / 'tokens.csv'}",
        *(_for_real_nodes(place) if place.real else ["--authorization-mode=RBAC"]), "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={key}", f"--service-account-key-file={key}",
        f"--audit-policy-file={place.run / 'audit-policy.json'}", f"--audit-log-path={place.run / 'audit.log'}",
        "--audit-log-mode=batch", "--audit-log-batch-max-wait=1s",
        "--enable-priority-and-fairness=false", "--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
        *([_NAMED_TOKENS] if place.release == "1.29" else []),
    ]


def _for_real_nodes(place: Place) -> list[str]:
    return ["--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP", f"--egress-selector-config-file={place.run / 'egress.json'}"]


def _egress(place: Place) -> dict[str, Any]:
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(place.egress)}}}
    return {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}]}


def _controller_manager(place: Place) -> list[str]:
    return [
        f"--kubeconfig={place.run / 'kube-controller-manager.kubeconfig'}", "--secure-port=0", "--leader-elect=false",
        f"--service-account-private-key-file={place.run / 'service-accounts.key'}", f"--root-ca-file={place.certificate}",
        "--kube-api-qps=2000", "--kube-api-burst=4000",
    ]


def _patience(release: str) -> list[str]:
    return [*_PATIENCE, _NO_REST] if release == NEWEST else _PATIENCE


def _kubeconfig(place: Place, tokens: dict[str, str], current: str) -> dict[str, Any]:
    cluster = {"server": place.server, "certificate-authority": str(place.certificate)}
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": current,
        "clusters": [{"name": "controlplane", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}} for name, token in tokens.items()],
        "contexts": [{"name": name, "context": {"cluster": "controlplane", "user": name}} for name in tokens],
    }


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n")
