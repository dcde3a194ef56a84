"""Name another driver in policies, as a person would who edits them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gpuward.cli.values import VERSION_WANTED
from gpuward.errors import InputError
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.policy.nvidiadrivers import PolicyReader

TAG: Final = re.compile(r"\w[\w.-]{0,80}", re.ASCII)
"""What a driver's version can be as a part of an image's tag."""


def check_version(version: str) -> None:
    """Raise InputError for what can be no driver's version."""
    if version and not TAG.fullmatch(version):
        raise InputError("--to", version, VERSION_WANTED)


def named_driver(driver: Mapping[str, Any], image: str) -> dict[str, str]:
    """Return what the settings of a driver need besides a version to name its image, with the operator's image as the model:
    nothing, if they name it already.
    """
    if driver.get("repository"):
        return {}
    repository, _, name = image.rpartition(":")[0].rpartition("/")
    return {"repository": repository, "image": name}


def changes_to(snapshot: Snapshot, version: str, image: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the merge patches, by kind and name of what they are for, that give the drivers in force another version.

    Raises:
        InputError: there is no policy that a version could be set in.
    """
    read = PolicyReader().read(snapshot)
    if read.in_force:
        found = {("NVIDIADriver", each.view.name): {"spec": _driver(each.view.body.get("spec") or {}, version, image)}
                 for each in read.active}
    else:
        view = read.policy.view
        spec = (view.body.get("spec") or {}) if view is not None else {}
        found = {}
        if view is not None:
            found["ClusterPolicy", view.name] = {"spec": {"driver": _driver(spec.get("driver") or {}, version, image)}}
    if not found and read.in_force and (view := read.policy.view) is not None:
        raise InputError("--to", version, f"ClusterPolicy {view.name} leaves drivers to NVIDIADrivers, and there is none to set "
                         "it in: name a file that has one with --policy")
    if not found:
        raise InputError("--to", version, "there is no policy in the cluster to set it in: name a file with --policy")
    return found


def _driver(settings: Mapping[str, Any], version: str, image: str) -> dict[str, Any]:
    if not settings.get("repository") and not image:
        raise InputError("--to", version, "the policy names no repository for the driver: name a file with --policy that does")
    return {"version": version, **named_driver(settings, image)}


def retargeted(snapshot: Snapshot, version: str, image: str) -> Snapshot:
    """Return the facts as if somebody had given the drivers in force another version; with none, as they are."""
    if not version:
        return snapshot
    changes = changes_to(snapshot, version, image)
    return msgspec.structs.replace(
        snapshot, policies=_patched("ClusterPolicy", snapshot.policies, changes),
        drivers=_patched("NVIDIADriver", snapshot.drivers, changes))


def _patched(kind: str, views: Sequence[PolicyView], changes: Mapping[tuple[str, str], Mapping[str, Any]]
             ) -> tuple[PolicyView, ...]:
    return tuple(
        msgspec.structs.replace(view, generation=view.generation + 1, body=merged(view.body, changes[kind, view.name]))
        if (kind, view.name) in changes else view for view in views)


def merged(body: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with a merge patch that takes nothing away."""
    return {**body, **{key: merged(body.get(key) or {}, value) if isinstance(value, Mapping) else value
                       for key, value in change.items()}}
