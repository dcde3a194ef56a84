"""Evictions and disruption budgets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuward import errors
from gpuward.kube.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS
from tests.contract.api import Api, Object, Reply
from tests.contract.objects import budget, names, pod, workload


def evict(api: Api, name: str, **options: object) -> Reply:
    return api.post(f"{PODS.path(api.ns)}/{name}/eviction", {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": api.ns}, "deleteOptions": options})


def replicas(api: Api, count: int) -> list[Object]:
    api.node()
    api.made(DEPLOYMENTS.path(api.ns), workload("Deployment", "web", template={"nodeSelector": {"test": api.ns}}, replicas=count))
    return api.until(PODS.path(api.ns), lambda found: len(found) == count and all(
        one["status"].get("phase") == "Running" for one in found))


def protect(api: Api, name: str = "guard", allowed: int | None = None, **spec: object) -> Object:
    """Set a budget over the pods of `web`, and wait until it is worked out."""
    api.made(POD_DISRUPTION_BUDGETS.path(api.ns), budget(name, "web", **spec))
    return api.when(f"{POD_DISRUPTION_BUDGETS.path(api.ns)}/{name}", lambda one: one.get("status", {}).get(
        "observedGeneration") == 1 and allowed in (None, one["status"]["disruptionsAllowed"]))


def stuck(api: Api, name: str, phase: str = "Running", ready: bool = True) -> None:
    """Add a pod under the label of the budgets that no kubelet looks after."""
    api.made(PODS.path(api.ns), pod(name, node="nowhere", labels={"app": "web"}))
    api.merge(f"{PODS.path(api.ns)}/{name}/status", {"status": {"phase": phase, "conditions": [
        {"type": "Ready", "status": "True" if ready else "False"}]}})


def test_an_eviction_without_budget_deletes(api: Api) -> None:
    api.made(PODS.path(api.ns), pod("a", node="nowhere"))
    done = evict(api, "a")
    assert (done.status, done.body["status"], done.body["kind"]) == (201, "Success", "Status")
    marked = api.get(f"{PODS.path(api.ns)}/a").body
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert [(one["type"], one["reason"]) for one in marked["status"].get("conditions") or ()
            if one["type"] == "DisruptionTarget"] == [("DisruptionTarget", "EvictionByEvictionAPI")]


def test_options_of_an_eviction(api: Api) -> None:
    made = api.made(PODS.path(api.ns), pod("a", node="nowhere"))
    assert evict(api, "a", dryRun=["All"]).status == 201
    assert "deletionTimestamp" not in api.get(f"{PODS.path(api.ns)}/a").body["metadata"]
    assert evict(api, "a", gracePeriodSeconds=5, preconditions={"uid": made["metadata"]["uid"]}).status == 201
    assert api.get(f"{PODS.path(api.ns)}/a").body["metadata"]["deletionGracePeriodSeconds"] == 5
    assert evict(api, "nobody").status == 404


def test_the_status_of_a_budget(api: Api) -> None:
    replicas(api, 3)
    status = protect(api, allowed=1, maxUnavailable=1)["status"]
    counts = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
    assert [status[name] for name in counts] == [3, 2, 3, 1]
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("DisruptionAllowed", "True", "SufficientPods")


@pytest.mark.parametrize(("spec", "allowed"), [
    ({"minAvailable": 3}, 0), ({"minAvailable": "50%"}, 1), ({"maxUnavailable": "40%"}, 2), ({"maxUnavailable": 0}, 0),
    ({"minAvailable": 0}, 3),
])
def test_shares_are_rounded_up(api: Api, spec: dict[str, object], allowed: int) -> None:
    replicas(api, 3)
    protect(api, "guard", allowed, **spec)


def test_a_budget_that_is_used_up_refuses_with_its_cause(api: Api) -> None:
    web = names(replicas(api, 2))
    protect(api, allowed=0, minAvailable=2)
    refused = evict(api, web[0])
    assert (refused.status, refused.reason, refused.message) == (
        429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
    (cause,) = refused.body["details"]["causes"]
    assert cause == {"reason": "DisruptionBudget",
                     "message": "The disruption budget guard needs 2 healthy pods and has 2 currently"}
    with pytest.raises(errors.TooManyRequests):
        api.server.run(api.server.client.evict(web[0], api.ns))


def test_allowance_is_taken_at_once(api: Api) -> None:
    web = ["a", "b", "c"]
    for name in web:
        stuck(api, name)
    api.made(POD_DISRUPTION_BUDGETS.path(api.ns), budget("guard", "web", minAvailable=2))
    api.when(f"{POD_DISRUPTION_BUDGETS.path(api.ns)}/guard", lambda one: one.get("status", {}).get("disruptionsAllowed") == 1)
    with ThreadPoolExecutor(3) as pool:
        answers = sorted(reply.status for reply in pool.map(lambda name: evict(api, name), web))
    assert answers == [201, 429, 429]


def test_an_allowance_comes_back_when_the_pod_is_replaced(api: Api) -> None:
    web = names(replicas(api, 2))
    protect(api, allowed=1, maxUnavailable=1)
    assert evict(api, web[0]).status == 201
    api.gone(f"{PODS.path(api.ns)}/{web[0]}")
    api.when(f"{POD_DISRUPTION_BUDGETS.path(api.ns)}/guard", lambda one: (
        one["status"]["disruptionsAllowed"] == 1 and not one["status"].get("disruptedPods")))


def test_two_budgets_on_one_pod_are_an_error_of_the_server(api: Api) -> None:
    web = names(replicas(api, 1))
    protect(api, "one", maxUnavailable=1)
    protect(api, "two", maxUnavailable=1)
    refused = evict(api, web[0])
    assert (refused.status, refused.reason) == (500, "")
    assert refused.message == "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


@pytest.mark.parametrize(("policy", "status"), [({}, 429), ({"unhealthyPodEvictionPolicy": "IfHealthyBudget"}, 429),
                                                 ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, 201)])
def test_a_pod_that_is_not_ready_under_a_budget_that_is_not_healthy(api: Api, policy: dict[str, str], status: int) -> None:
    stuck(api, "sick", ready=False)
    protect(api, allowed=0, minAvailable=1, **policy)
    assert evict(api, "sick").status == status


def test_a_pod_that_is_not_ready_under_a_healthy_budget_goes(api: Api) -> None:
    stuck(api, "sick", ready=False)
    stuck(api, "well")
    api.made(POD_DISRUPTION_BUDGETS.path(api.ns), budget("guard", "web", minAvailable=1))
    api.when(f"{POD_DISRUPTION_BUDGETS.path(api.ns)}/guard", lambda one: one.get("status", {}).get("currentHealthy") == 1)
    assert evict(api, "well").status == 429
    assert evict(api, "sick").status == 201


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pods_that_do_not_run_need_no_budget(api: Api, phase: str) -> None:
    stuck(api, "idle", phase, ready=False)
    protect(api, minAvailable=1)
    assert evict(api, "idle").status == 201


def test_only_one_of_the_two_bounds(api: Api) -> None:
    both = api.post(POD_DISRUPTION_BUDGETS.path(api.ns), budget("b", "web", minAvailable=1, maxUnavailable=1))
    assert (both.status, both.causes) == (422, {("FieldValueInvalid", "spec")})
    negative = api.post(POD_DISRUPTION_BUDGETS.path(api.ns), budget("b", "web", minAvailable=-1))
    assert (negative.status, negative.causes) == (422, {("FieldValueInvalid", "spec.minAvailable")})
