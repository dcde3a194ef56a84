"""The facts of one moment, frozen: all that a decision about the cluster may look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from gpuward.model.analysis import Measured
from gpuward.model.budgets import BudgetView
from gpuward.model.driver_images import DriverImages
from gpuward.model.maintenance import MaintenanceView
from gpuward.model.owned import OwnedView
from gpuward.model.place import PlaceView
from gpuward.model.selectors import PodSelection
from gpuward.model.views import DaemonSetView, NodeView, PodView, PolicyView, Ref, RevisionView


class Refusal(msgspec.Struct, frozen=True):
    """Remember that the eviction API refused a pod. Losing it costs one early attempt, so it lives in memory only."""

    at: float
    count: int
    message: str
    lost: bool = False
    """Whether nobody refused it: connections broke, and one of them may have carried it."""


class Evicted(msgspec.Struct, frozen=True):
    """Remember that pods of one owner were evicted from one node. Losing it costs one early eviction: it lives in memory."""

    at: float
    """When that began, or when pods that had come back were evicted last."""
    there: tuple[str, ...]
    """The uids of the owner's pods that were there then; others have come since."""
    returns: int = 0
    """How often pods that had come back have been evicted."""


class Edit(msgspec.Struct, frozen=True):
    """Remember that somebody else edits what gpuward applied. Losing it costs some writes: it lives in memory only."""

    at: float = 0.0
    """When that was put right last."""
    count: int = 0
    by: str = ""
    """The field manager that did it, where managedFields tell."""
    stands: bool = False
    """Whether such an edit is in force now."""


class Applied(msgspec.Struct, frozen=True):
    """Remember the hash of what gpuward last applied, and which version of the object that made."""

    hash: str
    version: str
    generation: int
    metadata_digest: str = ""
    """Of a DaemonSet: its generation counts changes of its spec alone, and its version those of its status too."""
    tried: frozenset[str] = frozenset()
    """Hashes of what was to be applied since, and may have been though no answer tells of it."""


class Untaken(msgspec.Struct, frozen=True):
    """Remember that the API server does not take an object as it should be, or does not let it go. Losing it costs an attempt:
    it lives in memory.
    """

    SURE: ClassVar = 2
    """How often in a row it is said before people are told: what passes at once is not worth a word."""
    hash: str
    """Of what was to be applied; the uid of one that was to be deleted."""
    message: str
    count: int = 1
    """How often in a row."""
    stays: bool = False
    """Whether it was to be deleted."""

    @staticmethod
    def key(kind: str, ref: Ref) -> str:
        """Return under what the refusals of an object are kept."""
        return f"{kind} {ref}"

    def told(self, kind: str, name: str) -> str:
        """Say it of the object of a kind and name."""
        return f"{kind} {name} cannot be {'deleted' if self.stays else 'written'}: {self.message}"


class References(msgspec.Struct, frozen=True):
    """Hold what is asked for and not watched: what policies refer to, and what is installed."""

    versions: frozenset[tuple[str, int]] = frozenset()
    """By uid and generation, the policies whose references these are."""
    has_service_monitors: bool = False
    config_maps: Mapping[str, tuple[str, ...]] = {}
    """The keys of each ConfigMap that is there."""
    secrets: frozenset[str] = frozenset()
    """The Secrets that are there."""

    def known_for(self, policy: PolicyView) -> bool:
        """Tell whether these are the references of this version of a policy."""
        return (policy.uid, policy.generation) in self.versions


