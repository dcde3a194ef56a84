"""What helps a node that has not got its MIG layout: the MIG manager says why in its log, and tries again when it starts."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from gpuward import names
from gpuward.model.mig import DONE, paused_operands
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.upgrade.remedies import fixes
from gpuward.upgrade.remedies.fixes import Fix
from gpuward.upgrade.remedies.question import Candidate, Question

GIVE_BACK = "give the node back what the MIG manager took off it: it is done with the layout, and does not look at that again"
DO = ("correct what the MIG manager complains about: a name that none of its layouts has (the node's label "
      f"{names.MIG_CONFIG}), or pods that use the GPUs")
AGAIN = "then have it try again: it does so when its pod comes anew"


def apply_layout(question: Question) -> Iterator[Candidate]:
    """Have a node's layout applied."""
    yield fix_layout(question.view, question.case.snapshot)


def fix_layout(node: NodeView, snapshot: Snapshot) -> Fix:
    """Return the fix by which a node gets its layout, and back what is kept off it meanwhile."""
    given = {f"{names.DEPLOY_PREFIX}{operand}": "true" for operand in paused_operands(node)}
    if node.labels.get(names.MIG_STATE) == DONE:
        return fixes.label_node_with(node, given, GIVE_BACK)
    change = fixes.label_node_with(node, {**given, names.MIG_STATE: DONE}, AGAIN).change
    pod = next((pod for pod in snapshot.pods.get(node.name, ()) if pod.labels.get("app") == names.MIG_MANAGER_APP
                and pod.namespace == snapshot.namespace and not pod.deleting), None)
    if pod is None and given:
        return fixes.label_node_with(node, given, "give back what the MIG manager has taken off the node: no pod of it is there")
    if pod is None:
        return Fix("let the MIG manager run on the node: no pod of it is there", change,
                   f"kubectl label node {quote(node.name)} {names.DEPLOY_MIG_MANAGER}=true --overwrite")
    at = f"{quote(pod.name)} -n {quote(pod.namespace)}"
    return Fix(f"{DO}; {AGAIN}", change, f"kubectl delete pod {at}", looks=(f"kubectl logs {at} --tail=50",))
