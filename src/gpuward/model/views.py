"""Slim, frozen projections of Kubernetes objects: only what a decision reads, never written back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuward import names
from gpuward.model.containers import ContainerProgress, PodShape, PullProgress
from gpuward.model.reading import read_count
from gpuward.model.record import Record
from gpuward.model.states import State, parse_state
from gpuward.model.taints import Taint, Toleration
from gpuward.model.told import ToldCondition


class Ref(msgspec.Struct, frozen=True, order=True, gc=False):
    """Name one object and the one life of it (uid) that a decision looked at. Cluster-scoped objects have no namespace."""

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Owner(msgspec.Struct, frozen=True, gc=False):
    """Name the controller of an object."""

    kind: str
    name: str
    uid: str


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """See of a node what placing operands and upgrading its driver depends on."""

    name: str
    uid: str = ""
    version: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    has_annotations: bool = True  # whether the object has an annotations map at all: a JSON patch must know
    unschedulable: bool = False
    cordoners: tuple[str, ...] = ()  # who owns a cordon that no upgrade remembers; empty where managedFields are silent
    ready: bool | None = None
    """None where the node reports no Ready condition, or Unknown."""
    created: float = 0.0
    deleting: bool = False
    taints: tuple[Taint, ...] = ()  # but for those that Kubernetes itself sets for what a node's conditions say
    runtime: str = ""  # `containerd`, `docker`, `cri-o`, ... as the kubelet reports it
    kernel: str = ""
    disk_pressure: bool = False
    conditions: Mapping[str, str] = {}  # the status of each but Ready
    told: tuple[ToldCondition, ...] = ()  # those that tell of drains and maintenance, by type
    record: Record | None = None
    record_error: str = ""  # why our annotation could not be read; empty when it could, or is absent
    turned: float = 0.0  # when it last became Ready, or ceased to be; 0 where its condition does not say
    mig_since: float = 0.0  # since when its MIG layout is not well; 0 where managedFields are silent, or it is

    @property
    def ref(self) -> Ref:
        return Ref("", self.name, self.uid)

    @property
    def upgrade_label(self) -> str:
        return self.labels.get(names.UPGRADE_STATE, "")

    @property
    def state(self) -> State | None:
        return parse_state(self.upgrade_label)

    @property
    def gpu_present(self) -> bool:
        return self.labels.get(names.GPU_PRESENT) == "true"


class PodView(msgspec.Struct, frozen=True, gc=False):
    """See of a pod what evicting, restarting and validating depends on."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    node: str = ""
    meant_for: str = ""  # the node that its DaemonSet made it for, while it has none
    labels: Mapping[str, str] = {}
    owner: Owner | None = None
    orphan: bool = False
    """Whether the pod has no owner at all, controller or not."""
    phase: str = "Pending"
    ready: bool = False
    """Whether it is Running, has container statuses, and every container is ready."""
    unheard: bool = False
    """Whether its containers were ready when its kubelet was heard last, and nobody knows what they have been like since."""
    restarts: int = 0
    """The largest restart count among the containers, init containers included, that are not ready."""
    waiting: str = ""
    """Why the pod does not run: the first waiting container's reason, such as ImagePullBackOff, or the scheduler's."""
    turned: float = 0.0
    """When it last became ready, or ceased to be; 0 where its conditions do not say."""
    started: float = 0.0
    """Since when the first of its containers has run; 0 where none does."""
    begun: bool = False  # whether any of its containers has run, init containers included
    after_failed: bool = False  # whether it is a driver pod that came for one which the kubelet evicted
    created: float = 0.0
    bound: float = 0.0  # when it was given its node; 0 where its conditions do not say
    deleting: bool = False
    ends: float = 0.0  # when its grace period is over, while it is being deleted
    kept_by_finalizers: tuple[str, ...] = ()  # while it is being deleted, those of others than Kubernetes
    uses_gpu: bool = False  # whether it asks for one: as an extended resource of a container, or by a claim on the DRA driver
    gpus: int = 0  # how many it asks for; whose claims are for GPUs does not say
    uses_vm_gpu: bool = False  # whether it asks for what virtual machines are given: a GPU by its model's name, or a vGPU
    holds: str = ""
    """By what it holds the driver though it asks for no GPU: `runtimeClass nvidia`, `hostPath /dev/nvidia0`, ... or nothing."""
    claims: tuple[str, ...] = ()
    """The ResourceClaims of its namespace that it uses; a snapshot's `uses_gpu` tells whether one of them is for GPUs."""
    consumed: tuple[str, ...] = ()
    """Those of them whose devices a regular container is given."""
    idle_claim: bool = False
    """Whether no container is known to be given a GPU, as where it asks for 0 of them: it runs without a driver, too."""
    empty_dir: bool = False
    mirror: bool = False
    tolerates_cordon: bool = False
    priority: int = 0
    grace: float = 30.0  # seconds that it may take to end once it is asked to, or that it was given when it was
    config_digest: str = ""
    driver_image: str = ""
    subscribed: bool = False  # whether it is a driver pod that mounts its host's subscription to RHEL
    images: frozenset[str] = frozenset()  # of all containers of a driver pod
    progress: ContainerProgress | None = None
    """Of a DaemonSet's pod that is not ready: how far it is, where its kubelet says."""
    pulls: PullProgress | None = None  # of a pod that only has images pulled
    gang: str = ""  # the work that it is one piece of, with other pods
    acknowledged: str = ""  # the notice that its owner has done with, by its id
    placed_by: Mapping[str, str] = {}
    """What its node selector says of where a driver comes from: the DaemonSet that it was made by selects nodes by the same."""

    @property
    def holds_by_variable(self) -> bool:
        """Tell whether nothing but an environment variable says that it holds the driver: not every node heeds that."""
        return self.holds.startswith(f"{names.VISIBLE_DEVICES}=")

    @property
    def ref(self) -> Ref:
        return Ref(self.namespace, self.name, self.uid)

    @property
    def of_daemonset(self) -> bool:
        return self.owner is not None and self.owner.kind == "DaemonSet"

    def is_owned_by(self, uid: str) -> bool:
        return self.owner is not None and self.owner.uid == uid

    @property
    def comes_back(self) -> bool:
        """Tell whether its controller may put another one on its node although that is cordoned."""
        return self.tolerates_cordon and self.owner is not None

    @property
    def revision(self) -> str:
        return self.labels.get(names.REVISION_HASH, "")

    @property
    def template_generation(self) -> int:
        """Return the number that its DaemonSet's template had when the pod was made, 0 where it does not say."""
        return read_count(self.labels.get(names.TEMPLATE_GENERATION, ""))

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def turned_away(self) -> bool:
        """Tell whether its kubelet has evicted or refused it, whatever its containers look like: `waiting` says which."""
        return self.phase == "Failed" and bool(self.waiting)

    def kept(self, now: float) -> tuple[str, ...]:
        """Return the finalizers that keep it. Before its grace period is over they need not: its containers may still run."""
        return self.kept_by_finalizers if self.ends <= now else ()

    def was_left_by(self, node: NodeView) -> bool:
        """Tell whether it was bound to an earlier Node of the name, and began on this machine: maybe before its device plugin.

        One that only waited until the Node was there is none.
        """
        return self.is_older_than(node) and node.created <= self.started

    def is_older_than(self, node: NodeView) -> bool:
        """Tell whether it was bound to an earlier Node of the name."""
        return (self.bound or self.created) < node.created

    @property
    def evicted_freely(self) -> bool:
        """Tell whether the eviction API lets the pod go whatever its budgets say."""
        return self.finished or self.deleting or self.phase == "Pending"


