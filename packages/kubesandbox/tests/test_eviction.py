"""The eviction subresource against budgets whose status a disruption controller would have written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox_helpers.calls import Caller

EVICTION = "/api/v1/namespaces/default/pods/{}/eviction"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def caller() -> Caller:
    found = Caller()
    for name in ("a", "b"):
        running(found, name)
    return found


def running(caller: Caller, name: str, ready: str = "True") -> None:
    caller.pod(name, labels={"app": "x"})
    caller.store.patch_status("pods", "default", name, lambda pod: pod["status"].update(
        phase="Running", conditions=[{"type": "Ready", "status": ready}]))


def budget(caller: Caller, name: str = "pdb", *, observed: int = 1, selector: Any = None, policy: Any = None,
           **status: Any) -> None:
    spec = {"maxUnavailable": 1, "selector": selector or {"matchLabels": {"app": "x"}}}
    caller.ok("POST", BUDGETS, {"metadata": {"name": name},
                                "spec": spec | ({"unhealthyPodEvictionPolicy": policy} if policy else {})})
    numbers = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
               "observedGeneration": observed}
    caller.store.patch_status("poddisruptionbudgets.policy", "default", name, lambda obj: obj["status"].update(numbers | status))


def evict(caller: Caller, name: str, **options: Any) -> tuple[int, Any]:
    answer = caller.send("POST", EVICTION.format(name), {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}, **options})
    return answer.status, json.loads(answer.body)


def terminating(caller: Caller, name: str) -> bool:
    pod = caller.store.find("pods", "default", name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


def test_without_a_budget_the_pod_goes_gracefully(caller: Caller) -> None:
    status, body = evict(caller, "a")
    assert (status, body["status"]) == (201, "Success")
    assert caller.store.get("pods", "default", "a")["metadata"]["deletionGracePeriodSeconds"] == 30


def test_the_allowance_is_taken_at_once(caller: Caller) -> None:
    budget(caller)
    assert evict(caller, "a")[0] == 201
    status, body = evict(caller, "b")
    assert status == 429
    assert body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert body["details"]["causes"] == [{"reason": "DisruptionBudget",
                                          "message": "The disruption budget pdb needs 1 healthy pods and has 2 currently"}]
    stored = caller.store.get("poddisruptionbudgets.policy", "default", "pdb")["status"]
    assert stored["disruptionsAllowed"] == 0
    assert list(stored["disruptedPods"]) == ["a"]
    assert stored["conditions"][0]["reason"] == "InsufficientPods"
    assert not terminating(caller, "b")


def test_a_budget_that_was_not_looked_at_yet_says_when_to_come_back(caller: Caller) -> None:
    budget(caller, observed=0)
    answer = caller.send("POST", EVICTION.format("a"), {"metadata": {"name": "a"}})
    assert answer.status == 429
    assert answer.headers["Retry-After"] == "10"
    assert not terminating(caller, "a")


def test_two_budgets_are_an_error(caller: Caller) -> None:
    budget(caller)
    budget(caller, "second", selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    status, body = evict(caller, "a")
    assert status == 500
    assert "more than one PodDisruptionBudget" in body["message"]


@pytest.mark.parametrize(("ready", "policy", "numbers", "status"), [
    ("False", None, {"currentHealthy": 2, "desiredHealthy": 2}, 201),
    ("False", None, {"currentHealthy": 1, "desiredHealthy": 2}, 429),
    ("False", "AlwaysAllow", {"currentHealthy": 0, "desiredHealthy": 2}, 201),
    ("True", "AlwaysAllow", {"currentHealthy": 2, "desiredHealthy": 2}, 429),
])
def test_pods_that_are_not_ready(caller: Caller, ready: str, policy: str | None, numbers: dict[str, Any], status: int) -> None:
    running(caller, "sick", ready)
    budget(caller, policy=policy, disruptionsAllowed=0, **numbers)
    assert evict(caller, "sick")[0] == status
    assert terminating(caller, "sick") is (status == 201)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pods_that_do_not_run_need_no_budget(caller: Caller, phase: str) -> None:
    budget(caller, disruptionsAllowed=0)
    caller.store.patch_status("pods", "default", "a", lambda pod: pod["status"].update(phase=phase))
    assert evict(caller, "a")[0] == 201


def test_a_dry_run_takes_nothing(caller: Caller) -> None:
    budget(caller)
    assert evict(caller, "a", deleteOptions={"dryRun": ["All"]})[0] == 201
    assert not terminating(caller, "a")
    assert caller.store.get("poddisruptionbudgets.policy", "default", "pdb")["status"]["disruptionsAllowed"] == 1


def test_preconditions_and_missing_pods(caller: Caller) -> None:
    assert evict(caller, "a", deleteOptions={"preconditions": {"uid": "other"}})[0] == 409
    assert evict(caller, "nobody")[0] == 404
    assert evict(caller, "a", deleteOptions={"gracePeriodSeconds": 0})[0] == 201
    assert caller.store.find("pods", "default", "a") is None
