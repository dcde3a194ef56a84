"""What built-in objects are stored as: defaults, normal forms, and fields that nobody knows."""

from __future__ import annotations

import pytest

from gpuward.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICES,
)
from tests.contract.api import Api, Object
from tests.contract.objects import budget, config_map, pod, workload


@pytest.mark.since("1.36")
def test_a_pod_is_completed(api: Api) -> None:
    made = api.made(PODS.path(api.ns), pod("a", node="nowhere"))
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["schedulerName"], spec["terminationGracePeriodSeconds"]) == (
        "Always", "ClusterFirst", "default-scheduler", 30)
    assert (spec["serviceAccountName"], spec["priority"], spec["preemptionPolicy"], spec["enableServiceLinks"]) == (
        "default", 0, "PreemptLowerPriority", True)
    assert (container["imagePullPolicy"], container["terminationMessagePath"], container["terminationMessagePolicy"]) == (
        "IfNotPresent", "/dev/termination-log", "File")
    assert container["resources"] == {}
    assert (made["status"], made["metadata"].get("generation")) == ({"phase": "Pending", "qosClass": "BestEffort"}, 1)
    assert {(one["key"], one["tolerationSeconds"]) for one in spec["tolerations"]} == {
        ("node.kubernetes.io/not-ready", 300), ("node.kubernetes.io/unreachable", 300)}


def test_a_daemon_set_is_completed(api: Api) -> None:
    made = api.made(DAEMON_SETS.path(api.ns), workload("DaemonSet", "a"))
    spec = made["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert (spec["revisionHistoryLimit"], made["metadata"]["generation"]) == (10, 1)
    assert made["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "1"}
    assert spec["template"]["spec"]["securityContext"] == {}
    assert spec["template"]["metadata"].get("creationTimestamp", None) is None
    assert made["status"] == {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}


def test_a_deployment_is_completed(api: Api) -> None:
    spec = api.made(DEPLOYMENTS.path(api.ns), workload("Deployment", "a", replicas=0))["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)


@pytest.mark.parametrize(("sent", "stored"), [
    ("1000m", "1"), ("0.5", "500m"), (2, "2"), ("1024Mi", "1Gi"), ("1500Mi", "1500Mi"), ("1e3", "1e3"),
    ("0.1Gi", "107374182400m"),
    ("2000M", "2G"), ("1.5Gi", "1536Mi"), ("1000e0", "1e3"), ("01000m", "1"),
])
def test_quantities_are_normalised(api: Api, sent: object, stored: str) -> None:
    body = pod("a", node="nowhere", containers=[{"name": "main", "image": "i", "resources": {"limits": {"memory": sent}}}])
    made = api.made(PODS.path(api.ns), body)
    assert made["spec"]["containers"][0]["resources"] == {"limits": {"memory": stored}, "requests": {"memory": stored}}
    assert made["status"]["qosClass"] == "Burstable"


def test_a_quantity_written_otherwise_changes_nothing(api: Api) -> None:
    path = f"{NODES.path('', api.node())}/status"

    def version(quantity: str) -> str:
        answer = api.merge(path, {"status": {"capacity": {"example.com/x": quantity}}}).body
        assert answer["status"]["capacity"]["example.com/x"] == "1"
        return str(answer["metadata"]["resourceVersion"])

    # A new node is still written to by others, so one pair of writes may have another between them; not every pair has.
    assert any(version("1000m") == version("1") for _ in range(5))


def test_empty_optional_fields_are_left_out(api: Api) -> None:
    made = api.made(CONFIG_MAPS.path(api.ns), {"metadata": {"name": "a", "labels": {}, "annotations": None}, "data": {}})
    assert set(made) == {"kind", "apiVersion", "metadata"}
    assert {"labels", "annotations"} & set(made["metadata"]) == set()


@pytest.mark.parametrize(("mode", "status"), [("Strict", 400), ("Warn", 201), ("Ignore", 201), ("", 201)])
def test_unknown_fields(api: Api, mode: str, status: int) -> None:
    body = pod("a", node="nowhere", hostnames="x")
    body["spec"]["containers"][0]["comand"] = ["x"]
    reply = api.post(PODS.path(api.ns), body, **({"fieldValidation": mode} if mode else {}))
    assert reply.status == status
    told = ['unknown field "spec.containers[0].comand"', 'unknown field "spec.hostnames"']
    assert sorted(reply.warnings) == (told if mode in ("Warn", "") else [])
    if mode == "Strict":
        assert "strict decoding error: " + ", ".join(told) in reply.message


def test_a_service_gets_an_address(api: Api) -> None:
    made = api.made(SERVICES.path(api.ns), {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}})
    spec = made["spec"]
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (spec["type"], spec["sessionAffinity"], spec["clusterIPs"]) == ("ClusterIP", "None", [spec["clusterIP"]])
    same = api.put(f"{SERVICES.path(api.ns)}/a", made)
    assert (same.status, same.body["metadata"]["resourceVersion"]) == (200, made["metadata"]["resourceVersion"])


def test_secrets_take_plain_strings(api: Api) -> None:
    made = api.made(SECRETS.path(api.ns), {"metadata": {"name": "a"}, "stringData": {"x": "y"}})
    assert (made["type"], made["data"], "stringData" in made) == ("Opaque", {"x": "eQ=="}, False)


def test_a_budget_counts_generations(api: Api) -> None:
    path = POD_DISRUPTION_BUDGETS.path(api.ns)
    assert api.made(path, budget("a", "web", maxUnavailable="25%"))["metadata"]["generation"] == 1
    assert api.merge(f"{path}/a", {"spec": {"maxUnavailable": 1}}).body["metadata"]["generation"] == 2


@pytest.mark.parametrize(("body", "cause"), [
    (pod("a", containers=[]), ("FieldValueRequired", "spec.containers")),
    (pod("a", containers=[{"image": "i"}]), ("FieldValueRequired", "spec.containers[0].name")),
    (pod("a", containers=[{"name": "c", "image": "i"}] * 2), ("FieldValueDuplicate", "spec.containers[1].name")),
    (pod("a", containers=[{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]),
     ("FieldValueNotFound", "spec.containers[0].volumeMounts[0].name")),
    (pod("a", restartPolicy="Sometimes"), ("FieldValueNotSupported", "spec.restartPolicy")),
])
def test_what_no_pod_may_be(api: Api, body: Object, cause: tuple[str, str]) -> None:
    refused = api.post(PODS.path(api.ns), body)
    assert (refused.status, cause in refused.causes) == (422, True), refused.body


def test_what_is_stored_is_what_a_replacement_with_it_stores(api: Api) -> None:
    for path, body in ((PODS.path(api.ns), pod("p", node="nowhere")), (CONFIG_MAPS.path(api.ns), config_map("c", x="1")),
                       (DAEMON_SETS.path(api.ns), workload("DaemonSet", "d", template={"nodeSelector": {"no": "where"}}))):
        made = api.made(path, body)
        newest = api.get(f"{path}/{made['metadata']['name']}").body
        del newest["metadata"]["resourceVersion"]
        assert api.put(f"{path}/{made['metadata']['name']}", newest).body["metadata"]["generation" if "generation" in newest[
            "metadata"] else "uid"] == newest["metadata"]["generation" if "generation" in newest["metadata"] else "uid"]
