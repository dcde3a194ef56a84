"""What the policies in force refer to, and the operator has to look up."""

from __future__ import annotations

import msgspec

from gpuward.operands.facts import mounted_config_maps, referenced_config_maps, referenced_secrets
from gpuward.operands.nvidiadriver.render import referenced
from gpuward.policy.nvidiadrivers import PoliciesInForce


class ReferencedNames(msgspec.Struct, frozen=True):
    """Hold which versions of which custom resources refer to what."""

    versions: frozenset[tuple[str, int]] = frozenset()
    config_maps: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    place: bool = False
    """Whether the operator's namespace matters."""


def wanted_by(drivers: PoliciesInForce) -> ReferencedNames:
    """Return what the ClusterPolicy in force, and the NVIDIADrivers if drivers are theirs, refer to."""
    active = drivers.policy
    versions, maps, secrets = set(), frozenset[str](), frozenset[str]()
    if active.view is not None and (policy := active.followed or active.policy) is not None:
        versions.add((active.view.uid, active.view.generation))
        spec = policy.spec
        maps, secrets = referenced_config_maps(spec) | mounted_config_maps(spec).keys(), referenced_secrets(spec)
    for each in drivers.active if drivers.in_force else ():
        if (driver := each.followed or each.driver) is not None:
            versions.add((each.view.uid, each.view.generation))
            more_maps, more_secrets = referenced(driver.spec)
            maps, secrets = maps | more_maps, secrets | more_secrets
    return ReferencedNames(frozenset(versions), maps, secrets, active.valid is not None and active.valid.spec.psa.is_enabled)
