"""The closed union of what a plan can ask for. Each action is one API call (what takes a driver away takes one more look first).

Actions carry their precondition: the uid of the object that was read, and the fields that the decision depends on. An action
belongs to a lane, its node or its object: when one fails, the rest of its lane is dropped and the next pass looks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuward.model.states import State
from gpuward.model.told import NewCondition, ToldCondition
from gpuward.model.views import Ref


class EventText(msgspec.Struct, frozen=True):
    """Hold the type and message of a Kubernetes event that follows a successful action."""

    message: str
    warning: bool = False


class LastLook(msgspec.Struct, frozen=True):
    """Say which pods on a node call an action off that takes its driver away, found by a quorum read: those that use a GPU."""

    holders: bool = True
    """Whether those do, too, that hold the driver without asking for a GPU."""
    variable: bool = True
    """Whether the node heeds NVIDIA_VISIBLE_DEVICES in any container: else that alone holds nothing."""
    module_holders: tuple[str, ...] = ()
    """Pods, by uid, one of which is enough for the action to go on under users of GPUs: it keeps the driver loaded."""
    machines: bool = False
    """Whether its GPUs may be for virtual machines: then the pods of these do, and none that has let go of its GPU."""


class PatchNode(msgspec.Struct, frozen=True, tag=True):
    """Change a node's labels, annotations or schedulability, if those it was decided on still hold.

    In `labels` and `annotations` None removes the key. `expect_labels` and `expect_annotations` are what was read (None: absent).
    """

    node: Ref
    labels: Mapping[str, str | None] = {}
    annotations: Mapping[str, str | None] = {}
    unschedulable: bool | None = None
    expect_labels: Mapping[str, str | None] = {}
    expect_annotations: Mapping[str, str | None] = {}
    expect_unschedulable: bool | None = None
    has_annotations: bool = True
    entered: tuple[State, ...] = ()
    """The upgrade states entered by this patch, in order; the last one is what the label is set to."""
    last_look: LastLook | None = None
    """Which pods on the node call the patch off; None for no look."""
    known_pods: Mapping[str, str] | None = None
    """The node's pods that were known, where the patch may take a driver away: uids, and those of the controllers. A driver pod
    or a user of GPUs that is none of them, by a quorum read, calls the patch off. None where it takes none away.
    """
    driver: Ref | None = None
    """The driver pod that is to go by this patch."""
    done_by: Ref | None = None
    """The driver pod by which an upgrade is called done: gone, or going, by a quorum read, it calls the patch off."""
    drivers: frozenset[str] | None = None
    """By their digests, the drivers of the DaemonSets that select the node once it is patched: others call the patch off. None
    where no driver pod may come by it on a node whose driver matters.
    """
    events: tuple[EventText, ...] = ()
    pod_events: tuple[tuple[Ref, EventText], ...] = ()
    """Events about pods of the node."""
    why: str = ""

    @property
    def lane(self) -> str:
        """Return the node's name."""
        return self.node.name


class PatchConditions(msgspec.Struct, frozen=True, tag=True):
    """Put conditions on a node, and take some away, while it has those that were read. It fails nothing but itself."""

    node: Ref
    put: tuple[NewCondition, ...]
    gone: tuple[str, ...]
    """By type."""
    seen: tuple[ToldCondition, ...]
    state: str
    """The node's upgrade label."""
    why: str = ""

    @property
    def lane(self) -> str:
        """Return a lane beside the node's: no upgrade waits for what others are told of it."""
        return f"{self.node.name}/conditions"


class EvictPod(msgspec.Struct, frozen=True, tag=True):
    """Ask the eviction API to remove a pod; disruption budgets may refuse."""

    pod: Ref
    node: str
    why: str = ""

    @property
    def lane(self) -> str:
        """Return the node's name: the eviction comes after the cordon. One that is refused fails nothing but itself."""
        return self.node


class DeletePod(msgspec.Struct, frozen=True, tag=True):
    """Delete a pod of ours so that its DaemonSet makes a new one."""

    pod: Ref
    node: str
    """The node that it is on, or was made for; empty where that is not known."""
    last_look: LastLook | None = None
    """Which pods on the node call the deletion off; None for no look."""
    grace: int | None = None
    """Seconds that it may take to end; None for its own."""
    same_driver: str = ""
    """The digest of the driver that has to come back, as pods run on it: a DaemonSet with another one calls the deletion off."""
    why: str = ""
    unplaced: bool = False
    """Whether it is deleted only if no node has it, by a quorum read."""

    @property
    def lane(self) -> str:
        """Return the node's name."""
        return self.node


