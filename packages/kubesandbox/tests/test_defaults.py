from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import errors
from kubesandbox.store import Store


@pytest.fixture
def store() -> Store:
    return Store(now=lambda: 1_700_000_000.0)


def make(store: Store, key: str, **body: Any) -> dict[str, Any]:
    return store.create(key, {"metadata": {"name": "x", "namespace": "default"}, **body})


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "r/i:1"}]}}
SELECTOR = {"matchLabels": {"a": "b"}}


def test_a_daemon_set_is_stored_with_its_defaults(store: Store) -> None:
    spec = make(store, "daemonsets.apps", spec={"selector": SELECTOR, "template": TEMPLATE})["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert spec["revisionHistoryLimit"] == 10
    assert spec["template"]["spec"] == {
        "containers": [{"name": "c", "image": "r/i:1", "imagePullPolicy": "IfNotPresent", "resources": {},
                        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }


def test_on_delete_has_no_rolling_update(store: Store) -> None:
    made = make(store, "daemonsets.apps",
                spec={"selector": SELECTOR, "template": TEMPLATE, "updateStrategy": {"type": "OnDelete"}})
    assert made["spec"]["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.parametrize(("image", "policy"), [
    ("busybox", "Always"), ("busybox:latest", "Always"), ("busybox:1", "IfNotPresent"),
    ("localhost:5000/busybox", "Always"), ("busybox@sha256:" + "0" * 64, "IfNotPresent"),
])
def test_pull_policy_follows_the_tag(store: Store, image: str, policy: str) -> None:
    made = make(store, "pods", spec={"containers": [{"name": "c", "image": image}]})
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(("volume", "stored"), [
    ({"hostPath": {"path": "/dev"}}, {"hostPath": {"path": "/dev", "type": ""}}),
    ({"configMap": {"name": "m"}}, {"configMap": {"name": "m", "defaultMode": 420}}),
    ({"configMap": {"name": "m", "defaultMode": 448}}, {"configMap": {"name": "m", "defaultMode": 448}}),
    ({"emptyDir": {}}, {"emptyDir": {}}),
    ({}, {"emptyDir": {}}),
])
def test_volumes(store: Store, volume: dict[str, Any], stored: dict[str, Any]) -> None:
    made = make(store, "pods", spec={"containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", **volume}]})
    assert made["spec"]["volumes"] == [{"name": "v", **stored}]


@pytest.mark.parametrize(("resources", "stored", "quality"), [
    ({}, {}, "BestEffort"),
    ({"limits": {"example.com/x": 1}}, {"limits": {"example.com/x": "1"}, "requests": {"example.com/x": "1"}}, "BestEffort"),
    ({"requests": {"cpu": "0.1"}}, {"requests": {"cpu": "100m"}}, "Burstable"),
    ({"limits": {"cpu": 1, "memory": "1Gi"}},
     {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
])
def test_a_pods_requests_and_quality(store: Store, resources: Any, stored: Any, quality: str) -> None:
    made = make(store, "pods", spec={"containers": [{"name": "c", "image": "i", "resources": resources}]})
    assert made["spec"]["containers"][0]["resources"] == stored
    assert made["status"] == {"phase": "Pending", "qosClass": quality}


def test_probes_and_field_references(store: Store) -> None:
    made = make(store, "pods", spec={"containers": [{
        "name": "c", "image": "i", "startupProbe": {"exec": {"command": ["x"]}},
        "livenessProbe": {"httpGet": {"port": 80}},
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}]})
    container = made["spec"]["containers"][0]
    periods = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert container["startupProbe"] == {"exec": {"command": ["x"]}, **periods}
    assert container["livenessProbe"] == {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, **periods}
    assert container["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "spec.nodeName"}


def test_pod_priority_comes_from_its_class(store: Store) -> None:
    made = make(store, "pods", spec={"containers": [{"name": "c", "image": "i"}], "priorityClassName": "system-node-critical"})
    assert made["spec"]["priority"] == 2000001000
    with pytest.raises(errors.Forbidden, match="no PriorityClass with name nope was found"):
        store.create("pods", {"metadata": {"name": "y"}, "spec": {
            "containers": [{"name": "c", "image": "i"}], "priorityClassName": "nope"}})


def test_services_get_an_address(store: Store) -> None:
    spec = make(store, "services", spec={"ports": [{"port": 80}], "selector": {"a": "b"}})["spec"]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["ports"] == [{"port": 80, "targetPort": 80, "protocol": "TCP"}]
    assert (spec["type"], spec["ipFamilies"], spec["sessionAffinity"]) == ("ClusterIP", ["IPv4"], "None")


def test_jobs_select_their_own_pods(store: Store) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    made = make(store, "jobs.batch", spec={"template": template})
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert made["spec"]["template"]["metadata"]["labels"]["job-name"] == "x"
    assert (made["spec"]["completions"], made["spec"]["parallelism"], made["spec"]["backoffLimit"]) == (1, 1, 6)


def test_created_objects_start_without_a_status_but_nodes_keep_theirs(store: Store) -> None:
    made = make(store, "daemonsets.apps", spec={"selector": SELECTOR, "template": TEMPLATE}, status={"numberReady": 5})
    assert made["status"]["numberReady"] == 0
    node = store.create("nodes", {"metadata": {"name": "n"}, "status": {"capacity": {"example.com/x": 8, "cpu": "64000m"}}})
    assert node["status"]["allocatable"] == {"example.com/x": "8", "cpu": "64"}


def test_secrets_encode_their_strings(store: Store) -> None:
    made = make(store, "secrets", stringData={"k": "v"})
    assert (made["type"], made["data"], "stringData" in made) == ("Opaque", {"k": "dg=="}, False)
