"""What helps nodes whose NVIDIADriver cannot be followed: to part those that are in each other's way, or to correct the one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from shlex import quote

import msgspec

from gpuward.model.owners import Claim, OwnerConflict
from gpuward.model.unserved import DriverRefused
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix
from gpuward.upgrade.remedies.question import Candidate, Question

replace = msgspec.structs.replace


def follow_driver(question: Question) -> Iterator[Candidate]:
    """Return what lets the NVIDIADriver of a node be followed."""
    what, node = question.hold.what, question.view
    if not isinstance(what, DriverRefused):
        return
    if what.conflict is None:
        driver = quote(what.driver)
        yield Fix(f"correct NVIDIADriver {what.driver}: its condition names the field", partial(_corrected, name=what.driver),
                  f"kubectl edit nvidiadriver {driver}", looks=(f"kubectl describe nvidiadriver {driver}",))
        return
    for name in what.conflict.names:
        others = [each for each in what.conflict.names if each != name]
        do = (f"let spec.nodeSelector of NVIDIADriver {name} select no node that {' or '.join(others)} selects"
              if what.conflict.node else f"give NVIDIADriver {name} a spec.nodeSelector in place of spec.default")
        yield Fix(do, partial(_parted, name=name, labels=node.labels), f"kubectl edit nvidiadriver {quote(name)}")


def _parted(case: DecisionFacts, name: str, labels: Mapping[str, str]) -> DecisionFacts:
    """Return the facts where an NVIDIADriver is in no other's way: a node that others select too is theirs."""
    placing = case.policy.placing
    if placing is None or placing.claims is None:
        return case
    claims = [_without(each, name) for each in placing.claims]
    others = any(each.name != name and (each.selects(labels) or (each.default and each.valid)) for each in claims)
    left = tuple(each for each in claims if each.name != name or not others)
    return _admitting(case, left)


def _without(claim: Claim, name: str) -> Claim:
    if claim.conflict is None or name not in claim.conflict.names:
        return claim
    left = tuple(each for each in claim.conflict.names if each != name)
    apart = claim.name == name or not left[1:]
    return replace(claim, able=apart, conflict=None if apart else OwnerConflict(left, claim.conflict.node))


def _corrected(case: DecisionFacts, name: str) -> DecisionFacts:
    claims = (case.policy.placing.claims if case.policy.placing is not None else None) or ()
    return _admitting(case, tuple(replace(each, able=True, valid=True) if each.name == name else each for each in claims))


def _admitting(case: DecisionFacts, claims: tuple[Claim, ...]) -> DecisionFacts:
    policy = case.policy
    placing = replace(policy.placing, claims=claims) if policy.placing is not None else None
    if policy.invalid == f"NVIDIADriver {policy.driver}" and all(each.able for each in claims if each.name == policy.driver):
        policy = replace(policy, admit=True, invalid="")
    return replace(case, policy=replace(policy, placing=placing))
