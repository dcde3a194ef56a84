"""The built-in vGPU layouts."""

from __future__ import annotations

import re

import pytest
import yaml

from gpuward.operands.sandboxes.vgpu_layouts import config_yaml, layouts

LAYOUTS = yaml.safe_load(config_yaml())["vgpu-configs"]


def test_file_is_what_the_device_manager_reads() -> None:
    document = yaml.safe_load(config_yaml())
    assert document["version"] == "v1"
    assert set(document) == {"version", "vgpu-configs"}
    assert document["vgpu-configs"] == layouts()
    assert len(LAYOUTS) == 711


def test_every_layout_but_the_default_one_makes_devices_of_its_name() -> None:
    for name in set(LAYOUTS) - {"default"}:
        [entry] = LAYOUTS[name]
        assert set(entry) == {"devices", "vgpu-devices"}
        assert entry["devices"] == "all"
        assert list(entry["vgpu-devices"]) == [name]
        assert entry["vgpu-devices"][name] > 0


def test_the_default_layout_makes_devices_that_have_layouts_of_their_own() -> None:
    assert len(LAYOUTS["default"]) == 56
    for entry in LAYOUTS["default"]:
        assert entry["devices"] == "all"
        assert re.fullmatch(r"0x[0-9A-F]{4}10DE", entry["device-filter"])
        [(kind, count)] = entry["vgpu-devices"].items()
        # Devices of that type fit as often as they are made.
        assert count <= LAYOUTS[kind][0]["vgpu-devices"][kind]


@pytest.mark.parametrize(("name", "count"), [
    ("A100-4-20C", 1), ("A100-1-5CME", 1), ("T4-1Q", 16), ("L40S-24Q", 2), ("H100XM-40C", 2), ("DC-1-2QGFX", 48),
    ("RTX6000-Ada-48Q", 1), ("6000D-84C", 1), ("B300X-1-34C", 7), ("GH200L-144C", 1), ("H800-80C", 1),
])
def test_known_layout(name: str, count: int) -> None:
    assert LAYOUTS[name] == [{"devices": "all", "vgpu-devices": {name: count}}]
