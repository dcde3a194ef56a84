"""One NVIDIADriver: what it asks for, what is wrong with it, and what it says about nodes."""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.crd import validate
from gpuward.crd.conversion import NVIDIA_DRIVER_FIELD, upgrade_policy
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.errors import PolicyError
from gpuward.model.owners import Claim
from gpuward.model.policy import UpgradePolicy
from gpuward.model.views import PolicyView
from gpuward.policy.annotated import annotation
from gpuward.policy.asked import asked_by
from gpuward.policy.kept import KeptSettings, kept, kept_problems
from gpuward.policy.lastvalid import last_valid
from gpuward.policy.pausing import switched_off
from gpuward.policy.rolloutpolicy import ActiveRollout, governed, resumed_at
from gpuward.policy.typed import Typed
from gpuward.policy.words import with_words

_SELECTOR_FIELD = "spec.nodeSelector"
_CLAIMED_BY = (_SELECTOR_FIELD, "metadata.name")


class ActiveDriver(msgspec.Struct, frozen=True):
    """Hold one NVIDIADriver. Without a `driver` it cannot be decoded; `problems` say why it cannot be followed."""

    view: PolicyView
    driver: NVIDIADriver | None
    problems: tuple[PolicyError, ...]
    claim: Claim
    upgrades: UpgradePolicy
    resume_problem: PolicyError | None = None
    """Why an annotation that resumes its rollout, approves of it or aborts it says nothing."""
    last: NVIDIADriver | None = None
    """The last valid version, while it cannot be followed and remembers it."""

    @property
    def valid(self) -> NVIDIADriver | None:
        """Return the NVIDIADriver if it can be followed as it is."""
        return None if self.problems else self.driver

    @property
    def followed(self) -> NVIDIADriver | None:
        """Return the version by which nodes that join get their driver: this one, or else the last valid one."""
        return self.valid or self.last

    @property
    def wanted(self) -> Claim:
        """Return the claim that it would have if only what is wrong with it were right, as far as that can be read."""
        if self.claim.valid or self.driver is None or any(each.field.startswith(_CLAIMED_BY) for each in self.problems):
            return self.claim
        spec = self.driver.spec
        return msgspec.structs.replace(self.claim, selector=spec.node_selector, default=spec.default, valid=True)

    @property
    def is_misplaced(self) -> bool:
        """Tell whether what is wrong is how it chooses its nodes."""
        return any(problem.field.startswith(_SELECTOR_FIELD) for problem in self.problems)


def read_driver(view: PolicyView, typed: Typed[NVIDIADriver], rollout: ActiveRollout) -> ActiveDriver:
    """Return an NVIDIADriver under a RolloutPolicy."""
    driver, problems = typed
    last, valid = kept(view.body), None
    if driver is None or problems:
        valid = last_valid(view.body, NVIDIADriver, validate.nvidia_driver)
        upgrades = msgspec.structs.replace(last.upgrades, admit=False, invalid=f"NVIDIADriver {view.name}")
        problems = (*problems, *kept_problems(view.body))
    else:
        upgrades = upgrade_policy(driver.spec.upgrade_policy, NVIDIA_DRIVER_FIELD)
    resumed, problem = 0.0, None
    try:
        resumed = resumed_at(annotation(view.body, names.RESUMED_AT))
    except PolicyError as error:
        problem = error
    upgrades = governed(upgrades, rollout, last.upgrades.rollout, resumed)
    settings, unread = with_words(upgrades.rollout, view.body)
    upgrades = msgspec.structs.replace(upgrades, driver=view.name, rollout=settings, asked=asked_by(view.body, "spec"))
    if not upgrades.auto_upgrade:
        upgrades = msgspec.structs.replace(upgrades, switches=switched_off(view, "NVIDIADriver"))
    return ActiveDriver(view, driver, problems, _claim(view, driver, problems, last, valid), upgrades, problem or unread, valid)


def _claim(view: PolicyView, driver: NVIDIADriver | None, problems: tuple[PolicyError, ...], last: KeptSettings,
           valid: NVIDIADriver | None) -> Claim:
    """Return the claim on nodes: while the NVIDIADriver cannot be followed, the last one that could be.

    One that never could be takes no node, and keeps those that it has. Where an earlier gpuward remembered that it could,
    but no claim, that of the spec holds.
    """
    known = valid or driver
    precompiled = known is not None and known.spec.is_precompiled
    kept_type = last.claim.driver_type if last.claim is not None else ""
    driver_type = known.spec.driver_type if known is not None else kept_type
    if driver is not None and not problems:
        spec = driver.spec
        auto = spec.upgrade_policy.auto_upgrade
        return Claim(view.name, spec.node_selector, spec.default, auto, precompiled=precompiled, driver_type=driver_type)
    auto = last.upgrades.auto_upgrade
    if last.claim is not None:
        return Claim(view.name, last.claim.selector, last.claim.default, auto, able=False, precompiled=precompiled,
                     driver_type=driver_type)
    misplaced = any(problem.field.startswith(_CLAIMED_BY) for problem in problems)
    if last.version != 1 or driver is None or misplaced:
        return Claim(view.name, auto_upgrade=auto, valid=False, driver_type=driver_type)
    return Claim(view.name, driver.spec.node_selector, driver.spec.default, auto, able=False, precompiled=precompiled,
                 driver_type=driver_type)
