"""What outlives an invalid edit: the last upgrade policy, label settings and claim that could be followed, in an annotation.

The annotation is JSON: the fields of the upgrade policy, as the first version had nothing else, and beside them version and rest.
Anybody may edit it: what makes no sense counts as if it were not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_args

import msgspec

from gpuward import names
from gpuward.crd.nvidiadriver import DriverType
from gpuward.errors import PolicyError
from gpuward.labels.policy import LabelSettings
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import RolloutSettings
from gpuward.model.selectors import is_label_key, is_label_value, is_selector
from gpuward.model.switches import Switches
from gpuward.policy.annotated import annotation

VERSION: Final = 2
"""The version that is written. One had the upgrade policy alone; what a later one adds is not read here."""
LONGEST: Final = 32_768
"""Characters of an annotation that are read: ours has some 1,000."""
SHOWN: Final = 60
"""Characters that are shown of one that cannot be read."""
MOST: Final = 10_000_000_000
"""The largest number that makes sense, as a number of nodes, of seconds, or as a time."""


class KeptClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """Hold which nodes an NVIDIADriver was for."""

    selector: Mapping[str, str] = {}
    default: bool = False
    driver_type: str = ""
    """Empty where an earlier version of gpuward remembered it, too."""


class KeptSettings(msgspec.Struct, frozen=True):
    """Hold what a custom resource remembers of its last valid version; nothing of what it does not remember."""

    upgrades: UpgradePolicy = UpgradePolicy(auto_upgrade=True)
    """Without a memory one under which nodes in progress can finish."""
    labels: LabelSettings | None = None
    """Of a ClusterPolicy."""
    claim: KeptClaim | None = None
    """Of an NVIDIADriver."""
    version: int = 0
    """Which version of the annotation this was read from; 0 for none."""


class _Rest(msgspec.Struct, frozen=True):
    auto_upgrade: bool
    """Every version has it: what lacks it is not ours."""
    version: int = 1
    labels: msgspec.Raw = msgspec.Raw()
    claim: msgspec.Raw = msgspec.Raw()


def remember(upgrades: UpgradePolicy, *, labels: LabelSettings | None = None, claim: KeptClaim | None = None) -> str:
    """Return the annotation in which valid settings outlive an invalid edit of their custom resource or of the RolloutPolicy."""
    usual = RolloutSettings()
    settings = msgspec.structs.replace(
        upgrades.rollout, resumed_at=usual.resumed_at, waves=usual.waves, growth=usual.growth, approved=None, promoted=None,
        aborted=None, approved_plan=None, analysis=usual.analysis,
        begun=usual.begun)  # nothing starts while the settings cannot be followed
    valid = msgspec.structs.replace(
        upgrades, admit=True, invalid="", absent="", asked="", edited=0.0, rollout=settings, placing=None, workloads=None,
        switches=Switches())
    stored = msgspec.to_builtins(valid, str_keys=True)
    del stored["edited"]
    rest = {key: one for key, one in (("labels", labels), ("claim", claim)) if one is not None}
    return msgspec.json.encode(stored | {"version": VERSION} | rest).decode()


def kept(body: Mapping[str, Any]) -> KeptSettings:
    """Return what a custom resource remembers."""
    text = annotation(body, names.VALID_UPGRADE_POLICY)[:LONGEST]
    upgrades, rest = _decoded(text, UpgradePolicy), _decoded(text, _Rest)
    if upgrades is None or rest is None or not _makes_sense(upgrades):
        return KeptSettings()
    if rest.version != VERSION:
        return KeptSettings(upgrades, version=rest.version)
    return KeptSettings(upgrades, _labels(rest.labels), _claim(rest.claim), VERSION)


def kept_problems(body: Mapping[str, Any]) -> tuple[PolicyError, ...]:
    """Return why what a custom resource remembers cannot be read, where it remembers something."""
    text = annotation(body, names.VALID_UPGRADE_POLICY)
    if not text or kept(body).version:
        return ()
    fix = "remove it: nothing in it makes sense, and nodes in progress finish under the default upgrade policy"
    return (PolicyError(f"metadata.annotations['{names.VALID_UPGRADE_POLICY}']", text[:SHOWN], fix),)


T = TypeVar("T")


def _decoded(text: str | msgspec.Raw, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def _labels(raw: msgspec.Raw) -> LabelSettings | None:
    found = _decoded(raw, LabelSettings)
    return found if found is not None and is_label_value(found.default_mig_config) else None


def _claim(raw: msgspec.Raw) -> KeptClaim | None:
    found = _decoded(raw, KeptClaim)
    if found is None or (found.default and found.selector) or names.DRIVER_OWNER in found.selector:
        return None
    fine = all(is_label_key(key) and is_label_value(value) for key, value in found.selector.items())
    known = found.driver_type if found.driver_type in get_args(DriverType) else ""
    return msgspec.structs.replace(found, driver_type=known) if fine else None


def _makes_sense(upgrades: UpgradePolicy) -> bool:
    selectors = upgrades.wait_for_completion.pod_selector, upgrades.drain.pod_selector
    return all(map(is_selector, selectors)) and _in_bounds(msgspec.to_builtins(upgrades, str_keys=True))


def _in_bounds(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_in_bounds, value.values()))
    return not isinstance(value, int | float) or 0 <= value <= MOST
