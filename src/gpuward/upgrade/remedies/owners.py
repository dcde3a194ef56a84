"""What helps nodes to which no NVIDIADriver can bring a driver: to have one select them, to part those that are in each other's
way, or to correct the one that cannot be followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from shlex import quote

import msgspec

from gpuward.model.owners import Claim, NoOwner, OwnedBy, OwnerConflict, conflicts, name_of, owner_of
from gpuward.model.unserved import DriverRefused, WrongDriverType
from gpuward.upgrade.remedies import fixes
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix
from gpuward.upgrade.remedies.policy_fixes import as_json
from gpuward.upgrade.remedies.question import Candidate, Question

replace = msgspec.structs.replace


def be_selected(question: Question) -> Iterator[Candidate]:
    """Label a node such that an NVIDIADriver for containers selects it."""
    placing = question.case.policy.placing
    for claim in placing.claims or () if placing is not None else ():
        lacking = {key: value for key, value in claim.selector.items() if question.view.labels.get(key) != value}
        if claim.able and claim.valid and not (claim.default or claim.is_for_hosts) and all(map(_is_peoples, lacking)):
            yield fixes.label_node_with(question.view, lacking, f"label the node such that NVIDIADriver {claim.name} selects it")


def be_rightly_selected(question: Question) -> Iterator[Candidate]:
    """Let an NVIDIADriver for containers have the node: another one, or the default once the one for hosts does not select it."""
    yield from be_selected(question)
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
        driver = quote(what.driver)
        yield Fix(f"correct NVIDIADriver {what.driver}: its condition names the field", partial(_corrected, name=what.driver),
                  f"kubectl edit nvidiadriver {driver}", looks=(f"kubectl describe nvidiadriver {driver}",))
        return
    yield from _part(question, what.conflict)


def _part(question: Question, conflict: OwnerConflict) -> Iterator[Fix]:
    """Part those that are in each other's way: narrow one, make one the default, or delete one."""
    labels = question.view.labels
    for name in conflict.names:
        others = " or ".join(each for each in conflict.names if each != name)
        do = (f"let spec.nodeSelector of NVIDIADriver {name} select no node that {others} selects" if conflict.node
              else f"give NVIDIADriver {name} a spec.nodeSelector in place of spec.default")
        yield Fix(do, partial(_parted, name=name, labels=labels), f"kubectl edit nvidiadriver {quote(name)}")
    for name in conflict.names if conflict.node else ():
        change = partial(_as_default, name=name)
        patch = as_json({"spec": {"default": True, "nodeSelector": None}})
        do = f"make NVIDIADriver {name} the default, without a nodeSelector: {_then_have(_owners_after(question, change, ''))}"
        yield Fix(do, change, f"kubectl patch nvidiadriver {quote(name)} --type merge -p '{patch}'")
    for name in conflict.names:
        yield _delete(question, name)


def _delete(question: Question, name: str) -> Fix:
    """Delete an NVIDIADriver, and say what becomes of its nodes that are not in question."""
    change = partial(_deleted, name=name)
    do = f"delete NVIDIADriver {name}: {_then_have(_owners_after(question, change, ''))}"
    if others := _owners_after(question, change, name):
        do += f"; of its other nodes, {_counted(others)}, and their driver is replaced, or goes"
    risk = f"what it says is lost: kubectl get nvidiadriver {quote(name)} -o yaml shows it"
    evicts = "; pods that use the GPUs of its other nodes are evicted, node after node" if others else ""
    return Fix(do, change, f"kubectl delete nvidiadriver {quote(name)}", risk + evicts)


def _owners_after(question: Question, change: Callable[[DecisionFacts], DecisionFacts], before: str) -> Counter[str]:
    """Count by owner after a change the nodes that an NVIDIADriver has now or, without a name, that are in question."""
    now, then = _claims(question.case), _claims(change(question.case))
    found: Counter[str] = Counter()
    for node in question.case.snapshot.nodes.values():
        owner = owner_of(node.name, node.labels, now) if node.gpu_present else NoOwner()
        asked = isinstance(owner, OwnedBy) and owner.name == before if before else isinstance(owner, OwnerConflict)
        if asked:
            found[name_of(owner_of(node.name, node.labels, then), "")] += 1
    return found


def _then_have(owners: Counter[str]) -> str:
    total = owners.total()
    nodes = f"the {total} nodes" if total > 1 else "the node"
    if len(owners) == 1 and (only := next(iter(owners))):
        return f"{only} then has {nodes} in question"
    return f"of {nodes} in question, {_counted(owners)}"


def _counted(owners: Counter[str]) -> str:
    named = sorted((name, count) for name, count in owners.items() if name)
    left = [f"{owners['']} {'have' if owners[''] > 1 else 'has'} no NVIDIADriver"] if owners[""] else []
    return " and ".join([*(f"{name} then has {count}" for name, count in named), *left])


def _as_default(case: DecisionFacts, name: str) -> DecisionFacts:
    changed = tuple(replace(each, default=True, selector={}) if each.name == name else each for each in _claims(case))
    return _admitting(case, _judged(case, changed))


def _deleted(case: DecisionFacts, name: str) -> DecisionFacts:
    return _admitting(case, _judged(case, tuple(each for each in _claims(case) if each.name != name)))


def _judged(case: DecisionFacts, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Return claims with the conflicts that they have on the nodes as these are."""
    nodes = (node for node in case.snapshot.nodes.values() if node.gpu_present)
    found = conflicts((owner_of(node.name, node.labels, claims) for node in nodes), claims)
    return tuple(replace(each, able=each.name not in found and (each.able or each.conflict is not None),
                         conflict=found.get(each.name)) for each in claims)


def _claims(case: DecisionFacts) -> tuple[Claim, ...]:
    return (case.policy.placing.claims if case.policy.placing is not None else None) or ()


def _parted(case: DecisionFacts, name: str, labels: Mapping[str, str]) -> DecisionFacts:
    """Return the facts where an NVIDIADriver is in no other's way: a node that others select too is theirs."""
    claims = [_without(each, name) for each in _claims(case)]
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
    return _admitting(case, tuple(replace(each, able=True, valid=True) if each.name == name else each for each in _claims(case)))


def _admitting(case: DecisionFacts, claims: tuple[Claim, ...]) -> DecisionFacts:
    policy = case.policy
    placing = replace(policy.placing, claims=claims) if policy.placing is not None else None
    if policy.invalid == f"NVIDIADriver {policy.driver}" and all(each.able for each in claims if each.name == policy.driver):
        policy = replace(policy, admit=True, invalid="")
    return replace(case, policy=replace(policy, placing=placing))
