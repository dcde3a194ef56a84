from __future__ import annotations

from typing import Any

import pytest

from sandbox_helpers.calls import Caller

EVENTS = "/api/v1/namespaces/{}/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DAEMONS = "/apis/apps/v1/namespaces/default/daemonsets"
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def daemons(**strategy: Any) -> dict[str, Any]:
    return {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE, "updateStrategy": strategy}}


@pytest.mark.parametrize(("path", "body", "message"), [
    (EVENTS.format("kube-system"), {"involvedObject": {"kind": "Node", "name": "n"}},
     'involvedObject.namespace: Invalid value: "": does not match event.namespace'),
    (EVENTS.format("default"), {"involvedObject": {"kind": "Pod", "namespace": "kube-system"}},
     'involvedObject.namespace: Invalid value: "kube-system": does not match event.namespace'),
    (EVENTS.format("default"), {"eventTime": "2024-01-01T00:00:00.000000Z", "reason": "R", "action": "A",
                                "reportingInstance": "i"},
     "reportingComponent: Required value"),
    (EVENTS.format("default"), {"eventTime": "2024-01-01T00:00:00.000000Z", "reason": "R", "action": "A",
                                "reportingInstance": "i",
                                "reportingComponent": "c", "message": "x" * 1025}, "can have at most 1024 characters"),
    (LEASES, {"spec": {"leaseDurationSeconds": 0}}, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
    (LEASES, {"spec": {"leaseTransitions": -1}}, "spec.leaseTransitions: Invalid value: -1"),
    (BUDGETS, {"spec": {"minAvailable": 1, "maxUnavailable": 1}}, "minAvailable and maxUnavailable cannot be both set"),
    (BUDGETS, {"spec": {"minAvailable": "half"}}, 'spec.minAvailable: Invalid value: "half": a valid percent string'),
    (BUDGETS, {"spec": {"maxUnavailable": -1}}, "spec.maxUnavailable: Invalid value: -1"),
    (DAEMONS, daemons(type="Sideways"),
     'spec.updateStrategy.type: Unsupported value: "Sideways": supported values: "OnDelete", "RollingUpdate"'),
    (DAEMONS, daemons(rollingUpdate={"maxUnavailable": 0}), "Required value: cannot be 0 when maxSurge is 0"),
    (DAEMONS, daemons(rollingUpdate={"maxUnavailable": "many"}), "a valid percent string"),
])
def test_refused(path: str, body: Any, message: str) -> None:
    status, reason, told = Caller().refused("POST", path, {"metadata": {"name": "x"}, **body})
    assert (status, reason) == (422, "Invalid")
    assert message in told


@pytest.mark.parametrize(("path", "body"), [
    (EVENTS.format("default"), {"involvedObject": {"kind": "Node", "name": "n"}}),
    (EVENTS.format("kube-system"), {"involvedObject": {"kind": "Pod", "namespace": "kube-system"}}),
    (LEASES, {"spec": {"leaseDurationSeconds": 30}}), (BUDGETS, {"spec": {"minAvailable": "50%"}}),
    (DAEMONS, daemons(type="OnDelete")),
    (DAEMONS, daemons(rollingUpdate={"maxUnavailable": "10%"})),
])
def test_accepted(path: str, body: Any) -> None:
    assert Caller().send("POST", path, {"metadata": {"name": "x"}, **body}).status == 201
