"""What helps nodes to which no NVIDIADriver can bring a driver: to have one select them, to part those that are in each other's
way, or to correct the one that cannot be followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from shlex import quote

import msgspec

from gpuward.model.owners import Claim, NoOwner, OwnedBy, OwnerConflict, owner_of
from gpuward.model.unserved import DriverRefused, WrongDriverType
from gpuward.upgrade.remedies import fixes
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix
from gpuward.upgrade.remedies.policy_fixes import as_json
from gpuward.upgrade.remedies.question import Candidate, Question
from gpuward.upgrade.remedies.whose import (
    IN_QUESTION,
    After,
    after,
    claims_of,
    counted,
    evicts,
    judged,
    owner_named,
    owners_of,
)

replace = msgspec.structs.replace


def be_selected(question: Question) -> Iterator[Candidate]:
    """Label a node such that an NVIDIADriver for containers selects it; first see to those that select no node at all, as by a
    typing error.
    """
    placing = question.case.policy.placing
    claims = placing.claims or () if placing is not None else ()
    nodes = question.case.snapshot.nodes.values()
    for claim in claims:
        if claim.able and claim.valid and not (claim.default or claim.is_for_hosts) and not any(
                claim.selects(node.labels) for node in nodes):
            yield _widened(question, claim)
    yield from _by_label(question)


def _by_label(question: Question) -> Iterator[Fix]:
    placing = question.case.policy.placing
    for claim in placing.claims or () if placing is not None else ():
        lacking = {key: value for key, value in claim.selector.items() if question.view.labels.get(key) != value}
        if claim.able and claim.valid and not (claim.default or claim.is_for_hosts) and all(map(_is_peoples, lacking)):
            yield fixes.label_node_with(question.view, lacking, f"label the node such that NVIDIADriver {claim.name} selects it")


def _widened(question: Question, claim: Claim) -> Fix:
    wants = ", ".join(f"{key}={value}" for key, value in sorted(claim.selector.items()))
    its = dict(question.view.labels)
    claims = tuple(replace(each, selector=its) if each.name == claim.name else each for each in claims_of(question.case))
    return Fix(f"correct spec.nodeSelector of NVIDIADriver {claim.name}: it wants {wants}, which no node has",
               lambda case: _admitting(case, claims), f"kubectl edit nvidiadriver {quote(claim.name)}")


def be_rightly_selected(question: Question) -> Iterator[Candidate]:
    """Let an NVIDIADriver for containers have the node: another one, or the default once the one for hosts does not select it."""
    yield from _by_label(question)
    what, placing = question.hold.what, question.case.policy.placing
    claim = placing.claim(what.driver) if placing is not None and isinstance(what, WrongDriverType) else None
    if claim is not None:
        do = f"remove the label by which NVIDIADriver {claim.name} selects the node"
        yield from (fixes.label_node(question.view, key, None, do) for key in claim.selector if _is_peoples(key))


def _is_peoples(label: str) -> bool:
    """Tell whether people set a label, and not Kubernetes or what discovers what a node has."""
    domain = f".{label.partition('/')[0]}" if "/" in label else ""
    return not domain.endswith((".nvidia.com", ".kubernetes.io", ".k8s.io", ".gpuward.io"))


def follow_driver(question: Question) -> Iterator[Candidate]:
    """Return what lets the NVIDIADriver of a node be followed."""
    what = question.hold.what
    if not isinstance(what, DriverRefused):
        return
    if what.conflict is None:
        yield _correct(what.driver)
        return
    yield from _part(question, what.conflict)


def _part(question: Question, conflict: OwnerConflict) -> Iterator[Fix]:
    """Return each way out; where the one that has the node then could not be followed either, with what it lacks besides."""
    for fix in _ways(question, conflict):
        later = claims_of(fix.change(question.case))
        owner = owner_of(question.view.name, question.view.labels, later)
        refused = isinstance(owner, OwnedBy) and any(each.name == owner.name and each.refused for each in later)
        yield fix.followed_by(_correct(owner.name)) if refused and isinstance(owner, OwnedBy) else fix


def _correct(driver: str) -> Fix:
    named = quote(driver)
    return Fix(f"correct NVIDIADriver {driver}: its condition names the field", partial(_corrected, name=driver),
               f"kubectl edit nvidiadriver {named}", looks=(f"kubectl describe nvidiadriver {named}",))


def _ways(question: Question, conflict: OwnerConflict) -> Iterator[Fix]:
    """Part those that are in each other's way: narrow one, make one the default, or delete one."""
    labels, found = question.view.labels, _connected(question, conflict)
    everybody = sorted({name for each in found for name in each.names})
    for name in everybody:
        others = " or ".join(sorted({other for each in found if name in each.names for other in each.names} - {name}))
        do = (f"let spec.nodeSelector of NVIDIADriver {name} select no node that {others} selects" if conflict.node
              else f"give NVIDIADriver {name} a spec.nodeSelector in place of spec.default")
        yield Fix(do, partial(_parted, name=name, labels=labels), f"kubectl edit nvidiadriver {quote(name)}")
    for name in everybody if conflict.node else ():
        yield _make_default(question, name)
    for name in everybody:
        yield _delete(question, name)


