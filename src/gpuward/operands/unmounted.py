"""Which ConfigMaps pods of operands wait for, as nobody has made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpuward.model.snapshot import Snapshot
from gpuward.operands.facts import mounted_config_maps
from gpuward.policy.clusterpolicy import ActivePolicy

_UNMOUNTED: Final = "ConfigMap {namespace}/{name}, which {field} names, is not there: pods that mount it wait for it"


def unmounted(active: ActivePolicy, snapshot: Snapshot) -> Mapping[str, str]:
    """Return the ConfigMaps that only pods need and that are not there, each with the field that names it; none while that is
    not known.
    """
    if active.view is None or active.valid is None or not snapshot.references.known_for(active.view):
        return {}
    there = snapshot.references.config_maps
    return {name: field for name, field in mounted_config_maps(active.valid.spec).items() if name not in there}


def named_by(found: Mapping[str, str], namespace: str) -> Iterator[str]:
    """Return the ConfigMaps with the fields that name them."""
    return (f"ConfigMap {namespace}/{name} ({field})" for name, field in found.items())


def told_of_unmounted(found: Mapping[str, str], namespace: str) -> Iterator[tuple[str, str]]:
    """Return the ConfigMaps, each with what is said of it."""
    for name, field in found.items():
        yield name, _UNMOUNTED.format(namespace=namespace, name=name, field=field)