class DaemonSetView(msgspec.Struct, frozen=True, gc=False):
    """See of a DaemonSet what its readiness and its pods' revision depend on."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    generation: int = 0
    observed_generation: int = 0
    labels: Mapping[str, str] = {}
    selector: Mapping[str, str] = {}
    owner: Owner | None = None
    on_delete: bool = False
    max_unavailable: str = ""
    """How many of its pods, or what share of them, may be away at once for a new template; empty where it does not say."""
    desired: int = 0
    updated: int = 0
    available: int = 0
    unavailable: int = 0
    misscheduled: int = 0
    applied_hash: str = ""
    metadata_digest: str = ""
    template_generation: int = 0
    """How often the template was changed, and one: the number that pods made of it carry; 0 where that is not known."""
    config_digest: str = ""
    pod_digest: str = ""  # as of its revisions: of its template without labels and annotations; empty where that is not known
    image: str = ""
    system: str = ""  # the operating system that it was made for; empty where it does not say
    runtime: str = ""  # the container runtime that it was made for; empty where it does not say
    shape: PodShape = PodShape()
    pull_secrets: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Toleration, ...] | None = None  # None where an affinity, too, says which nodes it is for, or not known
    deleting: bool = False
    leaves_pods: bool = False
    kept_by_finalizers: tuple[str, ...] = ()  # while it is being deleted, those of others than Kubernetes
    account: str = ""  # the service account of its pods
    upgrade_policy: str = ""  # of one with the drivers of an NVIDIADriver: what outlives that
    drivers_go: bool = False  # of such a one: whether its NVIDIADriver was seen to be deleted with its drivers
    policies: tuple[str, ...] = ()  # the ClusterPolicies, by uid, that own it beside its controller
    spares_default_runtime: bool = False
    """Of the container toolkit's: whether it leaves the nodes' default container runtime as it is."""
    opens_driver: bool = False  # whether its pods keep the driver open while they run, so that its modules cannot be unloaded

    @property
    def ref(self) -> Ref:
        return Ref(self.namespace, self.name, self.uid)

    @property
    def images(self) -> tuple[str, ...]:
        """Return the images of its pods, the driver's first, each once."""
        return tuple(dict.fromkeys(filter(None, (self.image, *(pull.image for pull in self.shape.pulls)))))

    def is_owned_by(self, uid: str) -> bool:
        return self.owner is not None and self.owner.uid == uid

    @property
    def settled(self) -> bool:
        """Tell whether the DaemonSet controller has seen the newest template."""
        return self.observed_generation >= self.generation


class RevisionView(msgspec.Struct, frozen=True, gc=False):
    """See of a ControllerRevision whose it is, which number it has and the hash that its pods carry."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    owner_uid: str = ""
    revision: int = 0
    hash: str = ""
    config_digest: str = ""
    pod_digest: str = ""
    """A digest of that template without its labels and annotations: equal for revisions that run the same pods."""
    created: float = 0.0


class PolicyView(msgspec.Struct, frozen=True, gc=False):
    """Hold a custom resource that configures the operator: its identity, and the whole object as it is stored."""

    name: str
    uid: str = ""
    version: str = ""
    generation: int = 0
    created: float = 0.0
    deleting: bool = False
    gone: bool = False
    """Whether it is not there any more, and stays in force for a while."""
    body: Mapping[str, Any] = {}

    @property
    def ref(self) -> Ref:
        return Ref("", self.name, self.uid)

    @property
    def leaves_behind(self) -> bool:
        """Tell whether it is being deleted with `--cascade=orphan`: what it owns stays."""
        return self.deleting and "orphan" in ((self.body.get("metadata") or {}).get("finalizers") or ())
