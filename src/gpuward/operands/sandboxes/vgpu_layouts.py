"""The vGPU layouts that nodes can be given by name when the policy names no ConfigMap of its own.

A layout is called as a type of vGPU, such as A100-4-20C, and fills every GPU with devices of that type; `default` halves those
that can be halved. Which types there are, how many fit on a GPU, and the PCI ids are NVIDIA's facts (the vGPU device manager's
default configuration).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from gpuward.operands.config_files import yaml_text
from gpuward.operands.objects import Json

_TYPES: Mapping[str, str] = {
    "6000D":
        "1-42C:2 1-42Q:2 2-84C:1 2-84Q:1 84C:1 84Q:1 1-42CGFX:2 1-42QGFX:2 2-84CGFX:1 2-84QGFX:1",
    "A2 A16 T4 V100L V100X V100":
        "1Q:16 2Q:8 4C:4 4Q:4 8C:2 8Q:2 16C:1 16Q:1",
    "A10 L2 L4 RTX6000P RTXA5000 RTXA5500":
        "1Q:24 2Q:12 3Q:8 4C:6 4Q:6 6C:4 6Q:4 8C:3 8Q:3 12C:2 12Q:2 24C:1 24Q:1",
    "A30":
        "1-6C:4 1-6CME:1 2-12C:2 2-12CME:1 4C:6 4-24C:1 6C:4 8C:3 12C:2 24C:1",
    "A40 L20 L40S L40 RTXA6000":
        "1Q:32 2Q:24 3Q:16 4C:12 4Q:12 6C:8 6Q:8 8C:6 8Q:6 12C:4 12Q:4 16C:3 16Q:3 24C:2 24Q:2 48C:1 48Q:1",
    "A100D A100DX A800D A800DX":
        "1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4C:20 4-40C:1 7-80C:1 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1",
    "A100X A100 A800":
        "1-5C:7 1-5CME:1 1-10C:4 2-10C:3 3-20C:2 4C:10 4-20C:1 5C:8 7-40C:1 8C:5 10C:4 20C:2 40C:1",
    "B200X":
        "1-23C:7 1-23CME:1 1-45C:4 2-45C:3 3-90C:2 4-90C:1 7-180C:1 180C:1",
    "DC":
        "1-2Q:48 1-3Q:32 1-4Q:24 1-6Q:16 1-8C:12 1-8Q:12 1-12C:8 1-12Q:8 1-24C:4 1-24Q:4 2-12C:8 2-12Q:8 2-16C:6 2-16Q:6"
        " 2-24C:4 2-24Q:4 2-48C:2 2-48Q:2 3Q:32 4Q:24 4-24C:4 4-24Q:4 4-32C:3 4-32Q:3 4-48C:2 4-48Q:2 4-96C:1 4-96Q:1 6Q:16"
        " 8C:12 8Q:12 12C:8 12Q:8 16C:6 16Q:6 24C:4 24Q:4 32C:3 32Q:3 48C:2 48Q:2 96C:1 96Q:1 1-2QGFX:48 1-3QGFX:32 1-4QGFX:24"
        " 1-6QGFX:16 1-8CGFX:12 1-8QGFX:12 1-12CGFX:8 1-12QGFX:8 1-16C:2 1-16Q:2 1-24CGFX:4 1-24QGFX:4 2-8C:4 2-8Q:4 2-12CGFX:8"
        " 2-12QGFX:8 2-16CGFX:6 2-16QGFX:6 2-24CGFX:4 2-24QGFX:4 2-32C:1 2-32Q:1 2-48CGFX:2 2-48QGFX:2 4-24CGFX:4 4-24QGFX:4"
        " 4-32CGFX:3 4-32QGFX:3 4-48CGFX:2 4-48QGFX:2 4-96CGFX:1 4-96QGFX:1",
    "GB200":
        "1-24C:7 1-24CME:1 1-47C:4 2-47C:3 3-95C:2 4-95C:1 7-189C:1 189C:1",
    "GH200L":
        "1-18C:7 1-18CME:1 1-36C:4 2-36C:3 3-72C:2 4-72C:1 7-144C:1 144C:1",
    "GH200":
        "1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-48C:2 4-48C:1 7-96C:1 96C:1",
    "H20X H200X H200":
        "1-18C:7 1-18CME:1 1-35C:4 2-35C:3 3-71C:2 4C:32 4-71C:1 7C:20 7-141C:1 8C:16 14C:10 17C:8 28C:5 35C:4 70C:2 141C:1",
    "H20":
        "1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-48C:2 4C:24 4-48C:1 6C:16 7-96C:1 8C:12 12C:8 16C:6 24C:4 32C:3 48C:2 96C:1",
    "H100L H100XL H800L":
        "1-12C:7 1-12CME:1 1-24C:4 2-24C:3 3-47C:2 4C:23 4-47C:1 6C:15 7-94C:1 11C:8 15C:6 23C:4 47C:2 94C:1",
    "H100XM H100 H800XM H800":
        "1-10C:7 1-10CME:1 1-20C:4 2-20C:3 3-40C:2 4C:20 4-40C:1 5C:16 7-80C:1 8C:10 10C:8 16C:5 20C:4 40C:2 80C:1",
    "H100XS":
        "1-8C:7 1-8CME:1 1-16C:4 2-16C:3 3-32C:2 4C:16 4-32C:1 7-64C:1 8C:8 16C:4 32C:2 64C:1",
    "RTX5000":
        "Ada-1Q:32 Ada-2Q:16 Ada-4C:8 Ada-4Q:8 Ada-8C:4 Ada-8Q:4 Ada-16C:2 Ada-16Q:2 Ada-32C:1 Ada-32Q:1",
    "RTX5880 RTX6000":
        "Ada-1Q:32 Ada-2Q:24 Ada-3Q:16 Ada-4C:12 Ada-4Q:12 Ada-6C:8 Ada-6Q:8 Ada-8C:6 Ada-8Q:6 Ada-12C:4 Ada-12Q:4 Ada-16C:3"
        " Ada-16Q:3 Ada-24C:2 Ada-24Q:2 Ada-48C:1 Ada-48Q:1",
    "RTX8000P":
        "1Q:32 2Q:24 3Q:16 4C:8 4Q:12 6C:8 6Q:8 8C:6 8Q:6 12C:4 12Q:4 16C:3 16Q:3 24C:2 24Q:2 48C:1 48Q:1",
    "V100D V100DX V100S":
        "1Q:32 2Q:16 4C:8 4Q:8 8C:4 8Q:4 16C:2 16Q:2 32C:1 32Q:1",
    "B300X":
        "1-34C:7 1-34CME:1 1-67C:4 2-67C:3 3-135C:2 4-135C:1 7-269C:1 269C:1",
}
"""For GPUs that are divided alike: the types of vGPU, and how many devices of each fit on a GPU."""

_DEFAULTS = (
    "1DB1:V100X-8Q:2 1DB3:V100L-8Q:2 1DB4:V100-8Q:2 1DB5:V100DX-16Q:2 1DB6:V100D-16Q:2 1DF6:V100S-16Q:2 1E78:RTX8000P-24Q:2"
    " 1E78:RTX6000P-12Q:2 1EB8:T4-8Q:2 20B0:A100X-20C:2 20B2:A100DX-40C:2 20B5:A100D-40C:2 20B8:A100D-40C:2 20B7:A30-12C:2"
    " 20B9:A30-12C:2 20F1:A100-20C:2 20F3:A800DX-40C:2 20F5:A800D-40C:2 20FD:A800D-40C:2 20F6:A800-20C:2 2230:RTXA6000-24Q:2"
    " 2231:RTXA5000-12Q:2 2233:RTXA5500-12Q:2 2235:A40-24Q:2 2236:A10-12Q:2 2321:H100L-47C:2 2322:H800-40C:2 2324:H800XM-40C:2"
    " 2329:H20-48C:2 232C:H20X-70C:2 2330:H100XM-40C:2 2336:H100XM-40C:2 2331:H100-40C:2 2335:H200X-70C:2 2337:H100XS-32C:2"
    " 2339:H100XL-47C:2 233A:H800L-47C:2 233B:H200-70C:2 2342:GH200-96C:1 2348:GH200L-144C:1 25B6:A16-8Q:2 25B6:A2-8Q:2"
    " 26B1:RTX6000-Ada-24Q:2 26B2:RTX5000-Ada-16Q:2 26B3:RTX5880-Ada-24Q:2 26B5:L40-24Q:2 26B9:L40S-24Q:2 26BA:L20-24Q:2"
    " 27B6:L2-12Q:2 27B8:L4-12Q:2 2901:B200X-180C:1 2941:GB200-189C:1 2BB5:DC-48Q:2 2BB9:6000D-84Q:1 2C3A:DC-16Q:2"
    " 3182:B300X-269C:1"
)
"""PCI device ids of NVIDIA's GPUs, with the type and number of the devices that `default` makes on them."""


def layouts() -> Mapping[str, list[Json]]:
    """Return every layout by name, as entries of the device manager's configuration."""
    named = {
        f"{gpu}-{kind}": [_entry(f"{gpu}-{kind}", count)]
        for gpus, kinds in _TYPES.items() for gpu in gpus.split() for kind, count in _parts(kinds)
    }
    named["default"] = [{"device-filter": f"0x{device}10DE", **_entry(kind, count)} for device, kind, count in _parts(_DEFAULTS)]
    return dict(sorted(named.items()))


def _parts(text: str) -> list[list[str]]:
    return [part.split(":") for part in text.split()]


def _entry(kind: str, count: str) -> Json:
    return {"devices": "all", "vgpu-devices": {kind: int(count)}}


@cache
def config_yaml() -> str:
    """Return all layouts as the text of the device manager's configuration file."""
    return yaml_text({"version": "v1", "vgpu-configs": layouts()})
