"""Nodes that a driver DaemonSet must not get to yet: pods run there on another driver, and no driver pod is in its way."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.labels.discovery import is_lost
from gpuward.model.actions import PatchNode
from gpuward.model.driver import is_driver_pod, owner_uid, revisions_of, spares_default_runtime
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.model.withheld import living_daemonsets, loaded_alone

GIVEN_UP: Final = 8
"""Refusals of a node's changes, which take some minutes, after which a DaemonSet is written all the same."""


class Withholding(msgspec.Struct, frozen=True):
    """Hold what comes before a driver DaemonSet is written."""

    nodes: tuple[str, ...] = ()
    actions: tuple[PatchNode, ...] = ()
    """Take the label from these nodes by which the DaemonSet would select them; the upgrade empties them first."""


def told_otherwise(body: Mapping[str, Any], snapshot: Snapshot) -> tuple[str, ...]:
    """Return the nodes that a DaemonSet selects whose annotation still tells the driver manager that gpuward empties them, though
    upgrades are not automatic any more: another driver would come under their pods. One on its way out is not changed any more.
    """
    template: Mapping[str, Any] = body.get("spec", {}).get("template", {}).get("spec", {})
    selector: Mapping[str, str] = template.get("nodeSelector", {})
    if not _digest_of(template):
        return ()
    return tuple(sorted(
        node.name for node in snapshot.nodes.values() if selector.items() <= node.labels.items() and not node.deleting
        and node.annotations.get(names.UPGRADE_ENABLED) == "true" and not is_lost(node) and not _is_given_up(node, snapshot)))


def withholding(body: Mapping[str, Any], snapshot: Snapshot, *, is_new: bool) -> Withholding:
    """Return the nodes on which a DaemonSet, once it is written, would replace the driver under the pods that use it: those
    without a driver pod, and those whose driver pod is about to be restarted only, and would come back as another one.

    It is for upgrades that are automatic: else the driver manager empties the node. A node that nobody may change holds up others
    for some refusals only. Where the DaemonSet is there already, a node that nobody uses gets its pod in any case.
    """
    template: Mapping[str, Any] = body.get("spec", {}).get("template", {}).get("spec", {})
    selector, digest = template.get("nodeSelector", {}), _digest_of(template)
    if not digest or names.DEPLOY_DRIVER not in selector:
        return Withholding()
    living = living_daemonsets(snapshot)
    selected = [node for node in snapshot.nodes.values() if selector.items() <= node.labels.items()
                and not _is_given_up(node, snapshot)]
    unknown = [node for node in snapshot.nodes.values() if node.name in snapshot.unsettled and _may_be_selected(node, selector)]
    spared = spares_default_runtime(snapshot)
    found = ((node, loaded_alone(node, snapshot.pods.get(node.name, ()), snapshot.namespace, living, spared=spared))
             for node in selected)
    taken = [node for node, loaded in found if loaded and loaded.digest != digest and (is_new or loaded.used)]
    restarting = [node for node in selected if _restarted(node, snapshot) not in ("", digest)]
    why = f"DaemonSet {body['metadata']['name']} would replace the driver under its pods"
    unsure = [node for node in unknown if _replaces(node, snapshot, digest, living)]
    return Withholding(tuple(sorted({node.name for node in (*taken, *restarting, *unsure)})),
                       tuple(_taken_from(node, snapshot, why) for node in taken if node.name not in snapshot.unsettled))


def _may_be_selected(node: NodeView, selector: Mapping[str, str]) -> bool:
    """Tell whether a node may be selected whose labels are not known, as a change of them has no answer."""
    ours = (*names.PLACED_BY, names.DEPLOY_DRIVER)
    return all(node.labels.get(key) == value for key, value in selector.items() if key not in ours)


def _replaces(node: NodeView, snapshot: Snapshot, digest: str, living: Set[str]) -> bool:
    spared = spares_default_runtime(snapshot)
    loaded = loaded_alone(node, snapshot.pods.get(node.name, ()), snapshot.namespace, living, spared=spared)
    return loaded is not None and loaded.used and loaded.digest != digest


def _digest_of(template: Mapping[str, Any]) -> str:
    variables = (one for container in template.get("containers", ()) for one in container.get("env", ()))
    return next((str(one.get("value", "")) for one in variables if one.get("name") == names.DRIVER_CONFIG_DIGEST), "")


def _is_given_up(node: NodeView, snapshot: Snapshot) -> bool:
    """Tell whether a node has refused to be changed so often that no others wait for it."""
    refusal = snapshot.refused_writes.get(node.uid)
    return refusal is not None and refusal.count >= GIVEN_UP


def _restarted(node: NodeView, snapshot: Snapshot) -> str:
    """Return the digest of the driver whose pod is deleted now, as the same driver is to come back under running pods."""
    record = node.record
    if record is None or node.state is not State.POD_RESTART_REQUIRED or not record.restart:
        return ""
    pods = (pod for pod in snapshot.pods.get(node.name, ()) if is_driver_pod(pod, snapshot.namespace) and not pod.deleting)
    going = any(pod.uid in (record.pods or ()) and (record.forced or not _in_step(pod, snapshot))
                and not _stays(pod, snapshot) for pod in pods)
    return record.restart if going else ""


def _stays(pod: PodView, snapshot: Snapshot) -> bool:
    """Tell whether a pod's deletion has been refused so often that no others wait for it."""
    refusal = snapshot.refusals.get(pod.uid)
    return refusal is not None and refusal.count >= GIVEN_UP


def _in_step(pod: PodView, snapshot: Snapshot) -> bool:
    """Tell whether a pod is of its DaemonSet's newest template: its restart is over, or was taken back."""
    return pod.revision in revisions_of(owner_uid(pod), snapshot.revisions).same


def _taken_from(node: NodeView, snapshot: Snapshot, why: str) -> PatchNode:
    return PatchNode(
        node.ref,
        labels={names.DEPLOY_DRIVER: None},
        expect_labels={names.DEPLOY_DRIVER: node.labels.get(names.DEPLOY_DRIVER)},
        has_annotations=node.has_annotations,
        known_pods={pod.uid: owner_uid(pod) for pod in snapshot.pods.get(node.name, ())},
        why=why,
    )
