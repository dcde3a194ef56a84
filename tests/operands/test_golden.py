"""Whole renderings against golden files: `default.yaml` has every object, a `.diff` what a policy changes about them.

After an intended change: `pytest tests/operands --regold`, and read what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.operands import ClusterFacts, render
from gpuward.operands.objects import Json
from tests.operands.build import DEFAULT_FACTS, IMAGES, TWO_KERNELS, as_yaml, facts, is_golden, objects, policy

GOLDEN = Path(__file__).parent / "golden"

LAYOUTS = "ConfigMap/default-vgpu-devices-config"
"""Compared in `sandboxes/test_vgpu_layouts.py`: its text has thousands of lines."""
RESOURCES = {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}}


def _variable(name: str) -> dict[str, str]:
    return {"name": name, "value": "1"}


def _own(name: str) -> dict[str, Any]:
    """Return what every section may say about its container and pod."""
    return {"args": [f"--{name}"], "env": [_variable(name.upper()), {"name": "NVIDIA_VISIBLE_DEVICES", "value": "own"}],
            "resources": RESOURCES, "hostNetwork": True, "imagePullPolicy": "Always",
            "imagePullSecrets": [f"{name}-cred", "shared"]}


def _manager(name: str) -> dict[str, Any]:
    return {"env": [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}], "imagePullPolicy": "Never",
            "imagePullSecrets": [f"{name}-manager-cred", "shared"]}


CHANGES: dict[str, tuple[dict[str, Any], ClusterFacts]] = {
    "default": ({}, DEFAULT_FACTS),
    "driver-disabled": ({"driver": {"enabled": False}}, DEFAULT_FACTS),
    "daemonsets-common": ({"daemonsets": {
        "labels": {"app": "custom-app", "app.kubernetes.io/part-of": "custom-part", "team": "ml"},
        "annotations": {"example.com/note": "hello"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoExecute"}],
        "priorityClassName": "gpu-high",
        "podSecurityContext": {"fsGroup": 2000, "seccompProfile": {"type": "RuntimeDefault"}},
        "updateStrategy": "OnDelete",
    }}, DEFAULT_FACTS),
    "driver-options": ({
        "driver": {
            "kernelModuleType": "open", "args": ["--max-threads", "4"], "resources": RESOURCES, "hostNetwork": True,
            "env": [{"name": "ZED", "value": "z"}, {"name": "KERNEL_MODULE_TYPE", "value": "proprietary"}],
            "startupProbe": {"initialDelaySeconds": 7, "failureThreshold": 10},
            "imagePullSecrets": ["driver-cred"], "secretEnv": "driver-env",
            "repoConfig": {"configMapName": "repos"}, "certConfig": {"name": "certs"},
            "kernelModuleConfig": {"name": "modules"}, "virtualTopology": {"config": "topology"},
            "licensingConfig": {"secretName": "licence", "nlsEnabled": True},
            "manager": {"env": [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}], "imagePullSecrets": ["manager-cred"]},
        },
    }, facts(secrets=frozenset({"driver-env", "licence"}),
             config_maps={"topology": (), "repos": ("b.list", "a.list"), "certs": ("ca.crt",), "modules": ("nvidia.conf",)})),
    "driver-sidecars": ({
        "driver": {"rdma": {"enabled": True, "useHostMofed": True}},
        "gds": {"enabled": True, "env": [{"name": "GDS_A", "value": "1"}], "imagePullSecrets": ["gds-cred"]},
        "gdrcopy": {"enabled": True},
    }, DEFAULT_FACTS),
    "driver-precompiled": ({"driver": {"usePrecompiled": True, "version": "580"}}, facts(kernels=TWO_KERNELS)),
    "plugin-config-mps": ({"devicePlugin": {
        "config": {"name": "plugin-config", "default": "any"}, "mps": {"root": "/var/run/mps"}, "resources": RESOURCES,
    }}, DEFAULT_FACTS),
    "dcgm": ({"dcgm": {"enabled": True}, "dcgmExporter": {
        "config": {"name": "custom-metrics"}, "annotations": {"example.com/scrape": "yes"},
        "env": [{"name": "DCGM_EXPORTER_INTERVAL", "value": "5000"}],
        "service": {"type": "NodePort", "internalTrafficPolicy": "Local"},
        "enablePodLabels": True, "hpcJobMapping": {"enabled": True},
    }}, facts(has_service_monitor_crd=True)),
    "cdi-off": ({"cdi": {"enabled": False}}, DEFAULT_FACTS),
    "cdi-nri": ({"cdi": {"enabled": True, "nriPluginEnabled": True}}, DEFAULT_FACTS),
    "crio": ({"cdi": {"enabled": False}}, facts(runtime="crio", os_tag="rhel9")),
    "validator-options": ({
        "nodeStatusExporter": {"enabled": True, "args": ["--x"], "env": [{"name": "NSE", "value": "1"}]},
        "validator": {
            "args": ["--v"], "env": [{"name": "V", "value": "1"}], "resources": RESOURCES,
            "imagePullSecrets": ["val-cred", "val-cred2"],
            "driver": {"env": [{"name": "DISABLE_DEV_CHAR_SYMLINK_CREATION", "value": "true"}]},
            "toolkit": {"env": [{"name": "WITH_WAIT", "value": "maybe"}]},
            "cuda": {"env": [{"name": "CU", "value": "1"}]},
            "plugin": {"env": [{"name": "WITH_WORKLOAD", "value": "true"}]},
        },
    }, DEFAULT_FACTS),
    "host-paths": ({"hostPaths": {
        "rootFS": "/host", "driverInstallDir": "/opt/driver", "kubeletRootDir": "/data/kubelet",
    }, "toolkit": {"installDir": "/opt/nvidia"}}, DEFAULT_FACTS),
    "mig-configs": ({"mig": {"strategy": "mixed"}, "migManager": {
        "config": {"name": "my-layouts"}, "gpuClientsConfig": {"name": "my-clients"},
    }}, DEFAULT_FACTS),
    "sandbox-passthrough": ({"sandboxWorkloads": {"enabled": True, "defaultWorkload": "vm-passthrough"}}, DEFAULT_FACTS),
    "sandbox-kata": ({"sandboxWorkloads": {"enabled": True, "defaultWorkload": "vm-passthrough", "mode": "kata"}}, DEFAULT_FACTS),
    "sandbox-vgpu": ({
        "sandboxWorkloads": {"enabled": True, "defaultWorkload": "vm-vgpu"},
        "vgpuManager": {"enabled": True, "repository": "registry.example.com/vgpu", "version": "580.95.02"},
    }, DEFAULT_FACTS),
    "sandbox-options": ({
        "sandboxWorkloads": {"enabled": True},
        "validator": {
            **_own("validator"), "vfioPCI": {"env": [_variable("VP")]}, "vgpuManager": {"env": [_variable("VM")]},
            "vgpuDevices": {"env": [_variable("VD")]},
        },
        "vfioManager": {**_own("vfio"), "driverManager": _manager("vfio")},
        "vgpuManager": {
            **_own("vgpu"), "enabled": True, "repository": "registry.example.com/vgpu", "version": "580.95.02",
            "driverManager": _manager("vgpu"), "kernelModuleConfig": {"name": "modules"},
        },
        "vgpuDeviceManager": {
            **_own("devices"), "config": {"name": "my-vgpu-devices", "default": "A10-24Q"},
            "env": [{"name": "DEFAULT_VGPU_CONFIG", "value": "loses"}],
        },
        "sandboxDevicePlugin": _own("plugin"),
    }, facts(config_maps={"modules": ("nvidia.conf",)})),
    "sandbox-kata-options": ({
        "sandboxWorkloads": {"enabled": True, "mode": "kata"},
        "kataSandboxDevicePlugin": _own("kata"),
        "ccManager": {**_own("cc"), "defaultMode": "devtools"},
    }, DEFAULT_FACTS),
    "sandbox-parts-off": ({
        "sandboxWorkloads": {"enabled": True, "mode": "kata"},
        **{part: {"enabled": False} for part in (
            "vfioManager", "vgpuDeviceManager", "sandboxDevicePlugin", "kataSandboxDevicePlugin", "ccManager")},
    }, DEFAULT_FACTS),
    "sandbox-host-paths": ({
        "sandboxWorkloads": {"enabled": True}, "hostPaths": {"rootFS": "/host", "driverInstallDir": "/opt/driver"},
        "vgpuManager": {"enabled": True, "image": "registry.example.com/vgpu@sha256:0"},
        "daemonsets": {"labels": {"app": "custom-app", "name": "custom-name", "team": "ml"}, "updateStrategy": "OnDelete"},
    }, DEFAULT_FACTS),
    "no-gpu-nodes": ({}, facts(has_gpu_nodes=False, os_tag="")),
}

CASES: dict[str, tuple[ClusterPolicy, ClusterFacts, Mapping[str, str]]] = {
    **{name: (policy(spec), cluster, IMAGES) for name, (spec, cluster) in CHANGES.items()},
    "images-in-policy": (policy(example="clusterpolicy-images.yaml"), DEFAULT_FACTS, {}),
}


def _rendered(name: str) -> dict[str, Json]:
    made = objects(render(*CASES[name]))
    if LAYOUTS in made:
        made[LAYOUTS]["data"] = {key: "..." for key in made[LAYOUTS]["data"]}
    return made


@cache
def _default_lines() -> Mapping[str, list[str]]:
    return {key: as_yaml(obj).splitlines() for key, obj in _rendered("default").items()}


def _changes(name: str) -> str:
    """Return, as a unified diff without line numbers, how the objects of a case differ from the default ones."""
    before, after = _rendered("default"), _rendered(name)
    lines: list[str] = []
    for key in sorted(before | after):
        if key not in after:
            lines.append(f"=== {key} is gone")
        elif after[key] != before.get(key):
            old, new = _default_lines().get(key, []), as_yaml(after[key]).splitlines()
            diff = list(unified_diff(old, new, lineterm="", n=3))[2:]
            lines += [f"=== {key}", *("@@" if line.startswith("@@") else line for line in diff)]
    return "\n".join([*lines, ""])


def test_default_objects_are_golden(regold: bool) -> None:
    assert is_golden(GOLDEN / "default.yaml", as_yaml(_rendered("default")), regold)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"default"}))
def test_changes_of_a_policy_are_golden(name: str, regold: bool) -> None:
    assert is_golden(GOLDEN / f"{name}.diff", _changes(name), regold)


def test_every_golden_file_has_its_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)
