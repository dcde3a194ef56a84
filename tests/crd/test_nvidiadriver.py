from __future__ import annotations

from typing import Any

import pytest

from gpuward.crd.decode import nvidia_driver
from gpuward.crd.generate import schema_for_reading
from gpuward.crd.nvidiadriver import NVIDIADriver, NVIDIADriverSpec
from tests.crd.specimen import defaulted, skeleton


def driver(**spec: Any) -> NVIDIADriverSpec:
    return nvidia_driver({"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "spec": spec}).spec


def test_an_empty_spec_means_what_the_published_schema_fills_in() -> None:
    schema = schema_for_reading(NVIDIADriver)
    bare = skeleton(schema) | {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {}}
    assert nvidia_driver(defaulted(bare, schema)) == nvidia_driver(bare)


def test_upgrades_are_automatic_unless_turned_off() -> None:
    assert driver().upgrade_policy.auto_upgrade
    assert driver(upgradePolicy={}).upgrade_policy.auto_upgrade
    assert not driver(upgradePolicy={"autoUpgrade": False}).upgrade_policy.auto_upgrade


@pytest.mark.parametrize(("given", "effective"), [({}, True), ({"nlsEnabled": True}, True), ({"nlsEnabled": False}, False)])
def test_the_licence_system_is_used_unless_turned_off(given: dict[str, bool], effective: bool) -> None:
    assert driver(licensingConfig=given).licensing_config.is_nls_enabled is effective


def test_a_driver_without_an_image_has_nvidias() -> None:
    assert driver().image == "nvcr.io/nvidia/driver"
    assert driver().driver_type == "gpu"
    assert not driver().is_precompiled
