"""What a fleet in the sandbox is given to install: the ClusterPolicy of NVIDIA's chart, and the images its operator names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

IMAGES: Final = {
    "DRIVER_IMAGE": "nvcr.io/nvidia/driver:595.91.07",
    "DRIVER_MANAGER_IMAGE": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
    "CONTAINER_TOOLKIT_IMAGE": "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0",
    "DEVICE_PLUGIN_IMAGE": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
    "GFD_IMAGE": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
    "DCGM_IMAGE": "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04",
    "DCGM_EXPORTER_IMAGE": "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
    "MIG_MANAGER_IMAGE": "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0",
    "VALIDATOR_IMAGE": "nvcr.io/nvidia/gpu-operator:v26.7.0",
}
"""What the operator's environment has for policies that name no images, such as NVIDIA's sample."""
POLICY_FILE: Final = "clusterpolicy.yaml"


def sample_policy() -> dict[str, Any]:
    """Return the example that has the values of NVIDIA's chart, a new one each time."""
    packaged = Path(__file__).with_name(POLICY_FILE)
    file = packaged if packaged.exists() else Path(__file__).parents[3] / "examples" / POLICY_FILE
    policy: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return policy