class ReleasePod(msgspec.Struct, frozen=True, tag=True):
    """Take a driver pod from its DaemonSet, if it has one (`owner_uid`), and make it one that none adopts; it runs on."""

    pod: Ref
    node: str
    owner_uid: str
    why: str = ""

    @property
    def lane(self) -> str:
        """Return the node's name."""
        return self.node


class _OnObject(msgspec.Struct, frozen=True):
    """Name the object that an action is about."""

    kind: str
    ref: Ref

    @property
    def lane(self) -> str:
        """Return the object's own lane."""
        return f"{self.kind}/{self.ref}"


class CreatePod(_OnObject, frozen=True, tag=True):
    """Create a pod of a name that it alone may have."""

    node: Ref
    """The node that it is for."""
    body: Mapping[str, Any]
    why: str = ""


class RequestMaintenance(_OnObject, frozen=True, tag=True):
    """Create a NodeMaintenance."""

    body: Mapping[str, Any]
    why: str = ""


class ApplyObject(_OnObject, frozen=True, tag=True):
    """Create an object that is wholly ours, or replace it by the full rendered one."""

    body: Mapping[str, Any]
    hash: str
    version: str = ""
    """The version that the decision saw, and the precondition of the replacement; empty where there was no object."""
    verify: bool = False
    """Whether the object may be as wanted already: it is read first, and replaced only if it differs."""
    again: bool = False
    """Whether it was made before and has gone: its owner is read first, as Kubernetes deletes what has an owner that is gone."""
    withholds: bool = False
    """Whether it is a driver DaemonSet that nodes call off on which its driver would come under pods that use another one."""
    why: str = ""


class DeleteObject(_OnObject, frozen=True, tag=True):
    """Delete an object that is wholly ours and no longer wanted."""

    orphan: bool = False
    """Whether what the object owns stays: the pods of a DaemonSet then run on, owned by nobody."""
    if_empty: bool = False
    """Whether a pod of the DaemonSet on a node, by a quorum read, calls the deletion off."""
    unused: tuple[str, ...] = ()
    """Nodes that lose the driver of their host by it: a user of their GPUs, by a quorum read of each, calls the deletion off."""
    why: str = ""


class PatchStatus(_OnObject, frozen=True, tag=True):
    """Merge our fields into the status of a custom resource."""

    status: Mapping[str, Any]
    why: str = ""

    @property
    def lane(self) -> str:
        """Return a lane beside the object's: it is told how things stand, too, where the object may not be annotated."""
        return f"{self.kind}/{self.ref}/status"


class GrantNodes(msgspec.Struct, frozen=True, tag=True):
    """Enter nodes into the ledger of admissions, and take others out, if this process still leads."""

    add: Mapping[str, str] = {}
    drop: tuple[str, ...] = ()
    why: str = ""
    urgent: bool = False
    """Whether it must not wait for company: a grant that is dropped would mean something again."""

    @property
    def lane(self) -> str:
        """Return the ledger's own lane."""
        return "Lease"


class PatchAnnotations(_OnObject, frozen=True, tag=True):
    """Set annotations of ours on a custom resource or a DaemonSet; None removes one."""

    annotations: Mapping[str, str | None]
    why: str = ""


class SetOwner(_OnObject, frozen=True, tag=True):
    """Have a ClusterPolicy own an object of ours beside its controller, or none, and set annotations of ours; all else in the
    object stays as it is.
    """

    controller: str
    """The uid of the controller that was read, empty where there was none: another one calls it off."""
    policy: Ref | None
    annotations: Mapping[str, str | None] = {}
    why: str = ""


class PatchLabels(_OnObject, frozen=True, tag=True):
    """Set labels on an object that is not ours, at the version that was read."""

    labels: Mapping[str, str]
    version: str
    why: str = ""


Action = (PatchNode | PatchConditions | EvictPod | CreatePod | DeletePod | ReleasePod | RequestMaintenance | ApplyObject
          | DeleteObject | PatchStatus | PatchAnnotations | PatchLabels | SetOwner | GrantNodes)
