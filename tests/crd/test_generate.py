from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward.crd.generate import CUSTOM_RESOURCES, CustomResource, all_crds, as_yaml, crd, object_schema
from gpuward.crd.schema import without_descriptions

DEPLOYED = Path(__file__).parents[2] / "deploy" / "crds"
by_name = pytest.mark.parametrize("resource", CUSTOM_RESOURCES, ids=lambda resource: resource.crd_name)

# SHA-256 of `spec` of NVIDIA's config/crd/bases/*.yaml (gpu-operator v26.7.0), without descriptions, as JSON with
# sorted keys and no spaces. A change means that gpuward's CRDs and NVIDIA's are no longer interchangeable.
PUBLISHED = {
    "clusterpolicies.nvidia.com": "c986f1e6ececa26078ea5993a67c322beea0ac0651b11c5c7d416e46033c4227",
    "nvidiadrivers.nvidia.com": "ddad296e510ce26c488f12692ebffd362233e92fddc81adf81f951465436788d",
}


def digest(spec: Any) -> str:
    canonical = json.dumps(without_descriptions(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def test_nvidias_crds_have_exactly_the_published_schemas() -> None:
    made = {resource.crd_name: digest(crd(resource)["spec"]) for resource in CUSTOM_RESOURCES if resource.group == "nvidia.com"}
    assert made == PUBLISHED


@by_name
def test_the_deployed_file_is_what_the_generator_prints(resource: CustomResource) -> None:
    name = f"{resource.group}_{resource.plural}.yaml"
    assert (DEPLOYED / name).read_text() == as_yaml(crd(resource)), f"deploy/crds/{name} is out of date"


def test_yaml_holds_every_crd_as_its_own_document_without_anchors() -> None:
    text = as_yaml(*all_crds())
    assert list(yaml.safe_load_all(text)) == all_crds()
    assert "&id" not in text


def test_a_caller_may_change_what_it_got() -> None:
    all_crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clear()
    assert all_crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


# Shapes of Kubernetes and Prometheus, which have their own documentation.
PASSED_ON = {"nodeAffinity", "podSecurityContext", "relabelings", "tolerations"}


@by_name
def test_every_field_is_described(resource: CustomResource) -> None:
    schema = object_schema(resource.type)
    schema["properties"].pop("metadata")
    assert list(undescribed(schema, "")) == []


def undescribed(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the path of every property of ours without a description."""
    for name, below in schema.get("properties", {}).items():
        if not below.get("description"):
            yield f"{path}.{name}"
        if name not in PASSED_ON:
            yield from undescribed(below, f"{path}.{name}")
    if "items" in schema:
        yield from undescribed(schema["items"], f"{path}[]")
