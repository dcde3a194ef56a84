"""Draw values for fields of NVIDIA's CRDs: of the type that the schema says, and such that Kubernetes can run what follows."""

from __future__ import annotations

from random import Random
from typing import Any, Final

Schema = dict[str, Any]
Path = tuple[str, ...]

DRIVERS: Final = ("595.91.07", "595.91.08", "600.10.01")
BRANCHES: Final = ("580", "590")
CONFIG_MAPS: Final = ("settings-a", "settings-b")
"""ConfigMaps and Secrets that are there, for whatever refers to one."""
KEYS: Final = ("first", "second", "gridd.conf", "client_configuration_token.tok", "nvidia-topologyd.conf")
"""What each of them has."""
LABELS: Final = ("team", "example.com/tier", "cost")
REMOVED: Final = object()

_SECURITY: Final[tuple[dict[str, Any], ...]] = (
    {"runAsUser": 0}, {"fsGroup": 2000, "fsGroupChangePolicy": "OnRootMismatch"}, {"runAsNonRoot": False},
    {"seccompProfile": {"type": "RuntimeDefault"}}, {"supplementalGroups": [1, 2]}, {})
_TOLERATIONS: Final = ({"operator": "Exists"}, {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                       {"key": "team", "operator": "Equal", "value": "ml"}, {"key": "maintenance", "effect": "NoExecute",
                        "operator": "Exists", "tolerationSeconds": 60})
_RELABELINGS: Final = ({"action": "drop", "regex": "x"}, {"sourceLabels": ["__a"], "targetLabel": "a", "replacement": "$1"},
                       {"targetLabel": "b", "replacement": "c", "action": "replace"})
_AFFINITIES: Final = ({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}]}},
    {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": {
        "matchExpressions": [{"key": "pool", "operator": "Exists"}]}}]})
_WHOLE: Final[dict[str, tuple[Any, ...]]] = {
    "podSecurityContext": _SECURITY, "nodeAffinity": _AFFINITIES,
    "resources": ({}, {"requests": {"cpu": "10m"}}, {"limits": {"memory": "1Gi", "cpu": 1}},
                  {"requests": {"memory": "100Mi"}, "limits": {"memory": "200Mi"}}),
    "startupProbe": ({}, {"initialDelaySeconds": 30}, {"periodSeconds": 5, "failureThreshold": 60}),
    "nodeSelector": ({"pool": "a"}, {"pool": "b"}),
}
"""Fields that are changed as a whole: parts of them say nothing alone."""
_ITEMS: Final[dict[str, tuple[Any, ...]]] = {
    "tolerations": _TOLERATIONS, "relabelings": _RELABELINGS, "imagePullSecrets": CONFIG_MAPS,
    "env": tuple({"name": name, "value": value} for name in ("LOG_LEVEL", "EXTRA") for value in ("", "1", "two words")),
    "args": ("--verbose", "--level=2", "x"), "podLabelAllowlistRegex": ("app", "team.*"),
    "runtimeClasses": ({"name": "kata-a", "artifacts": {"url": "registry.example/a:1"}},),
}
"""What items of a list are drawn from."""
_NAMED: Final[dict[str, tuple[Any, ...]]] = {
    "priorityClassName": ("system-node-critical", "system-cluster-critical", ""),
    "imagePullPolicy": ("Always", "IfNotPresent", ""),
    "runtimeClass": ("nvidia", "nvidia-legacy"), "defaultRuntime": ("containerd", "docker", "crio"),
    "internalTrafficPolicy": ("Cluster", "Local"), "interval": ("15s", "1m", ""), "scrapeTimeout": ("5s", "10s"),
    "maxUnavailable": (1, 2, "25%", "50%", "100%"), "maxParallelUpgrades": (0, 1, 2), "hostPort": (5555, 5556),
    "root": ("/run/nvidia/mps", "/opt/mps"), "installDir": ("/usr/local/nvidia", "/opt/nvidia"), "rootFS": ("/", "/host"),
    "driverInstallDir": ("/run/nvidia/driver", "/opt/driver"), "kubeletRootDir": ("/var/lib/kubelet", "/data/kubelet"),
    "directory": ("/var/jobs", ""), "artifactsDir": ("/opt/kata", "/opt/artifacts"), "podSelector": ("", "app=train"),
    "secretEnv": CONFIG_MAPS, "secretName": CONFIG_MAPS, "configMapName": CONFIG_MAPS, "url": ("registry.example/a:1",),
    "timeoutSeconds": (30, 300), "repository": ("nvcr.io/nvidia", "registry.example/mirror"),
    "image": ("operand", "driver", "registry.example/operand:2"), "version": ("v1.0.0", "v2.0.0", "1.2.3-ubuntu22.04"),
    "priority": (1, 2),
}
"""Fields whose schema says less than Kubernetes or the operator wants."""
_AT: Final[dict[Path, tuple[Any, ...]]] = {
    ("dcgmExporter", "service", "type"): ("ClusterIP", "NodePort", "LoadBalancer"),
    ("devicePlugin", "config", "default"): KEYS, ("daemonsets", "rollingUpdate", "maxUnavailable"): ("1", "2", "50%", "100%"),
    ("driver", "version"): DRIVERS, ("driver", "image"): ("driver",),
    ("driver", "repository"): ("nvcr.io/nvidia", "registry.example/mirror"),
    ("version",): DRIVERS, ("image",): ("driver",), ("repository",): ("nvcr.io/nvidia", "registry.example/mirror"),
    ("virtualTopology", "config"): CONFIG_MAPS, ("driver", "virtualTopology", "config"): CONFIG_MAPS,
    ("vgpuDeviceManager", "config", "default"): ("default", *KEYS), ("migManager", "config", "default"): ("all-disabled", ""),
}
LEFT_OUT: Final = ("livenessProbe", "readinessProbe")
"""What nobody can follow."""


def places(schema: Schema, path: Path = ()) -> list[tuple[Path, Schema]]:
    """Return every field that is changed by itself: leaves, lists and maps, and what is changed as a whole."""
    if path and (path[-1] in _WHOLE or schema.get("type") != "object" or "properties" not in schema):
        return [(path, schema)]
    return [found for key, inner in schema["properties"].items() if key not in LEFT_OUT
            for found in places(inner, (*path, key))]


def value(random: Random, schema: Schema, path: Path) -> Any:
    """Draw a value for the field at a path."""
    name = path[-1]
    if name in _WHOLE:
        return random.choice(_WHOLE[name])
    kind = schema.get("type")
    if kind == "array":
        items = _ITEMS.get(name, ("a", "b"))
        return random.sample(items, random.randint(0, min(2, len(items))))
    if kind == "object":
        return {key: random.choice(("a", "b-2", "c")) for key in random.sample(LABELS, random.randint(0, 2))}
    if kind == "boolean":
        return random.random() < 0.5
    if path in _AT:
        return random.choice(_AT[path])
    if "enum" in schema:
        return random.choice(schema["enum"])
    if name == "name":
        return random.choice((*CONFIG_MAPS, ""))
    if name in _NAMED:
        return random.choice(_NAMED[name])
    if kind == "integer":
        return random.randint(schema.get("minimum", 0), schema.get("maximum", 20))
    return random.choice(("a", "b"))
