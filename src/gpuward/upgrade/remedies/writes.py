"""What might help a node that the API server refuses to change: what refuses that stands in the server's message."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from shlex import quote

import msgspec

from gpuward import names
from gpuward.model.denials import RefusedElsewhere, ReplacementRefused
from gpuward.upgrade.forbidden import lacks_right, tells_of_it
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix
from gpuward.upgrade.remedies.question import Candidate, Question

replace = msgspec.structs.replace


def accept_writes(question: Question) -> Iterator[Candidate]:
    """Let the node be changed."""
    account = f"system:serviceaccount:{question.case.snapshot.namespace}:{names.OPERATOR_NAME}"
    yield Fix(
        "mend the admission webhook, the policy or the right that refuses changes of this node",
        partial(_accepted, uid=question.view.uid),
        looks=("kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies",
               f"kubectl auth can-i patch nodes --as={quote(account)}"))


def let_replace(question: Question) -> Iterator[Candidate]:
    """Let the driver pod be replaced that is refused, of this node or of the one for which all others wait."""
    what = question.hold.what
    if isinstance(what, ReplacementRefused | RefusedElsewhere):
        where = f" of node {what.node}" if isinstance(what, RefusedElsewhere) else ""
        do = f"let driver pod {what.pod.name}{where} be replaced: mend the webhook, the policy or the right that refuses it"
        yield Fix(
            do, partial(_granted, uids=frozenset({what.pod.uid})),
            looks=("gpuward check", "kubectl get validatingwebhookconfigurations,validatingadmissionpolicies"))


def let_evict(question: Question) -> Iterator[Fix]:
    """Give the operator the right to evict pods, where it was refused for want of that."""
    account = f"system:serviceaccount:{question.case.snapshot.namespace}:{names.OPERATOR_NAME}"
    refused = {uid for uid, refusal in question.case.snapshot.refusals.items() if lacks_right(refusal.message)}
    failure = question.node.record.failure
    if refused or (failure is not None and tells_of_it(failure.cause)):
        yield Fix(
            "give the operator's service account the right to create pods/eviction",
            partial(_granted, uids=frozenset(refused)),
            looks=("gpuward check", f"kubectl auth can-i create pods --subresource=eviction -A --as={quote(account)}"))


def _granted(case: DecisionFacts, uids: frozenset[str]) -> DecisionFacts:
    refusals = {uid: refusal for uid, refusal in case.snapshot.refusals.items() if uid not in uids}
    return replace(case, snapshot=replace(case.snapshot, refusals=refusals))


def _accepted(case: DecisionFacts, uid: str) -> DecisionFacts:
    writes = {known: refusal for known, refusal in case.snapshot.refused_writes.items() if known != uid}
    return replace(case, snapshot=replace(case.snapshot, refused_writes=writes))
