"""A cluster at one moment, as objects: what `gpuward capture` writes, and a rehearsal begins with."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuward.errors import InputError
from gpuward.rehearse.sharing import Shared

Object = dict[str, Any]

FOLDER: Final = "gpuward-capture"
MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
"""Grows when older readers would misread what is written."""
MOST_BYTES: Final = 4 << 30
"""Of one member of an archive: a file is nothing to trust."""


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """Hold what is said of a capture as a whole."""

    format: int
    gpuward: str
    at: float
    """Unix seconds by the API server's clock."""
    namespace: str
    """The operator's."""
    kubernetes: str = ""
    images: dict[str, str] = {}
    """The images in the operator's environment."""
    in_step: tuple[str, ...] = ()
    """DaemonSets of the GPU stack that are as their policies have them: the operator replaces none of their pods."""
    config_maps: dict[str, tuple[str, ...]] = {}
    """The keys of the ConfigMaps that policies name, and that are there."""
    secrets: tuple[str, ...] = ()
    """The Secrets that policies name; whether they are there was not looked at."""
    problems: tuple[str, ...] = ()
    """What could not be read."""


class Captured(msgspec.Struct, frozen=True):
    """Hold a captured cluster."""

    manifest: Manifest
    objects: Mapping[str, list[Object]]
    """By resource, such as `daemonsets.apps`, with kind and apiVersion."""

    def of(self, resource: str) -> list[Object]:
        """Return the objects of a resource."""
        return self.objects.get(resource, [])


def read_capture(path: Path) -> Captured:
    """Read an archive that `gpuward capture` wrote.

    Raises:
        InputError: it cannot be read, or is none.
    """
    try:
        with tarfile.open(path, "r:gz") as tar:
            members = {member.name.removeprefix(f"{FOLDER}/"): _read(tar, member) for member in tar if member.isfile()}
        manifest = msgspec.json.decode(members.pop(MANIFEST), type=Manifest)
        if manifest.format != FORMAT:
            raise InputError("--from", str(path), f"take the capture anew: this one has format {manifest.format}, not {FORMAT}")
        shared = Shared()
        objects = {name.removeprefix("objects/").removesuffix(".json"): shared.read(members.pop(name))
                   for name in [name for name in members if name.startswith("objects/")]}
    except OSError as error:
        raise InputError("--from", str(path), f"name a file that can be read: {error.strerror or error}") from error
    except (tarfile.TarError, EOFError, KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InputError("--from", str(path), "name a file that `gpuward capture` wrote") from error
    return Captured(manifest, objects)


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    found = tar.extractfile(member)
    if found is None or member.size > MOST_BYTES:
        raise ValueError(member.name)
    return found.read()