class Snapshot(msgspec.Struct, frozen=True):
    """Hold the cluster as one pass sees it. `pods` has only pods that a decision may concern, grouped by node name."""

    namespace: str
    nodes: Mapping[str, NodeView] = {}
    pods: Mapping[str, tuple[PodView, ...]] = {}
    daemonsets: tuple[DaemonSetView, ...] = ()
    revisions: tuple[RevisionView, ...] = ()
    policies: tuple[PolicyView, ...] = ()
    """Every ClusterPolicy, the oldest first, and by name where two are equally old. In force is the first that is not being
    deleted.
    """
    rollout_policies: tuple[PolicyView, ...] = ()
    """Every RolloutPolicy, the active one first, as with ClusterPolicies; none where they are not installed."""
    drivers: tuple[PolicyView, ...] = ()
    """Every NVIDIADriver, the oldest first; none where they are not installed, or cannot be listed (see `unlisted`)."""
    departed: tuple[PolicyView, ...] = ()
    """NVIDIADrivers as this process saw them last, whose DaemonSets are there still; lost in a restart."""
    budgets: tuple[BudgetView, ...] = ()
    """Disruption budgets; none where they may not be listed, and then only evictions tell."""
    owned: Mapping[tuple[str, str, str], OwnedView] = {}
    """Objects that a ClusterPolicy or an NVIDIADriver owns, and every service account, by kind, namespace and name."""
    applied: Mapping[tuple[str, str, str], Applied] = {}
    """What the API server last answered when gpuward wrote them; lost in a restart, which costs one read of each."""
    untaken: Mapping[str, Untaken] = {}
    """Objects that the API server does not take, or does not let go, by `Untaken.key`."""
    refusals: Mapping[str, Refusal] = {}
    """Refused evictions by pod uid."""
    evicted: Mapping[str, Mapping[str, Evicted]] = {}
    """Owners of which pods were evicted lately: by node, and then by the owner's uid."""
    refused_writes: Mapping[str, Refusal] = {}
    """Nodes that the API server refuses to change, by uid, with how often it has refused an upgrade's write in a row."""
    unstaged: Mapping[str, Refusal] = {}
    """Nodes for which no pod may be made that has images pulled, by uid, as the API server refused it last."""
    withheld: Mapping[str, float] = {}
    """When the driver was withheld from nodes, by uid, where this process did so: only node labels follow from it."""
    edits: Mapping[str, Edit] = {}
    """DaemonSets that others edit, by uid."""
    unsettled: frozenset[str] = frozenset()
    """Nodes whose last write has an outcome that is not known yet; nothing is decided about them."""
    grants: Mapping[str, str] | None = None
    """Nodes that a leader was granted to start, with their stamps (`gpuward.upgrade.ledger`); None where nobody else can lead."""
    unanswered: Mapping[str, float] = {}
    """Nodes of which a change has no answer yet, by name, and since when; they are unsettled."""
    ledger_refused: Refusal | None = None
    """That what was to be granted last could not be written down."""
    watched_since: float = 0.0
    """Since when this process leads, and so has seen what uses GPUs; 0 for one that only looks."""
    inherited: frozenset[str] = frozenset()
    """Nodes that were granted already when this process began to lead: an earlier leader's patch may be on its way. And those
    whose grant was asked for long before it was given.
    """
    followed: frozenset[PodSelection] | None = None
    """Which further pods are in `pods`; None until all that matter have been listed, and no upgrade is decided before."""
    references: References = References()
    images: DriverImages | None = None
    """What registries say of drivers' images; None where they are not asked."""
    measured: Mapping[str, Measured] = {}
    """What was measured of checks of waves, by the key of the run; lost in a restart, and measured anew."""
    maintenances: Mapping[str, MaintenanceView] | None = None
    """NodeMaintenances of the operator's namespace, by name; None where none was asked for, or they may not be seen."""
    unrequested: Mapping[str, str] = {}
    """Why NodeMaintenances could not be made, by their names."""
    place: PlaceView | None = None
    """The operator's namespace; None where no policy makes it matter, or it may not be seen."""
    unlisted: Mapping[str, str] = {}
    """Kinds whose objects are not known, and why if that is known: nothing is decided about objects of these kinds."""
    forbidden: frozenset[str] = frozenset()
    """Kinds that the operator may not list, and can do without (`gpuward.model.rights`)."""
    staging_on: frozenset[str] | None = None
    """Nodes with pods that only have images pulled, empty for those without a node; None where nobody has looked for them."""
