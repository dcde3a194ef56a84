"""From the upgrade settings as people write them to the policy that the upgrade decision follows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from gpuward.errors import PolicyError
from gpuward.model import policy as model
from gpuward.model.selectors import is_selector

if TYPE_CHECKING:
    from gpuward.crd.driver_upgrade import DriverUpgradePolicy

CLUSTER_POLICY_FIELD: Final = "spec.driver.upgradePolicy"
NVIDIA_DRIVER_FIELD: Final = "spec.upgradePolicy"

_PERCENT: Final = re.compile(r"[0-9]{1,9}%")


def upgrade_policy(spec: DriverUpgradePolicy, field: str = CLUSTER_POLICY_FIELD) -> model.UpgradePolicy:
    """Return the policy for the upgrade decision; `field` is where the settings are, for messages.

    Raises:
        PolicyError: a setting cannot be followed; the first one if there are several, see `upgrade_problems`.
    """
    for problem in upgrade_problems(spec, field):
        raise problem
    return model.UpgradePolicy(
        auto_upgrade=spec.auto_upgrade,
        max_parallel_upgrades=spec.max_parallel_upgrades,
        max_unavailable=max_unavailable(spec.max_unavailable, f"{field}.maxUnavailable"),
        wait_for_completion=model.JobSettings(**msgspec.structs.asdict(spec.wait_for_completion)),
        pod_deletion=model.PodDeletionSettings(**msgspec.structs.asdict(spec.pod_deletion)),
        drain=model.DrainSettings(**msgspec.structs.asdict(spec.drain)),
    )


def upgrade_problems(spec: DriverUpgradePolicy, field: str) -> list[PolicyError]:
    """Return every setting that cannot be followed, also of parts that are switched off at the moment."""
    problems = []
    try:
        max_unavailable(spec.max_unavailable, f"{field}.maxUnavailable")
    except PolicyError as problem:
        problems.append(problem)
    for part, selector in (("waitForCompletion", spec.wait_for_completion.pod_selector),
                           ("drain", spec.drain.pod_selector)):
        if not is_selector(selector):
            fix = "write a label selector such as app=training,tier in (batch,low)"
            problems.append(PolicyError(f"{field}.{part}.podSelector", selector, fix))
    return problems


def max_unavailable(value: int | str, field: str) -> model.MaxUnavailable:
    """Read a number of nodes or a percentage, by the rules of Kubernetes' IntOrString: a number has no quotes.

    Raises:
        PolicyError: it is neither.
    """
    if isinstance(value, int) and value >= 0:
        return model.MaxUnavailable(count=value)
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        return model.MaxUnavailable(percent=int(value[:-1]))
    fix = 'write a number of nodes without quotes, such as 1, or a percentage, such as "25%"'
    raise PolicyError(field, value, fix)
