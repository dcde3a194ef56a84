"""What one node's upgrade depends on, gathered from the snapshot once per pass."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuward import names
from gpuward.model.placement import Placement, placement_of
from gpuward.model.plan import Hold
from gpuward.model.reading import read_count
from gpuward.model.record import UNTOLD_DRIVER, CordonOwner, Record
from gpuward.model.snapshot import Evicted, Refusal
from gpuward.model.states import UNDISTURBED, State
from gpuward.model.taints import Taint
from gpuward.model.troubles import PodTrouble, trouble_of
from gpuward.model.unserved import KernelUnknown, Unserved, WrongDriverType
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.evictable_pods import EvictablePods
from gpuward.upgrade.module_holders import NOBODY, ModuleHolders
from gpuward.upgrade.staged import NextImages
from gpuward.upgrade.targets import UNSETTLED, Target


class NodeFacts(msgspec.Struct, frozen=True, gc=False):
    """Hold the facts about one managed node. `state` and `record` are as they will be after the steps taken so far."""

    node: NodeView
    state: State
    record: Record
    driver: PodView | None = None
    driver_pods: int = 0  # those on the node that are not terminating
    driver_leaving: bool = False  # whether another driver pod is about to go, and its driver with it
    driver_beside: bool = False  # whether another driver pod is ready there, which need not be the policy's to replace yet
    target: str = ""
    """Revision hash that the driver pod should have; empty while the DaemonSet has not settled."""
    target_digest: str = ""  # the driver configuration digest of that revision
    target_version: str = ""
    target_since: float = 0.0  # when that revision was made
    image: Hold | None = None
    """That the image of that driver is missing, or not asked for yet."""
    next_images: NextImages | None = None  # what is to be brought onto it before its turn
    edited: Hold | None = None
    """That somebody else edits the DaemonSet, so that there is no target."""
    moving: Placement | None = None
    """Where the node's driver is to come from, if not from its driver pod's DaemonSet; then that is the target, in words."""
    next_target: Target = UNSETTLED
    """What its driver pod will be there, as far as that is known."""
    removing: bool = False  # whether the driver is to go, and none comes after it: then `NO_DRIVER` is the target
    same: frozenset[str] = frozenset()
    """Hashes of the revisions whose pods differ from those of the target in labels and annotations at most."""
    wanted: bool = True  # whether a driver DaemonSet selects the node
    selected: bool = True  # whether one does that is there now
    repels: tuple[Taint, ...] = ()  # taints that keep its driver pod away
    would_repel: tuple[Taint, ...] = ()  # those that would keep its next one away, or its validator pod
    none_follows: bool = False  # whether they would keep that driver pod away
    unserved: Unserved | None = None
    """Why no driver DaemonSet is for the node, though it should have a driver."""
    departed: bool = False  # whether the NVIDIADriver is gone whose upgrade it is under
    validators: tuple[PodView, ...] = ()
    operands: tuple[PodView, ...] = ()  # those of others than the driver that are not ready, the one to look at first leading
    module_holders: ModuleHolders = NOBODY
    device_plugin_going: PodView | None = None  # what offers its GPUs, if it is about to stop
    offering: PodView | None = None  # what offers its GPUs, and would stop if its label were paused
    leaving: PodView | None = None  # that, or the driver pod, where the node is cordoned until these have stopped
    driver_follows: bool = False  # whether that driver pod is not asked to stop yet
    to_evict: EvictablePods = EvictablePods()
    """Pods that have to leave before the driver is replaced."""
    to_drain: EvictablePods = EvictablePods()
    """Those, and what else a drain takes; none where the policy wants no drain."""
    machines: tuple[PodView, ...] = ()  # virtual machines that have its GPUs, which no upgrade evicts
    jobs: tuple[PodView, ...] = ()
    refusals: Mapping[str, Refusal] = {}
    evicted: Mapping[str, Evicted] = {}
    """Owners of which pods were evicted from the node lately, by uid."""
    refused: Refusal | None = None
    """That the API server refuses to change the node."""
    unschedulable: bool = False
    withheld: bool = False
    """Whether the node is kept from getting a driver pod while pods run on a driver that this would replace."""
    watched_since: float = 0.0
    """Since when this process has seen what uses the node."""
    barred: bool = False
    """Whether the node may not be labelled as one with GPUs, so that it gets no driver."""

    @property
    def just_entered(self) -> bool:
        """Tell whether it came to its state in this pass, which the label does not say yet."""
        return self.node.upgrade_label != self.state

    def is_overdue(self, until: float | None, now: float) -> bool:
        """Tell whether the time in its state is up; a state that was just entered has all its time."""
        return until is not None and now >= until and not self.just_entered

    @property
    def in_step(self) -> bool:
        """Tell whether the driver pod runs the newest template."""
        return self.driver is not None and bool(self.target) and not self.driver.orphan and self.runs(self.driver.revision)

    def runs(self, revision: str) -> bool:
        """Tell whether pods of a revision are what the target would make of them, labels and annotations aside."""
        return revision == self.target or revision in self.same

    @property
    def retargeted(self) -> bool:
        """Tell whether the node was last sent to another driver than the one that it should have now."""
        return bool(self.target and self.record.target) and not self.runs(self.record.target) and not self.arrived

    @property
    def arrived(self) -> bool:
        """Tell whether the node was last sent to the DaemonSet that it has now, whose revisions were not known then."""
        return self.moving is None and self.record.target == str(placement_of(self.node.labels))

    @property
    def unlabelled(self) -> bool:
        """Tell whether the node gets no driver pod as the label for it may not be written."""
        return self.refused is not None and not self.node.labels.get(names.DEPLOY_DRIVER)

    @property
    def left(self) -> bool:
        """Tell whether no driver DaemonSet selects the node any more, and nothing of the driver is left on it."""
        return not self.wanted and self.driver is None and not self.withheld

    @property
    def stranded(self) -> bool:
        """Tell whether its driver pod belongs to nobody, and no DaemonSet would make another one."""
        alone = self.driver is not None and self.driver.orphan and not self.driver.deleting
        return alone and not (self.selected or self.removing or self.moving is not None)

    @property
    def keeps_driver(self) -> bool:
        """Tell whether it keeps the driver that it has, and is not upgraded: its NVIDIADriver is not for it any more, and the one
        that is brings no driver for containers, or a precompiled one for a kernel that nobody knows. A driver that an upgrade
        left without service is none to keep: its DaemonSet is there, and it is tried again.
        """
        kept = isinstance(self.unserved, WrongDriverType | KernelUnknown) and bool(self.unserved.kept)
        return kept and (self.loaded or self.withheld or not self._was_left_unserved)

    @property
    def _was_left_unserved(self) -> bool:
        failure = self.record.failure
        failed = self.state is State.FAILED and (failure is None or failure.state not in UNDISTURBED)
        return failed or self.record.forced

    @property
    def driver_ready(self) -> bool:
        """Tell whether the driver pod is in step, ready and not on its way out."""
        return self.driver is not None and self.in_step and self.driver.ready and not self.driver.deleting

    @property
    def unplaced(self) -> bool:
        """Tell whether the driver pod was made for the node, and the scheduler has yet to put it there."""
        return self.driver is not None and bool(self.driver.meant_for)

    @property
    def loaded(self) -> bool:
        """Tell whether a driver serves the node, the target or an older one."""
        return self.driver is not None and self.driver.ready and not self.driver.deleting

    @property
    def which_driver(self) -> str:
        """Return what tells the driver of the node's pod from others: the digest of its configuration, or its revision."""
        return (self.driver.config_digest or self.driver.revision) if self.driver is not None else ""

    @property
    def loaded_digest(self) -> str:
        """Return the configuration digest of the driver that is loaded, as far as that is known."""
        found = self.driver.config_digest or UNTOLD_DRIVER if self.driver is not None and self.loaded else ""
        return found or self.record.loaded

    @property
    def serves(self) -> bool:
        """Tell whether a driver is loaded: pods that were given GPUs run on one; those that only hold devices run without too."""
        return self.loaded or any(pod.uses_gpu and not pod.idle_claim for pod in self.to_evict.running(self.node))

    @property
    def up_to_date(self) -> bool:
        """Tell whether the target driver is loaded and validated. A validator pod that stood beside another driver pod when the
        node was done has not seen one that came since.
        """
        validators = self.live_validators
        if not self.driver_ready or not validators or not all(pod.ready for pod in validators):
            return False
        return not (self.replaced and self.older_validators)

    @property
    def replaced(self) -> bool:
        """Tell whether the driver pod is another one than when the node was last known."""
        return self.driver is not None and self.record.pods is not None and self.driver.uid not in self.record.pods

    @property
    def trouble(self) -> PodTrouble | None:
        return trouble_of(self.driver) if self.driver is not None else None

    @property
    def safe_load(self) -> bool:
        """Tell whether a driver pod waits for leave to load its modules."""
        return bool(self.node.annotations.get(names.SAFE_LOAD))

    @property
    def requested(self) -> bool:
        return self.node.annotations.get(names.UPGRADE_REQUESTED) == "true"

    @property
    def by_hand(self) -> bool:
        """Tell whether the state label was set by somebody else since gpuward wrote it."""
        return self.node.record is not None and self.node.upgrade_label != self.node.record.state

    @property
    def jobs_since(self) -> float | None:
        """Return since when jobs are waited for, by NVIDIA's annotation: seconds in decimal. Garbage is as good as none."""
        return float(read_count(self.node.annotations.get(names.WAIT_FOR_JOBS_SINCE, ""))) or None

    @property
    def needed(self) -> bool:
        """Tell whether the driver pod has to be replaced or validated anew."""
        return self.record.forced or self.asked

    @property
    def asked(self) -> bool:
        """Tell whether the cluster's state alone asks for an upgrade. An orphan waits until somebody requests it."""
        if self.safe_load or self.requested or self.withheld or self.removing:
            return True
        return self.driver is not None and not self.driver.orphan and bool(self.target) and not self.runs(self.driver.revision)

    @property
    def restart_only(self) -> bool:
        """Tell whether the new template would install the very driver that is loaded, so that nothing needs to leave the node.

        What is loaded beside a driver pod that is not ready nobody knows, unless its node was admitted while it was. Nor does
        what is loaded stay under GPU pods that have it not open, unless something has.
        """
        return self.same_driver and (self.loaded or self.only_restarted) and bool(self.to_evict.empty or self.module_holders.pods)

    @property
    def same_driver(self) -> bool:
        """Tell whether the driver pod was made to install the driver that the new template would."""
        if self.driver is None or self.driver.orphan or not self.target or self.record.forced or self.asked_by_hand:
            return False
        digest = self.driver.config_digest
        return bool(digest) and digest == self.target_digest

    @property
    def only_restarted(self) -> bool:
        """Tell whether the driver that the node got is the one that it had, so that nothing had to leave the node."""
        return bool(self.record.restart) and self.record.restart == self.target_digest

    @property
    def asked_by_hand(self) -> bool:
        """Tell whether an annotation, not a new template, asks for the upgrade."""
        return self.safe_load or self.requested

    @property
    def cordon_is_foreign(self) -> bool:
        """Tell whether the node's cordon was there before the upgrade, so that it has to stay."""
        return names.INITIALLY_UNSCHEDULABLE in self.node.annotations or self.record.cordon is CordonOwner.OTHER

    @property
    def stale_validators(self) -> tuple[PodView, ...]:
        """Return the validator pods that cannot have seen the driver that runs now."""
        older = self.older_validators
        return tuple(pod for pod in self.validators if pod in older or (self.record.forced and self.was_there(pod)))

    @property
    def older_validators(self) -> tuple[PodView, ...]:
        if self.driver is None:
            return self.validators
        born = int(self.driver.created)
        return tuple(pod for pod in self.validators if pod.created < born)

    @property
    def live_validators(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.validators if not pod.deleting and not pod.finished)

    @property
    def validated(self) -> bool:
        """Tell whether validator pods that have seen the driver that runs now confirm it."""
        validators, stale = self.live_validators, self.stale_validators
        return self.driver_ready and bool(validators) and all(pod.ready and pod not in stale for pod in validators)

    @property
    def untouched(self) -> bool:
        """Tell whether the driver pod is the one that ran when the node was admitted."""
        return self.driver is not None and not self.driver.deleting and self.was_there(self.driver)

    @property
    def pods_there(self) -> tuple[str, ...]:
        """Return the uids of the driver and validator pods that the node has now."""
        return tuple(sorted(pod.uid for pod in (*self.validators, *([self.driver] if self.driver else []))))

    def was_there(self, pod: PodView) -> bool:
        """Tell whether a driver or validator pod was there already when the node was admitted."""
        there = self.record.pods
        return pod.created < int(self.record.started) if there is None else pod.uid in there
