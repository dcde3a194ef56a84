"""The versions of drivers: what is loaded on a node, and what should be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from gpuward import names
from gpuward.model.driver import driver_daemonsets, is_driver_pod
from gpuward.model.owners import NoOwner
from gpuward.model.placement import Placements, after
from gpuward.model.snapshot import Snapshot
from gpuward.model.versions import version_of
from gpuward.model.views import DaemonSetView, NodeView, PodView
from gpuward.model.withheld import is_withheld, selecting, with_driver
from gpuward.policy.activedriver import ActiveDriver
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.upgrade.scope import concerns

_FULL: Final = re.compile(r"\d+(\.\d+)+$")
"""A version as discovery tells it: a precompiled driver's tag has the branch and the kernel instead."""


def loaded_version(node: NodeView, snapshot: Snapshot) -> tuple[str, bool]:
    """Return the version of the driver that a node has loaded, and whether that is doubtful: that of its driver pod if it is
    ready, else what GPU feature discovery found last, which is doubtful then: a driver manager may have unloaded it since. Once
    that of another version has ended, it is not loaded any more.
    """
    found, said = _driver_pods(node, snapshot), node.labels.get(names.DRIVER_VERSION, "")
    image = next((pod.driver_image for pod in found if pod.ready and not pod.deleting), "")
    if (version := version_of(image)) or not said:
        return version or said, False
    after_manager = [version_of(pod.driver_image) for pod in found if _is_past_manager(pod)]
    if any(_FULL.match(version) and version != said for version in after_manager):
        return "", False
    return said, True


def _driver_pods(node: NodeView, snapshot: Snapshot) -> list[PodView]:
    return [pod for pod in snapshot.pods.get(node.name, ()) if is_driver_pod(pod, snapshot.namespace)]


def _is_past_manager(pod: PodView) -> bool:
    """Tell whether a pod waits for its driver container: its driver manager, which unloads what was there, has ended."""
    return pod.begun and not pod.deleting and not pod.unheard and pod.progress is not None and not pod.progress.init


def wanted_versions(managed: Iterable[str], snapshot: Snapshot, policies: PoliciesInForce) -> Mapping[str, str]:
    """Return the version of the driver that each of these nodes should have."""
    found = wanted_daemonsets(managed, snapshot, policies)
    asked = {each.view.name: asked_version(each) for each in policies.active} if policies.in_force else {}
    owners = {name: snapshot.nodes[name].labels.get(names.DRIVER_OWNER, "") for name in found
              if not isinstance(policies.owners.get(name), NoOwner)}
    return {name: version_of(ds.image) if ds is not None else asked.get(owners.get(name, ""), "") for name, ds in found.items()}


def asked_version(driver: ActiveDriver) -> str:
    """Return the version that an NVIDIADriver asks for, whether or not it can have a DaemonSet; empty where it cannot be read."""
    asked = driver.driver.spec.version if driver.driver is not None else ""
    return version_of(f"driver@{asked}") if ":" in asked else asked


def wanted_daemonsets(
    managed: Iterable[str], snapshot: Snapshot, policies: PoliciesInForce
) -> Mapping[str, DaemonSetView | None]:
    """Return the DaemonSet that each of these nodes should have its driver from."""
    daemonsets = driver_daemonsets(snapshot)
    nodes = [node for name in managed if (node := snapshot.nodes.get(name)) is not None]
    found: dict[str, DaemonSetView | None] = {}
    for policy in policies.upgrades:
        placements = Placements(snapshot, None if policy.unowned else policy.placing)
        for node in nodes:
            if concerns(policy, node):
                moving = placements.moving(node, snapshot.pods.get(node.name, ()))
                served = with_driver(node) if is_withheld(node) else node
                labels = after(served.labels, moving.labels) if moving is not None else served.labels
                found[node.name] = next(iter(selecting(daemonsets, labels)), None)
    return found