def _connected(question: Question, conflict: OwnerConflict) -> list[OwnerConflict]:
    """Return a conflict and all those, on whichever nodes, by which the same NVIDIADrivers cannot be followed."""
    every = {owner for _, owner in owners_of(question.case, claims_of(question.case)) if isinstance(owner, OwnerConflict)}
    found, names = [conflict], {*conflict.names}
    while more := [each for each in every if each not in found and not names.isdisjoint(each.names)]:
        found += more
        names.update(name for each in more for name in each.names)
    return found


def _make_default(question: Question, name: str) -> Fix:
    """Make an NVIDIADriver the default, and say which nodes become its own by that."""
    change, case = partial(_as_default, name=name), question.case
    patch = as_json({"spec": {"default": True, "nodeSelector": None}})
    found = after(case, change)
    told, taken = _then_have(found, case), [each for each in found if isinstance(each.before, NoOwner) and each.key == name]
    if taken:
        told += f"; of the nodes that no NVIDIADriver selects now, {counted(taken, case, drivers=True)}"
    emptied = any(evicts(each, case, None) for each in taken)
    risk = "pods that use the GPUs of nodes that no NVIDIADriver selects now are evicted, node after node" if emptied else ""
    return Fix(f"make NVIDIADriver {name} the default, without a nodeSelector", change,
               f"kubectl patch nvidiadriver {quote(name)} --type merge -p '{patch}'", risk, alone=told)


def _delete(question: Question, name: str) -> Fix:
    """Delete an NVIDIADriver, and say what becomes of its nodes that are not in question."""
    change, case = partial(_deleted, name=name), question.case
    found = after(case, change)
    told = _then_have(found, case)
    others = [each for each in found if isinstance(each.before, OwnedBy) and each.before.name == name]
    if others:
        told += f"; of its other nodes, {counted(others, case, drivers=True)}"
    claim = next((each for each in claims_of(case) if each.name == name), None)
    risk = f"what it says is lost: kubectl get nvidiadriver {quote(name)} -o yaml shows it"
    emptied = any(evicts(each, case, claim) for each in others)
    risk += "; pods that use the GPUs of its other nodes are evicted, node after node" if emptied else ""
    return Fix(f"delete NVIDIADriver {name}", change, f"kubectl delete nvidiadriver {quote(name)}", risk, alone=told)


def _then_have(found: list[After], case: DecisionFacts) -> str:
    """Say who has the nodes that are in question."""
    asked = [each for each in found if isinstance(each.before, OwnerConflict)]
    nodes, owners = f"the {len(asked)} nodes" if len(asked) > 1 else "the node", {each.key for each in asked}
    if len(owners) == 1 and (only := next(iter(owners))) and only != IN_QUESTION:
        claim = asked[0].claim
        return f"{owner_named(only, hosts=claim is not None and claim.is_for_hosts)} then has {nodes} in question"
    return f"of {nodes} in question, {counted(asked, case)}"


def _as_default(case: DecisionFacts, name: str) -> DecisionFacts:
    changed = tuple(replace(each, default=True, selector={}) if each.name == name else each for each in claims_of(case))
    return _admitting(case, _judged(case, changed))


def _deleted(case: DecisionFacts, name: str) -> DecisionFacts:
    return _admitting(case, _judged(case, tuple(each for each in claims_of(case) if each.name != name)))


def _judged(case: DecisionFacts, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Return claims with the conflicts that they have on the nodes as these are."""
    found = judged(case, claims)
    return tuple(replace(each, able=not (each.name in found or each.refused) and (each.able or each.conflict is not None),
                         conflict=found.get(each.name)) for each in claims)


def _parted(case: DecisionFacts, name: str, labels: Mapping[str, str]) -> DecisionFacts:
    """Return the facts where an NVIDIADriver is in no other's way: a node that others select too is theirs."""
    claims = claims_of(case)
    rest = tuple(each for each in claims if each.name != name)
    others = any(each.selects(labels) or (each.default and each.valid) for each in rest)
    its = () if others else (replace(each, able=not each.refused, conflict=None) for each in claims if each.name == name)
    return _admitting(case, (*_judged(case, rest), *its))


def _corrected(case: DecisionFacts, name: str) -> DecisionFacts:
    claims = claims_of(case)
    return _admitting(case, tuple(replace(each, able=each.conflict is None, valid=True, refused=False) if each.name == name
                                  else each for each in claims))


def _admitting(case: DecisionFacts, claims: tuple[Claim, ...]) -> DecisionFacts:
    policy = case.policy
    placing = replace(policy.placing, claims=claims) if policy.placing is not None else None
    if policy.invalid == f"NVIDIADriver {policy.driver}" and all(each.able for each in claims if each.name == policy.driver):
        policy = replace(policy, admit=True, invalid="")
    return replace(case, policy=replace(policy, placing=placing))
