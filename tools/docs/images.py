"""Which field names which image, where that runs, and what stands in, for docs/air-gapped.md: found by rendering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuward.crd import decode
from gpuward.operands import ClusterFacts, render
from gpuward.sandbox.samples import IMAGES, sample_policy

_FIELDS: Final = ("driver", "driver.manager", "gds", "gdrcopy", "toolkit", "devicePlugin", "gfd", "dcgm", "dcgmExporter",
                  "migManager", "nodeStatusExporter", "validator")
_VARIABLES: Final = (*IMAGES, "GDS_IMAGE", "GDRCOPY_IMAGE")
_FACTS: Final = ClusterFacts(namespace="gpu-operator", has_gpu_nodes=True, os_tag="ubuntu22.04", host_os_tag="ubuntu22.04")


def table() -> str:
    """Return every image of the example's policy as a Markdown table."""
    usual = _containers(_policy(), {})
    marked = {field: _holding(field) for field in _FIELDS}
    stands_in = _containers(_policy(named=False), {variable: f"stand-in/image:{variable}" for variable in _VARIABLES})
    rows = []
    for field, places in marked.items():
        image = min(usual[place] for place in places)
        variable = min(stands_in[place].split(":")[1].partition("-")[0] for place in places)
        pods = ", ".join(f"`{name}`" for name in sorted({name for name, _ in places}))
        rows.append(f"| `spec.{field}` | `{image}` | {pods} | `{variable}` |")
    return "\n".join(["| field | image in the example | in the pods of | variable of the operator |", "|---|---|---|---|", *rows])


def _holding(field: str) -> set[tuple[str, str]]:
    """Return the containers whose image a field names."""
    policy = _policy()
    _section(policy, field)["repository"] = "marked"
    return {place for place, image in _containers(policy, {}).items() if image.startswith("marked/")}


def _policy(*, named: bool = True) -> dict[str, Any]:
    """Return the example with everything switched on that has an image; without the names of these, if wanted."""
    policy = sample_policy()
    for field in _FIELDS:
        section = _section(policy, field)
        if field != "validator" and "." not in field:
            section["enabled"] = True
        if not named:
            for part in ("repository", "image", "version"):
                section.pop(part, None)
    return policy


def _section(policy: dict[str, Any], field: str) -> dict[str, Any]:
    found: dict[str, Any] = policy["spec"]
    for part in field.split("."):
        found = found[part]
    return found


def _containers(policy: dict[str, Any], images: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Return the image of every container of every DaemonSet."""
    return dict(_found(policy, images))


def _found(policy: dict[str, Any], images: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], str]]:
    for state in render(decode.cluster_policy(policy), _FACTS, images):
        for made in state.objects:
            if made["kind"] == "DaemonSet":
                pod = made["spec"]["template"]["spec"]
                for container in (*pod.get("initContainers", ()), *pod["containers"]):
                    yield (made["metadata"]["name"], container["name"]), container["image"]
