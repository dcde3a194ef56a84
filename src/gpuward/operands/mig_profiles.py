"""The MIG layouts that nodes can be given by name when the policy names no ConfigMap of its own.

A layout `all-<profile>` fills every GPU with instances of one profile, with `.` for the `+` of the profile's attributes. The
profiles, how many fit on a GPU, and the PCI ids of the GPUs are NVIDIA's facts (mig-parted's default configuration).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from gpuward.operands.config_files import yaml_text
from gpuward.operands.objects import Json

_PROFILES: Mapping[int, str] = {
    7: "1g.5gb 1g.12gb 1g.18gb 1g.23gb 1g.34gb",
    4: "1g.6gb 1g.20gb 1g.24gb 1g.24gb-me 1g.24gb+gfx 1g.36gb 1g.45gb 1g.47gb 1g.67gb 1g.70gb",
    3: "2g.10gb 2g.20gb 2g.24gb 2g.35gb 2g.36gb 2g.45gb 2g.47gb 2g.67gb 2g.70gb",
    2: "2g.12gb 2g.48gb 2g.48gb-me 2g.48gb+gfx 3g.20gb 3g.40gb 3g.47gb 3g.48gb 3g.71gb 3g.72gb 3g.90gb 3g.93gb 3g.95gb"
       " 3g.135gb 3g.139gb",
    1: "1g.5gb+me 1g.6gb+me 1g.10gb+me 1g.12gb+me 1g.18gb+me 1g.23gb+me 1g.24gb+me 1g.24gb+me.all 1g.34gb+me 1g.35gb+me"
       " 2g.12gb+me 2g.48gb+me.all 4g.20gb 4g.24gb 4g.40gb 4g.47gb 4g.48gb 4g.71gb 4g.72gb 4g.90gb 4g.93gb 4g.95gb 4g.96gb"
       " 4g.96gb+gfx 4g.135gb 4g.139gb 7g.40gb 7g.80gb 7g.94gb 7g.96gb 7g.141gb 7g.144gb 7g.180gb 7g.186gb 7g.189gb"
       " 7g.269gb 7g.278gb",
}
"""How many instances fit on a GPU, and the profiles of which so many fit."""

_AMPERE_40GB = "20B0 20B1 20F1 20F6"
_80GB = "2330 2331 2322 20B2 20B5 20F3 20F5 2324"

_PROFILES_BY_GPU: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "all-1g.10gb": {
        _80GB: {"1g.10gb": 7},
        _AMPERE_40GB: {"1g.10gb": 4},
    },
    "all-1g.35gb": {
        "2335": {"1g.35gb": 4},
        "31C2": {"1g.35gb": 7},
    },
    "all-balanced": {
        _AMPERE_40GB: {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
        _80GB: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
        "20B7": {"1g.6gb": 2, "2g.12gb": 1},
        "2321 233A": {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
        "2342 233D 20B6 2329": {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
        "2335 233B": {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
        "2348": {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
        "2901": {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
        "2941": {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
        "2BB5": {"1g.24gb": 2, "2g.48gb": 1},
        "3182": {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1},
        "31C2": {"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1},
    },
}
"""Layouts that depend on the GPU, by the PCI device ids of NVIDIA's GPUs that have them."""


def layouts() -> Mapping[str, Iterable[Json]]:
    """Return every layout by name, as entries of a `mig-parted` configuration."""
    named: dict[str, list[Json]] = {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [_entry({})],
    }
    for count, profiles in _PROFILES.items():
        for profile in profiles.split():
            named[f"all-{profile.replace('+', '.')}"] = [_entry({profile: count})]
    for name, by_gpu in _PROFILES_BY_GPU.items():
        named[name] = [
            {"device-filter": [f"0x{device}10DE" for device in devices.split()], **_entry(instances)}
            for devices, instances in by_gpu.items()
        ]
    return dict(sorted(named.items()))


def _entry(instances: Mapping[str, int]) -> Json:
    return {"devices": "all", "mig-enabled": True, "mig-devices": dict(instances)}


@cache
def config_yaml() -> str:
    """Return all layouts as the text of a `mig-parted` configuration file."""
    return yaml_text({"version": "v1", "mig-configs": layouts()})
