"""The ClusterPolicy in force, typed; what is wrong with it; and the upgrade policy that follows from it and the RolloutPolicy."""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.crd import validate
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.conversion import upgrade_policy
from gpuward.errors import PolicyError
from gpuward.labels.policy import LabelSettings, label_policy, remembered_policy
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.switches import Switches
from gpuward.model.views import PolicyView
from gpuward.model.workloads import Workloads
from gpuward.policy.annotated import annotation
from gpuward.policy.asked import asked_by
from gpuward.policy.kept import kept, kept_problems
from gpuward.policy.lastvalid import last_valid
from gpuward.policy.pausing import switched_off
from gpuward.policy.rolloutpolicy import ActiveRollout, RolloutReader, governed, resumed_at
from gpuward.policy.typed import Typed, TypedOnce
from gpuward.policy.words import notes, with_words


class ActivePolicy(msgspec.Struct, frozen=True):
    """Hold the policy in force. Without a `policy` there is none, or it cannot be decoded; `problems` say why."""

    view: PolicyView | None = None
    policy: ClusterPolicy | None = None
    problems: tuple[PolicyError, ...] = ()
    upgrades: UpgradePolicy = UpgradePolicy()
    rollout: ActiveRollout = ActiveRollout()
    last_labels: LabelSettings | None = None
    """What the last valid version said about node labels, while the policy in force cannot be followed."""
    last: ClusterPolicy | None = None
    """The last valid version, while the policy in force cannot be followed and remembers it."""
    resume_problem: PolicyError | None = None
    """Why an annotation that resumes a rollout, approves of it or aborts it says nothing: it counts as if it were not there."""

    @property
    def switched_off(self) -> bool:
        """Tell whether it can be followed and makes no drivers, which are not left to NVIDIADrivers either."""
        driver = self.valid.spec.driver if self.valid is not None else None
        return driver is not None and driver.is_off

    @property
    def manages_hosts(self) -> bool:
        """Tell whether it can be followed and brings the drivers of hosts of vGPUs by its own vGPU manager."""
        return self.valid is not None and self.valid.spec.has_vgpu_manager

    @property
    def workloads(self) -> Workloads | None:
        """Return what decides what nodes are for, also while the policy cannot be followed; None where nobody knows."""
        if self.valid is not None:
            return label_policy(self.valid).workloads
        return None if self.last_labels is None else remembered_policy(self.last_labels).workloads

    @property
    def valid(self) -> ClusterPolicy | None:
        """Return the policy if it can be followed as it is."""
        return None if self.problems else self.policy

    @property
    def followed(self) -> ClusterPolicy | None:
        """Return the policy by which nodes that join get their stack: the one in force, or else the last valid one."""
        return self.valid or self.last


class ClusterPolicyReader:
    """Read the active ClusterPolicy of snapshots, decoding each version of its spec once."""

    def __init__(self) -> None:
        self._typed = TypedOnce(ClusterPolicy, validate.cluster_policy)
        self._last: tuple[tuple[object, ...], ActivePolicy] | None = None
        self._rollouts = RolloutReader()

    def read(self, snapshot: Snapshot) -> ActivePolicy:
        """Return the policy in force: the oldest ClusterPolicy that is not being deleted. The others are ignored."""
        rollout = self._rollouts.read(snapshot)
        self._typed.forget_all_but(snapshot.policies)
        view = next((each for each in snapshot.policies if not each.deleting), None)
        if view is None:
            return ActivePolicy(rollout=rollout, upgrades=UpgradePolicy(absent=_absent(snapshot)))
        last, resumed = annotation(view.body, names.VALID_UPGRADE_POLICY), annotation(view.body, names.RESUMED_AT)
        key = (view.uid, view.generation, last, annotation(view.body, names.VALID_SPEC), resumed,
               annotation(view.body, names.PAUSED_AT), *notes(view.body), rollout.key)
        if self._last is None or self._last[0] != key:
            self._last = (key, _governed(_active(view, self._typed.read(view)), rollout))
        active = self._last[1]
        if active.view == view and active.rollout == rollout:
            return active
        return msgspec.structs.replace(active, view=view, rollout=rollout)


def _absent(snapshot: Snapshot) -> str:
    """Say why no ClusterPolicy is in force."""
    ending = next(iter(snapshot.policies), None)
    return f"ClusterPolicy {ending.name} is being deleted" if ending is not None else "there is no ClusterPolicy"


def _governed(active: ActivePolicy, rollout: ActiveRollout) -> ActivePolicy:
    """Return the policy with its upgrade policy completed by the RolloutPolicy and by when a rollout was resumed last."""
    assert active.view is not None
    body, resumed, problem = active.view.body, 0.0, None
    try:
        resumed = resumed_at(annotation(body, names.RESUMED_AT))
    except PolicyError as error:
        problem = error
    upgrades = governed(active.upgrades, rollout, kept(body).upgrades.rollout, resumed)
    settings, unread = with_words(upgrades.rollout, body)
    upgrades = msgspec.structs.replace(upgrades, rollout=settings, asked=asked_by(body, "spec", "driver"))
    upgrades = msgspec.structs.replace(upgrades, switches=_switches(active))
    return msgspec.structs.replace(active, upgrades=upgrades, rollout=rollout, resume_problem=problem or unread)


def _switches(active: ActivePolicy) -> Switches:
    if active.valid is None or active.view is None:
        return Switches()
    spec = active.valid.spec
    found = Switches() if spec.driver.upgrade_policy.auto_upgrade else switched_off(active.view, "ClusterPolicy")
    return msgspec.structs.replace(found, machines=active.view.name) if spec.sandbox_workloads.is_enabled else found


def _active(view: PolicyView, typed: Typed[ClusterPolicy]) -> ActivePolicy:
    policy, problems = typed
    if policy is None or problems:
        last = kept(view.body)
        upgrades = msgspec.structs.replace(last.upgrades, admit=False, invalid=f"ClusterPolicy {view.name}")
        valid = last_valid(view.body, ClusterPolicy, validate.cluster_policy)
        return ActivePolicy(view, policy, (*problems, *kept_problems(view.body)), upgrades, last_labels=last.labels, last=valid)
    return ActivePolicy(view, policy, (), _upgrades(policy))


def _upgrades(policy: ClusterPolicy) -> UpgradePolicy:
    """Return the upgrade policy; drivers of NVIDIADriver objects are not upgraded by it, nor any where there can be nodes for
    virtual machines, as with NVIDIA's operator.
    """
    spec = policy.spec
    upgrades = msgspec.structs.replace(upgrade_policy(spec.driver.upgrade_policy), off=spec.driver.is_off)
    if spec.driver.use_nvidia_driver_crd or spec.sandbox_workloads.is_enabled:
        return msgspec.structs.replace(upgrades, auto_upgrade=False)
    return upgrades

