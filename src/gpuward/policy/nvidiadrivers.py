"""The NVIDIADrivers, typed; what is wrong with each; and the upgrade policies in force, theirs or the ClusterPolicy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from gpuward import names
from gpuward.crd import validate
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.model.departed import unjudged_departures
from gpuward.model.driver import driver_daemonsets
from gpuward.model.owners import Claim, NodeOwner, OwnerConflict, conflicts, owner_of
from gpuward.model.placement import Placing
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.switches import Switches
from gpuward.model.views import NodeView, PolicyView
from gpuward.policy import words
from gpuward.policy.activedriver import ActiveDriver, read_driver
from gpuward.policy.annotated import annotation
from gpuward.policy.clusterpolicy import ActivePolicy, ClusterPolicyReader
from gpuward.policy.edits import Edits
from gpuward.policy.moving import nobodys_that_move, with_unsettled
from gpuward.policy.removing import gone_policies, paused_for_machines, removing, under
from gpuward.policy.rolloutpolicy import ActiveRollout
from gpuward.policy.typed import TypedOnce
from gpuward.policy.unmade import is_unmade, unless_unmade


class PoliciesInForce(msgspec.Struct, frozen=True):
    """Hold all NVIDIADrivers that are not being deleted, oldest first, and the ClusterPolicy that they are under."""

    policy: ActivePolicy
    active: tuple[ActiveDriver, ...] = ()
    in_force: bool = False
    """Whether drivers are theirs and not the ClusterPolicy's."""
    owners: Mapping[str, NodeOwner] = {}
    """Whose each node with GPUs should be, while drivers are theirs."""
    conflicts: Mapping[str, OwnerConflict] = {}
    overlaps: Mapping[str, OwnerConflict] = {}
    """The conflicts of those that could never be followed, which come once that is mended: till then they take no node, and are
    in nobody's way.
    """
    moving: frozenset[str] = frozenset()
    """Nodes of nobody that are about to get an owner, or to lose one that is gone: what becomes of them is open until then."""
    known: bool = True
    """False while they cannot be listed."""
    going: tuple[ActiveDriver, ...] = ()
    """Those that are being deleted with their drivers, and still there: their nodes go from them within their limits."""
    departed: tuple[ActiveDriver, ...] = ()
    """Those that are gone as they were seen last, which may be news to their DaemonSets."""
    gone: tuple[UpgradePolicy, ...] = ()
    """Those of NVIDIADrivers that are gone, by which their drivers go."""
    unjudged: frozenset[str] = frozenset()
    """Those that are gone, and of which it shows within seconds whether their drivers go."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Return what they say about nodes."""
        return tuple(each.claim for each in self.active)

    @property
    def placing(self) -> Placing | None:
        """Return what decides where nodes' drivers come from; None where that is the same for all, or not known now."""
        if self.in_force:
            claims = tuple(map(self._claim, self.active))
            departing = frozenset({*(each.view.name for each in self.going), *(each.driver for each in self.gone)})
            return Placing(claims, stays=self.policy.valid is None, departing=departing) if self.known else None
        valid = self.policy.valid
        return Placing(precompiled=True) if valid is not None and valid.spec.driver.makes_precompiled else None

    @property
    def upgrades(self) -> tuple[UpgradePolicy, ...]:
        """Return the upgrade policies in force: no two of them are about the same node."""
        if not self.in_force:
            return (self._placed(self._own()),)
        gone = (self._placed(under(each, self.policy)) for each in self.gone)
        going = (msgspec.structs.replace(self._upgrades(each), going=True) for each in self.going)
        return (*map(self._upgrades, self.active), *going, *gone, self._unowned())

    def as_decided_on(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot as upgrades are decided on it: about nodes whose owner is about to change nothing is."""
        return with_unsettled(snapshot, self.moving) if self.moving else snapshot

    def upgrades_of(self, node: NodeView | None) -> UpgradePolicy:
        """Return the upgrade policy that a node's driver is a matter of."""
        owner = node.labels.get(names.DRIVER_OWNER, "") if node is not None else ""
        hosts = {claim.name for claim in self.claims if claim.is_for_hosts}
        found = (each for each in self.upgrades if owner and owner not in hosts and each.driver == owner)
        return next(found, None) or (self._unowned() if self.in_force else self._placed(self._own()))

    def _claim(self, driver: ActiveDriver) -> Claim:
        conflict, claim = self.conflicts.get(driver.view.name), driver.claim
        refused = bool(driver.problems) or is_unmade(driver.view)
        return msgspec.structs.replace(claim, able=claim.able and not (conflict or refused), conflict=conflict, refused=refused)

    def _unowned(self) -> UpgradePolicy:
        return self._placed(msgspec.structs.replace(
            self.policy.upgrades, auto_upgrade=False, unowned=True, switches=Switches(), unjudged=self.unjudged))

    def _own(self) -> UpgradePolicy:
        view, upgrades = self.policy.view, self.policy.upgrades
        if self.in_force or view is None:
            return upgrades
        return unless_unmade(removing(upgrades) if upgrades.off else upgrades, view, "ClusterPolicy")

    def _placed(self, upgrades: UpgradePolicy) -> UpgradePolicy:
        """Add what decides where drivers come from, and what nodes are for, unless it is known already, as from a recording."""
        if upgrades.placing is not None:
            return upgrades
        return msgspec.structs.replace(upgrades, placing=self.placing, workloads=upgrades.workloads or self.policy.workloads)

    def _upgrades(self, driver: ActiveDriver) -> UpgradePolicy:
        """Start nothing where a conflict leaves open whose nodes are whose, or where the ClusterPolicy is invalid or gone.

        Whoever resumes the ClusterPolicy's rollout resumes those of all NVIDIADrivers.
        """
        rollout = driver.upgrades.rollout
        resumed = max(rollout.resumed_at, self.policy.upgrades.rollout.resumed_at)
        upgrades = msgspec.structs.replace(driver.upgrades, rollout=msgspec.structs.replace(rollout, resumed_at=resumed))
        if self.policy.problems and self.policy.view is not None:
            upgrades = msgspec.structs.replace(upgrades, admit=False, invalid=f"ClusterPolicy {self.policy.view.name}")
        upgrades = paused_for_machines(upgrades, self.policy)
        if absent := self.policy.upgrades.absent:
            upgrades = msgspec.structs.replace(upgrades, auto_upgrade=False, absent=absent)
        if (name := driver.view.name) in self.conflicts:
            upgrades = msgspec.structs.replace(upgrades, admit=False, invalid=upgrades.invalid or f"NVIDIADriver {name}")
        return self._placed(unless_unmade(upgrades, driver.view, "NVIDIADriver"))


class _Owners:
    """Judge whose nodes are, anew only for nodes that have changed."""

    def __init__(self) -> None:
        self._claims: tuple[Claim, ...] = ()
        self._known: dict[str, tuple[NodeView, NodeOwner]] = {}

    def judge(self, nodes: Mapping[str, NodeView], claims: tuple[Claim, ...]) -> dict[str, NodeOwner]:
        """Return whose each node with GPUs should be."""
        before = self._known if claims == self._claims else {}
        self._claims, self._known = claims, {}
        for name, node in nodes.items():
            if node.gpu_present:
                known = before.get(name)
                if known is None or known[0] is not node:
                    known = node, owner_of(name, node.labels, claims)
                self._known[name] = known
        return {name: owner for name, (_, owner) in self._known.items()}


class PolicyReader:
    """Read the policies of snapshots, decoding each version of each spec once. With a clock it notes when people edit them."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._edits = Edits(now) if now is not None else None
        self._cluster_policies = ClusterPolicyReader()
        self._owners, self._wanted = _Owners(), _Owners()
        self._typed = TypedOnce(NVIDIADriver, validate.nvidia_driver)
        self._read: dict[tuple[object, ...], ActiveDriver] = {}
        self._last: tuple[Snapshot, PoliciesInForce] | None = None

    def read(self, snapshot: Snapshot) -> PoliciesInForce:
        """Return the policies in force in a snapshot: the same object for the same snapshot."""
        if self._last is None or self._last[0] is not snapshot:
            self._last = (snapshot, self._look(snapshot))
        return self._last[1]

    def _look(self, snapshot: Snapshot) -> PoliciesInForce:
        policy = self._cluster_policies.read(snapshot)
        if self._edits is not None:
            policy = self._edits.noted(policy, "spec", "driver")
        before, self._read = self._read, {}
        every = tuple(self._driver(view, policy.rollout, before) for view in snapshot.drivers)
        active = tuple(self._edits.noted(each, "spec") if self._edits is not None else each
                       for each in every if not each.view.deleting)
        known = "NVIDIADriver" not in snapshot.unlisted
        departed = tuple(self._driver(view, policy.rollout, before) for view in snapshot.departed)
        self._typed.forget_all_but((*snapshot.drivers, *snapshot.departed))
        if not _are_in_force(policy, snapshot):
            return PoliciesInForce(policy, active, known=known, departed=departed)
        claims = tuple(each.claim for each in active)
        owners = self._owners.judge(snapshot.nodes, claims)
        moving = nobodys_that_move(owners, snapshot, Placing(claims)) if policy.valid is not None else frozenset()
        going = tuple(each for each in every if each.view.deleting and not each.view.leaves_behind)
        gone = gone_policies(snapshot, policy.rollout)
        overlaps = self._overlaps(snapshot, active)
        return PoliciesInForce(
            policy, active, True, owners, conflicts(owners.values(), claims), overlaps, moving, known, going, departed, gone,
            unjudged_departures(snapshot) - {each.driver for each in gone})

    def _overlaps(self, snapshot: Snapshot, active: tuple[ActiveDriver, ...]) -> Mapping[str, OwnerConflict]:
        wanted = tuple(each.wanted for each in active)
        never = {each.view.name for each, claim in zip(active, wanted, strict=True) if claim is not each.claim}
        if not never:
            return {}
        found = conflicts(self._wanted.judge(snapshot.nodes, wanted).values(), wanted)
        return {name: conflict for name, conflict in found.items() if name in never}

    def _driver(
        self, view: PolicyView, rollout: ActiveRollout, before: Mapping[tuple[object, ...], ActiveDriver]
    ) -> ActiveDriver:
        keys = (names.VALID_UPGRADE_POLICY, names.VALID_SPEC, names.RESUMED_AT, names.PAUSED_AT)
        notes = (annotation(view.body, key) for key in keys)
        key = (view.uid, view.generation, *notes, *words.notes(view.body), rollout.key)
        found = before.get(key) or read_driver(view, self._typed.read(view), rollout)
        self._read[key] = found
        return found if found.view == view else msgspec.structs.replace(found, view=view)


def _are_in_force(policy: ActivePolicy, snapshot: Snapshot) -> bool:
    """Tell whether drivers are those of NVIDIADrivers.

    While the ClusterPolicy is invalid it goes by what the last valid one said and, if that is unknown, by whose drivers run.
    """
    if policy.view is None:
        return bool(snapshot.drivers)
    if policy.valid is not None:
        return policy.valid.spec.driver.is_left_to_nvidia_drivers
    if policy.last_labels is not None:
        return policy.last_labels.left_to_drivers
    owners = {ds.owner.kind for ds in driver_daemonsets(snapshot) if ds.owner is not None}
    return "NVIDIADriver" in owners and "ClusterPolicy" not in owners
