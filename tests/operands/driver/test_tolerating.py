"""Tolerations that driver pods need, and what is looked at for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Never

import msgspec

from gpuward import names
from gpuward.model.snapshot import Snapshot
from gpuward.model.taints import Taint
from gpuward.model.views import DaemonSetView, NodeView, Ref
from gpuward.operands.changes import Prepared, WantedObject
from gpuward.operands.driver.tolerating import no_longer_tolerated
from tests import build
from tests.build import NAMESPACE, driver_pod, gpu_pod

PLUGIN = "nvidia-device-plugin-daemonset"


class Unread(dict[str, NodeView]):
    """Fail a test that looks at all nodes."""

    def values(self) -> Never:
        raise AssertionError("all nodes are looked at")


def wanted(name: str, labels: Mapping[str, str]) -> list[Prepared]:
    body: dict[str, Any] = {"kind": "DaemonSet", "spec": {"selector": {"matchLabels": labels}, "template": {"spec": {}}}}
    return [Prepared("state", (WantedObject(Ref(NAMESPACE, name), body, "digest", (), "uid-policy"),), ())]


def left_behind(nodes: dict[str, NodeView]) -> Snapshot:
    """Return a cluster whose one driver pod is nobody's, and used on a node with a taint."""
    found = build.cluster(nodes.values(), [driver_pod(orphan=True), gpu_pod()])
    return msgspec.structs.replace(found, daemonsets=())


def test_it_is_only_of_drivers_that_all_nodes_are_looked_at_each_time() -> None:
    node = msgspec.structs.replace(build.node(), taints=(Taint("dedicated", "gpu", "NoExecute"),))
    there = left_behind({"n0": node})
    driver = wanted("nvidia-driver-daemonset", {"app": names.DRIVER_APP})
    assert no_longer_tolerated(driver, there, "spec.tolerations") is not None
    plugin = msgspec.structs.replace(there, nodes=Unread(n0=node), daemonsets=(DaemonSetView(NAMESPACE, PLUGIN),))
    assert no_longer_tolerated(wanted(PLUGIN, {"app": PLUGIN}), plugin, "spec.tolerations") is None
