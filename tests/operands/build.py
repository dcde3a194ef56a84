"""Policies and clusters for the tests, as changes of the default ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.decode import cluster_policy
from gpuward.operands import ClusterFacts, NodeKernel, OperandState, render
from gpuward.operands.objects import Json

EXAMPLES = Path(__file__).parents[2] / "examples"

DEFAULT_FACTS = ClusterFacts(namespace="gpu-operator", os_tag="ubuntu22.04", host_os_tag="ubuntu22.04", has_gpu_nodes=True)
IMAGES = {
    "DRIVER_MANAGER_IMAGE": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
    "VALIDATOR_IMAGE": "nvcr.io/nvidia/gpu-operator:v26.7.0",
}
TWO_KERNELS = tuple(NodeKernel(f"5.15.0-{build}-generic", "ubuntu22.04", "ubuntu22.04") for build in (101, 105))


def policy(spec: Mapping[str, Any] | None = None, *, example: str = "clusterpolicy.yaml") -> ClusterPolicy:
    """Return an example policy, by default the chart's, with `spec` merged into its spec; None removes a field."""
    document = _example(example)
    return cluster_policy({**document, "spec": _merged(document["spec"], spec or {})})


@cache
def _example(name: str) -> Json:
    document: Json = yaml.safe_load((EXAMPLES / name).read_text())
    return document


def _merged(base: Any, changes: Any) -> Any:
    if not isinstance(base, Mapping) or not isinstance(changes, Mapping):
        return changes
    merged = {key: value for key, value in base.items() if changes.get(key, value) is not None}
    return merged | {key: _merged(base.get(key), value) for key, value in changes.items() if value is not None}


def facts(**changes: Any) -> ClusterFacts:
    """Return the facts of a small cluster with Ubuntu nodes, with some of them changed."""
    return msgspec.structs.replace(DEFAULT_FACTS, **changes)


def states(spec: Mapping[str, Any] | None = None, cluster: ClusterFacts = DEFAULT_FACTS,
           images: Mapping[str, str] = IMAGES) -> dict[str, OperandState]:
    """Return the rendered states by name."""
    return {state.name: state for state in render(policy(spec), cluster, images)}


def objects(rendered: Iterable[OperandState]) -> dict[str, Json]:
    """Return all objects by `Kind/name`; fails when a state could not be rendered."""
    made: dict[str, Json] = {}
    for state in rendered:
        assert state.error is None, f"{state.name}: {state.error}"
        made |= {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in state.objects}
    return made


def pod(name: str, spec: Mapping[str, Any] | None = None, cluster: ClusterFacts = DEFAULT_FACTS) -> Json:
    """Return the pod spec of a DaemonSet."""
    found: Json = objects(states(spec, cluster).values())[f"DaemonSet/{name}"]["spec"]["template"]["spec"]
    return found


def container(pod_spec: Json, name: str) -> Json:
    """Return a container or init container of a pod spec."""
    found: Json = next(c for c in (*pod_spec["containers"], *pod_spec.get("initContainers", [])) if c["name"] == name)
    return found


def env(of: Json) -> dict[str, str]:
    """Return the literal variables of a container."""
    return {variable["name"]: variable["value"] for variable in of.get("env", []) if "value" in variable}


def names(items: Iterable[Json]) -> list[str]:
    """Return the names of containers, volumes, mounts or variables, in order."""
    return [item["name"] for item in items]


class _Dumper(yaml.SafeDumper):
    """Write shared parts in full and scripts as blocks."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def as_yaml(value: object) -> str:
    """Return a value as golden files have it."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120)


def is_golden(path: Path, text: str, regold: bool) -> bool:
    """Compare a text with its golden file, or write that file anew."""
    if regold:
        path.write_text(text)
    return path.read_text() == text
