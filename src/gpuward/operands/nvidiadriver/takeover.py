"""DaemonSets that an NVIDIADriver takes over from an earlier one of its name, instead of making others beside them.

Their names come from the uid of the NVIDIADriver that they were made for, and so does what they select their pods by. Made anew
for each uid they would leave every driver to be replaced, though none changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuward import names
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, PolicyView
from gpuward.operands.objects import Json
from gpuward.operands.state import OperandState


class Found(NamedTuple):
    """Hold what tells for which pool a DaemonSet is that is there."""

    name: str
    selector: Mapping[str, str]


def there_for(view: PolicyView, snapshot: Snapshot) -> tuple[Found, ...]:
    """Return the DaemonSets with the drivers of an NVIDIADriver, or of an earlier one of its name; its own ones first."""
    found = [ds for ds in snapshot.daemonsets if ds.namespace == snapshot.namespace and not ds.deleting
             and ds.node_selector.get(names.DRIVER_OWNER) == view.name and _may_be_taken(ds, view)]
    found.sort(key=lambda ds: (not ds.is_owned_by(view.uid), ds.name))
    return tuple(Found(ds.name, ds.node_selector) for ds in found)


def _may_be_taken(ds: DaemonSetView, view: PolicyView) -> bool:
    return ds.owner is None or (ds.owner.kind == "NVIDIADriver" and ds.owner.name == view.name)


def taking_over(state: OperandState, there: Iterable[Found]) -> OperandState:
    """Return the state with DaemonSets under the names of those that are there for the same nodes and the same kind of driver."""
    there = tuple(there)
    objects = tuple(_as_found(obj, there) if obj["kind"] == "DaemonSet" else obj for obj in state.objects)
    return OperandState(state.name, enabled=state.enabled, objects=objects, absent=state.absent, error=state.error)


def _as_found(obj: Json, there: tuple[Found, ...]) -> Json:
    name, selector = obj["metadata"]["name"], obj["spec"]["template"]["spec"]["nodeSelector"]
    alike = [each.name for each in there if each.selector == selector and _stem(each.name) == _stem(name)]
    return obj if not alike or name in alike else _named(obj, alike[0])


def _stem(name: str) -> str:
    """Return what of a name does not come from the NVIDIADriver's uid."""
    return name.rpartition("-")[0]


def _named(obj: Json, name: str) -> Json:
    meta, spec = obj["metadata"], obj["spec"]
    template, app = spec["template"], {"app": name}
    made = {**template, "metadata": {**template["metadata"], "labels": {**template["metadata"]["labels"], **app}}}
    return {**obj, "metadata": {**meta, "name": name, "labels": {**meta["labels"], **app}},
            "spec": {**spec, "selector": {"matchLabels": app}, "template": made}}
