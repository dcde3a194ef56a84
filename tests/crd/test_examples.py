"""The examples of the repository are what they claim: complete, valid, and in step with the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward.crd import validate
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.decode import cluster_policy, nvidia_driver, to_object
from gpuward.crd.generate import schema_for_reading
from tests.crd.specimen import defaulted

EXAMPLES = Path(__file__).parents[2] / "examples"
POLICIES = ["clusterpolicy.yaml", "clusterpolicy-images.yaml"]


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return loaded


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_valid_and_means_the_same_with_the_schemas_defaults(name: str) -> None:
    written = read(name)
    policy = cluster_policy(written)
    assert validate.cluster_policy(policy) == []
    assert cluster_policy(defaulted(written, schema_for_reading(ClusterPolicy))) == policy
    assert cluster_policy(to_object(policy)) == policy


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_the_sections_that_the_schema_insists_on(name: str) -> None:
    assert set(schema_for_reading(ClusterPolicy)["properties"]["spec"]["required"]) <= set(read(name)["spec"])


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_no_field_that_the_schema_would_prune(name: str) -> None:
    assert list(unknown(read(name)["spec"], schema_for_reading(ClusterPolicy)["properties"]["spec"])) == []


def test_the_complete_policy_upgrades_and_the_driver_example_does_too() -> None:
    assert cluster_policy(read("clusterpolicy.yaml")).spec.driver.upgrade_policy.auto_upgrade
    driver = nvidia_driver(read("nvidiadriver.yaml"))
    assert driver.spec.upgrade_policy.auto_upgrade
    assert validate.nvidia_driver(driver) == []


def test_the_images_example_names_every_image_that_it_deploys() -> None:
    spec = cluster_policy(read("clusterpolicy-images.yaml")).spec
    deployed = [spec.driver, spec.driver.manager, spec.toolkit, spec.device_plugin, spec.dcgm, spec.dcgm_exporter,
                spec.gfd, spec.mig_manager, spec.validator]
    assert all(image.repository and image.image and image.version for image in deployed)


def unknown(value: Any, schema: dict[str, Any], path: str = "spec") -> Any:
    if isinstance(value, dict) and "properties" in schema:
        for key, item in value.items():
            if key not in schema["properties"]:
                yield f"{path}.{key}"
            else:
                yield from unknown(item, schema["properties"][key], f"{path}.{key}")
