"""NodeMaintenances are followed from when on a RolloutPolicy asks for some, or a node says that one was asked for."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from gpuward import names
from gpuward.kube import followed
from gpuward.kube.cache.cache import Cache, Change
from gpuward.kube.followed import Followed, Place
from gpuward.kube.resources import GVR
from gpuward.model.maintenance import MaintenanceMode, MaintenanceView
from gpuward.model.views import NodeView, PolicyView

Follow = Callable[[Followed[Any, Any], Cache[Any, Any]], None]


class Maintenances:
    """Hold the NodeMaintenances of the operator's namespace, and begin to follow them once they matter."""

    def __init__(
        self, nodes: Cache[str, NodeView], policies: Cache[str, PolicyView], follow: Follow, refused: Container[GVR]
    ) -> None:
        self.cache: Cache[Place, MaintenanceView] = followed.MAINTENANCES.cache()
        self._follow: Follow | None = follow
        self._refused = refused
        self.refusals: dict[str, str] = {}
        """Why objects could not be made, by their names: no watch shows that."""
        nodes.subscribe(self._look_at_nodes)
        policies.subscribe(self._look_at_policies)

    def views(self) -> Mapping[str, MaintenanceView] | None:
        """Return them by name; None while they are not known, as where those that were seen before can be seen no more."""
        if self._follow is not None or not self.cache.synced.is_set() or followed.MAINTENANCES.resource in self._refused:
            return None
        return {view.name: view for view in self.cache.values()}

    def _look_at_nodes(self, changes: list[Change[str, NodeView]]) -> None:
        if self._follow is not None and any(
                change.new is not None and names.NODE_MAINTENANCE in change.new.annotations for change in changes):
            self._begin()

    def _look_at_policies(self, changes: list[Change[str, PolicyView]]) -> None:
        self.look_at(change.new for change in changes if change.new is not None)

    def look_at(self, policies: Iterable[PolicyView]) -> None:
        """Begin to follow them if one of these RolloutPolicies asks for some."""
        if any(map(_asks, policies)):
            self._begin()

    def _begin(self) -> None:
        if (follow := self._follow) is not None:
            self._follow = None
            follow(followed.MAINTENANCES, self.cache)


def _asks(view: PolicyView) -> bool:
    spec = view.body.get("spec")
    interop = spec.get("interop") if isinstance(spec, dict) else None
    return isinstance(interop, dict) and interop.get("nodeMaintenance") == MaintenanceMode.REQUEST
