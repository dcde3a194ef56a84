"""The built-in MIG layouts."""

from __future__ import annotations

import re

import pytest
import yaml

from gpuward.operands.mig_profiles import config_yaml, layouts

LAYOUTS = yaml.safe_load(config_yaml())["mig-configs"]


def test_file_is_what_mig_parted_reads() -> None:
    document = yaml.safe_load(config_yaml())
    assert document["version"] == "v1"
    assert set(document) == {"version", "mig-configs"}
    assert document["mig-configs"] == layouts()
    assert len(LAYOUTS) == 81


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_well_formed(name: str) -> None:
    assert LAYOUTS[name]
    for entry in LAYOUTS[name]:
        assert entry["devices"] == "all"
        assert all(re.fullmatch(r"0x[0-9A-F]{4}10DE", device) for device in entry.get("device-filter", []))
        instances = entry.get("mig-devices", {})
        assert all(re.fullmatch(r"[1-7]g\.\d+gb(-me|\+(me(\.all)?|gfx))?", profile) for profile in instances)
        assert all(count > 0 for count in instances.values())
        # A GPU has seven compute slices, and an instance `<n>g` takes n of them.
        assert sum(int(profile[0]) * count for profile, count in instances.items()) <= 7


@pytest.mark.parametrize(("name", "entry"), [
    ("all-disabled", {"devices": "all", "mig-enabled": False}),
    ("all-enabled", {"devices": "all", "mig-enabled": True, "mig-devices": {}}),
    ("all-1g.5gb", {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}),
    ("all-1g.5gb.me", {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb+me": 1}}),
    ("all-1g.24gb.me.all", {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.24gb+me.all": 1}}),
    ("all-2g.48gb-me", {"devices": "all", "mig-enabled": True, "mig-devices": {"2g.48gb-me": 2}}),
    ("all-7g.80gb", {"devices": "all", "mig-enabled": True, "mig-devices": {"7g.80gb": 1}}),
])
def test_layouts_of_one_profile(name: str, entry: dict[str, object]) -> None:
    assert LAYOUTS[name] == [entry]


def test_no_gpu_has_two_layouts_of_one_name() -> None:
    for name, entries in LAYOUTS.items():
        devices = [device for entry in entries for device in entry.get("device-filter", [])]
        assert len(devices) == len(set(devices)), name


def test_balanced_layout_of_a_gpu_with_80_gb() -> None:
    entry = next(entry for entry in LAYOUTS["all-balanced"] if "0x233010DE" in entry["device-filter"])
    assert entry["mig-devices"] == {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
