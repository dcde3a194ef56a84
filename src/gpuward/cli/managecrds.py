"""What the hooks of NVIDIA's chart do with CustomResourceDefinitions, and with the GPUCluster that the chart may have made."""

from __future__ import annotations

import asyncio
import glob
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gpuward.cli.rollouts import ATTEMPTS, Lines, tell
from gpuward.errors import AlreadyExists, Conflict, GpuwardError, InputError, NotFound
from gpuward.kube.http.client import Client
from gpuward.kube.resources import CUSTOM_RESOURCE_DEFINITIONS as CRDS
from gpuward.kube.resources import GPU_CLUSTERS

__all__ = ["apply", "clean_up", "crds_in", "delete", "tell"]

Object = dict[str, Any]

SERVED_WITHIN: Final = 10.0
"""Seconds that an API server gets to serve a CRD that it took; NVIDIA's command gives it as many."""
LOOK: Final = 0.1
GONE_WITHIN: Final = 300.0
"""Seconds that a GPUCluster gets to go: its finalizer is taken off when its operands are gone."""
LOOK_AGAIN: Final = 5.0


def crds_in(paths: Iterable[str]) -> list[Object]:
    """Return the CRDs in files, in folders and below them, and in what shell patterns match; other objects are left out.

    Raises:
        InputError: there is no such file, or it is no YAML, or its CRD cannot be one.
    """
    return [crd for path in paths for file in _files(path) for crd in _read(file)]


def _files(path: str) -> Iterator[Path]:
    matched = [path] if Path(path).exists() else sorted(glob.glob(path))
    if not matched:
        raise InputError("--filepath", path, "there is no such file or folder")
    for each in map(Path, matched):
        yield from sorted(below for below in each.rglob("*") if below.suffix in (".yaml", ".yml")) if each.is_dir() else [each]


def _read(file: Path) -> Iterator[Object]:
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError("--filepath", str(file), f"it cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError("--filepath", str(file), f"it is not YAML: {error}") from error
    for each in documents:
        if not isinstance(each, dict) or each.get("kind") != "CustomResourceDefinition":
            continue
        if each.get("apiVersion") != CRDS.api_version:
            raise InputError("--filepath", str(file), f"its CRD must be of {CRDS.api_version}, not {each.get('apiVersion')}")
        meta = each.get("metadata")
        if not isinstance(meta, dict) or not meta.get("name") or not isinstance(each.get("spec"), dict):
            raise InputError("--filepath", str(file), "its CRD needs a name and a spec")
        yield each


async def apply(client: Client, crds: Iterable[Object]) -> Lines:
    """Create or update CRDs, then wait until each is served; say of each what was done.

    Raises:
        Conflict: somebody else changes one all the time.
        GpuwardError: one is on its way out, or is not served in time.
    """
    crds = list(crds)
    if not crds:
        yield "No CRDs in these files"
    for crd in crds:
        yield await _put(client, crd)
    for crd in crds:
        await _served(client, crd["metadata"]["name"])


async def _put(client: Client, crd: Object) -> str:
    name = crd["metadata"]["name"]
    for _ in range(ATTEMPTS):
        try:
            there = (await client.get(CRDS, name)).object()
        except NotFound:
            try:
                await client.create(CRDS, crd)
            except AlreadyExists:
                continue
            return f"CRD {name} created"
        if there["metadata"].get("deletionTimestamp"):
            raise GpuwardError(f"CRD {name} is being deleted, with all objects of its kind: apply it again once it is gone")
        try:
            now = (await client.replace(CRDS, _updated(there, crd))).object()
        except (Conflict, NotFound):
            continue
        same = now["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]
        return f"CRD {name} {'unchanged' if same else 'updated'}"
    raise Conflict(f"somebody else changes CRD {name} all the time")


def _updated(there: Object, crd: Object) -> Object:
    """Return a CRD with another spec, at the version that was read; labels and annotations that others gave it stay."""
    wanted = crd["metadata"]
    both = {key: {**(there["metadata"].get(key) or {}), **(wanted.get(key) or {})} for key in ("labels", "annotations")}
    return {**there, "metadata": {**there["metadata"], **both}, "spec": crd["spec"]}


async def _served(client: Client, name: str) -> None:
    told = ""
    try:
        async with asyncio.timeout(SERVED_WITHIN):
            while True:
                status = (await client.get(CRDS, name)).object().get("status") or {}
                conditions = {one["type"]: one for one in status.get("conditions") or ()}
                if _holds(conditions.get("Established")) and _holds(conditions.get("NamesAccepted")):
                    return
                told = "; ".join(one.get("message", "") for one in conditions.values() if not _holds(one))
                await asyncio.sleep(LOOK)
    except TimeoutError as error:
        raise GpuwardError(f"CRD {name} is not served after {SERVED_WITHIN:.0f} s{told and f': {told}'}") from error


def _holds(condition: Mapping[str, Any] | None) -> bool:
    return condition is not None and condition.get("status") == "True"


async def delete(client: Client, crds: Iterable[Object]) -> Lines:
    """Delete CRDs; say of each what was done."""
    for crd in crds:
        name = crd["metadata"]["name"]
        try:
            await client.delete(CRDS, name)
        except NotFound:
            yield f"CRD {name} is not there"
        else:
            yield f"CRD {name} deleted"


async def clean_up(client: Client, name: str) -> Lines:
    """Delete a GPUCluster, and wait until it is gone; say what was done.

    Raises:
        GpuwardError: it is still there after a while.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + GONE_WITHIN
    while loop.time() < end:
        try:
            meta = (await client.get(GPU_CLUSTERS, name)).object()["metadata"]
            if not meta.get("deletionTimestamp"):
                yield f"Deleting GPUCluster {name}"
                await client.delete(GPU_CLUSTERS, name, uid=meta["uid"])
        except NotFound:
            yield f"There is no GPUCluster {name}"
            return
        except Conflict:  # another one of this name has come, and goes in the next round
            pass
        await asyncio.sleep(LOOK_AGAIN)
    raise GpuwardError(f"GPUCluster {name} is still there after {GONE_WITHIN:.0f} s: its finalizers are taken off by the "
                       "operator that made its operands, which gpuward is not")
