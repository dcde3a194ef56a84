"""The eviction subresource: a pod is deleted only if its disruption budget allows it, and the allowance is taken at once.

Facts from kube-apiserver's eviction handler (policy/v1). The allowance itself (`status.disruptionsAllowed`) is computed by the
disruption controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors, messages, preconditions, selectors
from kubesandbox.store import timestamp
from kubesandbox.writing import delete_options

if TYPE_CHECKING:
    from kubesandbox.catalog import Target
    from kubesandbox.messages import Answer, Request
    from kubesandbox.store import Store

Object = dict[str, Any]

BUDGETS: Final = "poddisruptionbudgets.policy"
TOO_SOON: Final = "Cannot evict pod as it would violate the pod's disruption budget."
PROCESSING_SECONDS: Final = 10


def evict(store: Store, target: Target, request: Request) -> Answer:
    """Evict a pod.

    Raises `errors.TooManyRequests` when its budget has nothing left and `errors.ServerError` when it has two budgets.
    """
    body = messages.parse(request.body, request.content_type)
    if not isinstance(body, dict) or (body.get("metadata") or {}).get("name", target.name) != target.name:
        raise errors.BadRequest("name in URL does not match name in Eviction object")
    wish = delete_options(messages.Request("DELETE", request.path, request.query, messages.encode(
        body.get("deleteOptions") or {})))
    pod = store.get("pods", target.namespace, target.name or "")
    # An eviction is created, and nothing can be created in a namespace that is being deleted.
    preconditions.check_namespace(target.served.resource, pod["metadata"], store.find("namespaces", None, target.namespace or ""))
    preconditions.check_deletion(target.served.resource, pod, wish.uid, wish.resource_version)
    budget = None if _needs_no_budget(pod) else _budget_of(store, pod)
    if budget is not None and not _is_free(pod, budget):
        _take(store, pod, budget, wish.dry_run)
    if not wish.dry_run:
        store.patch_status("pods", target.namespace, target.name or "", lambda one: _note(one, timestamp(store.now())))
    store.delete("pods", target.namespace, target.name or "", uid=pod["metadata"]["uid"], grace_seconds=wish.grace_seconds,
                 propagation=wish.propagation, dry_run=wish.dry_run)
    return messages.success(201)


def _note(pod: Object, now: str) -> None:
    """Write on a pod that it ends by an eviction."""
    others = [one for one in pod["status"].get("conditions") or () if one["type"] != "DisruptionTarget"]
    pod["status"]["conditions"] = [*others, {
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        "lastProbeTime": None, "lastTransitionTime": now}]


def _needs_no_budget(pod: Object) -> bool:
    over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed", "Pending")
    return over or bool(pod["metadata"].get("deletionTimestamp"))


def _budget_of(store: Store, pod: Object) -> Object | None:
    found = [budget for budget in store.list(BUDGETS, pod["metadata"]["namespace"])
             if selectors.match_labels(selectors.from_label_selector(budget["spec"].get("selector")), pod)]
    if len(found) > 1:
        raise errors.ServerError("This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
                                 "support.", reason="")
    return found[0] if found else None


def _is_free(pod: Object, budget: Object) -> bool:
    """Tell whether a pod that is not ready may go without taking from the allowance."""
    conditions = pod.get("status", {}).get("conditions") or ()
    if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status", {})
    return bool(0 < status.get("desiredHealthy", 0) <= status.get("currentHealthy", 0))


def _take(store: Store, pod: Object, budget: Object, dry_run: bool) -> None:
    name, status = budget["metadata"]["name"], budget.get("status", {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _refusal(name, f"The disruption budget {name} is still being processed by the server.", PROCESSING_SECONDS)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise errors.Forbidden(f'{BUDGETS} "{name}" is forbidden: pdb disruptions allowed is negative')
    if allowed == 0:
        raise _refusal(name, f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
                             f"{status.get('currentHealthy', 0)} currently", 0)
    if dry_run:
        return

    def change(stored: Object) -> None:
        stored["status"]["disruptionsAllowed"] = allowed - 1
        stored["status"]["disruptedPods"] = {**(status.get("disruptedPods") or {}),
                                             pod["metadata"]["name"]: timestamp(store.now())}
        if allowed == 1:
            _close(stored["status"], timestamp(store.now()), budget["metadata"].get("generation", 0))

    store.patch_status(BUDGETS, budget["metadata"]["namespace"], name, change)


def _close(status: Object, now: str, generation: int) -> None:
    others = [one for one in status.get("conditions") or () if one["type"] != "DisruptionAllowed"]
    status["conditions"] = [*others, {
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now, "observedGeneration": generation}]


def _refusal(name: str, why: str, seconds: int) -> errors.TooManyRequests:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if seconds:
        details["retryAfterSeconds"] = seconds
    return errors.TooManyRequests(TOO_SOON, details=details)
