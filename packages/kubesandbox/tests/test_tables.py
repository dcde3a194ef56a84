"""Tables as kubectl prints them."""

from __future__ import annotations

from typing import Any

import pytest

from kubesandbox.store import timestamp
from sandbox_helpers.calls import CRDS, NOW, THING, THINGS, Caller, definition, kind_schema

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def table(caller: Caller, path: str, wide: bool = False, **query: str) -> list[dict[str, Any]]:
    """Return the rows of a table by column name."""
    found = caller.ok("GET", path, accept=TABLE, **query)
    assert found["kind"] == "Table"
    columns = found["columnDefinitions"]
    return [{column["name"]: cell for column, cell in zip(columns, row["cells"], strict=True) if wide or not column["priority"]}
            for row in found["rows"]]


@pytest.mark.parametrize(("spec", "conditions", "labels", "status", "roles"), [
    ({}, [], {}, "Unknown", "<none>"), ({}, [{"type": "Ready", "status": "True"}], {"node-role.kubernetes.io/worker": ""},
                                        "Ready", "worker"),
    ({"unschedulable": True}, [{"type": "Ready", "status": "True"}], {}, "Ready,SchedulingDisabled", "<none>"),
    ({}, [{"type": "Ready", "status": "Unknown"}], {"kubernetes.io/role": "b", "node-role.kubernetes.io/a": ""}, "NotReady",
     "a,b"),
])
def test_nodes(spec: Any, conditions: Any, labels: Any, status: str, roles: str) -> None:
    caller = Caller()
    caller.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n", "labels": labels}, "spec": spec, "status": {
        "conditions": conditions, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "v1.34.0", "osImage": "Ubuntu", "kernelVersion": "5",
                     "containerRuntimeVersion": "containerd://2"}}})
    [row] = table(caller, "/api/v1/nodes")
    assert row == {"Name": "n", "Status": status, "Roles": roles, "Age": "0s", "Version": "v1.34.0"}
    [row] = table(caller, "/api/v1/nodes", wide=True)
    assert (row["Internal-IP"], row["OS-Image"], row["External-IP"]) == ("10.0.0.1", "Ubuntu", "<none>")


RUNNING = {"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}}


def done(code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **more}}


@pytest.mark.parametrize(("status", "shown", "ready", "restarts"), [
    ({"phase": "Pending"}, "Pending", "0/1", "0"),
    ({"phase": "Running", "containerStatuses": [RUNNING]}, "Running", "1/1", "0"),
    ({"phase": "Running", "containerStatuses": [{**RUNNING, "ready": False, "restartCount": 4,
                                                 "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                                                 "lastState": done(1, finishedAt=timestamp(NOW - 30))}]}, "CrashLoopBackOff",
                                                 "0/1", "4 (30s ago)"),
    ({"phase": "Pending", "containerStatuses": [{**RUNNING, "ready": False,
                                                 "state": {"waiting": {"reason": "ContainerCreating"}}}]},
     "ContainerCreating", "0/1", "0"),
    ({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}, "Init:0/2", "0/1", "0"),
    ({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": done(0)}, {"name": "j", "state": {"waiting": {
        "reason": "PodInitializing"}}}]}, "Init:1/2", "0/1", "0"),
    ({"phase": "Pending", "initContainerStatuses": [{"name": "i", "restartCount": 2,
                                                     "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
     "Init:CrashLoopBackOff", "0/1", "2"),
    ({"phase": "Failed", "initContainerStatuses": [{"name": "i", "state": done(3)}]}, "Init:ExitCode:3", "0/1", "0"),
    ({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": done(1, reason="Error")}]}, "Init:Error", "0/1", "0"),
    ({"phase": "Succeeded", "containerStatuses": [{**RUNNING, "ready": False, "state": done(0, reason="Completed")}]},
     "Completed", "0/1", "0"),
    ({"phase": "Failed", "containerStatuses": [{**RUNNING, "ready": False, "state": done(1, signal=9)}]}, "Signal:9", "0/1", "0"),
    ({"phase": "Failed", "reason": "Evicted"}, "Evicted", "0/1", "0"),
    ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
     "SchedulingGated", "0/1", "0"),
])
def test_pods(status: Any, shown: str, ready: str, restarts: str) -> None:
    caller = Caller()
    caller.pod(spec={"initContainers": [{"name": "i", "image": "x"},
                                        {"name": "j", "image": "x"}]} if "init" in str(status) else {})
    caller.store.patch_status("pods", "default", "p", lambda pod: pod.update(status=status))
    [row] = table(caller, "/api/v1/pods")
    assert row == {"Name": "p", "Ready": ready, "Status": shown, "Restarts": restarts, "Age": "0s"}


def test_a_pod_that_is_being_deleted_is_terminating() -> None:
    caller = Caller()
    caller.pod()
    caller.ok("DELETE", "/api/v1/namespaces/default/pods/p")
    [row] = table(caller, "/api/v1/pods", wide=True)
    assert (row["Status"], row["Node"], row["IP"]) == ("Terminating", "n", "<none>")
    caller.store.patch_status("pods", "default", "p", lambda pod: pod["status"].update(reason="NodeLost"))
    assert table(caller, "/api/v1/pods")[0]["Status"] == "Unknown"


WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": {
    "metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"ssd": "yes"}, "containers": [{"name": "c", "image": "i:1"}]}}}
JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}


@pytest.mark.parametrize(("path", "body", "status", "row"), [
    ("/apis/apps/v1/{}/daemonsets", {"spec": WORKLOAD}, {"desiredNumberScheduled": 3, "currentNumberScheduled": 3,
                                                         "numberReady": 2},
     {"Desired": 3, "Current": 3, "Ready": 2, "Up-to-date": 0, "Available": 0, "Node Selector": "ssd=yes", "Age": "0s"}),
    ("/apis/apps/v1/{}/deployments", {"spec": {**WORKLOAD, "replicas": 2}}, {"readyReplicas": 1, "updatedReplicas": 2},
     {"Ready": "1/2", "Up-to-date": 2, "Available": 0, "Age": "0s"}),
    ("/apis/apps/v1/{}/replicasets", {"spec": WORKLOAD}, {"replicas": 1}, {"Desired": 1, "Current": 1, "Ready": 0, "Age": "0s"}),
    ("/apis/batch/v1/{}/jobs", {"spec": JOB}, {"startTime": timestamp(NOW - 65), "completionTime": timestamp(NOW - 5),
                                               "succeeded": 1,
                                               "conditions": [{"type": "Complete", "status": "True"}]},
     {"Status": "Complete", "Completions": "1/1", "Duration": "60s", "Age": "0s"}),
    ("/apis/batch/v1/{}/jobs", {"spec": JOB}, {"startTime": timestamp(NOW - 9)},
     {"Status": "Running", "Completions": "0/1", "Duration": "9s", "Age": "0s"}),
    ("/apis/policy/v1/{}/poddisruptionbudgets", {"spec": {"maxUnavailable": "25%"}}, {"disruptionsAllowed": 1},
     {"Min Available": "N/A", "Max Unavailable": "25%", "Allowed Disruptions": 1, "Age": "0s"}),
    ("/api/v1/{}/configmaps", {"data": {"a": "1", "b": "2"}}, None, {"Data": 2, "Age": "0s"}),
    ("/api/v1/{}/services", {"spec": {"clusterIP": "10.0.0.9", "type": "NodePort",
                                      "ports": [{"port": 80, "nodePort": 30001}, {"port": 81,
     "nodePort": 30002, "protocol": "UDP"}]}}, None,
     {"Type": "NodePort", "Cluster-IP": "10.0.0.9", "External-IP": "<none>", "Port(s)": "80:30001/TCP,81:30002/UDP",
      "Age": "0s"}),
    ("/apis/coordination.k8s.io/v1/{}/leases", {"spec": {"holderIdentity": "me"}}, None, {"Holder": "me", "Age": "0s"}),
    ("/apis/rbac.authorization.k8s.io/v1/{}/roles", {"rules": []}, None, {"Created At": timestamp(NOW)}),
    ("/apis/rbac.authorization.k8s.io/v1/{}/rolebindings", {"roleRef": {"kind": "Role", "name": "r"}}, None,
     {"Role": "Role/r", "Age": "0s"}),
    ("/apis/apps/v1/{}/controllerrevisions", {"revision": 3, "metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}]}}, None,
     {"Controller": "daemonset.apps/d", "Revision": 3, "Age": "0s"}),
])
def test_other_types(path: str, body: Any, status: Any, row: Any) -> None:
    caller = Caller()
    path = path.format("namespaces/default")
    made = caller.ok("POST", path, {**body, "metadata": {"name": "x", **body.get("metadata", {})}})
    if status:
        caller.patch("merge", f"{path}/x/status", {"status": status})
    [found] = table(caller, path)
    assert found == {"Name": made["metadata"]["name"], **row}


def test_events() -> None:
    caller = Caller()
    caller.ok("POST", "/api/v1/namespaces/default/events", {
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "n"}, "reason": "Upgraded",
        "message": "on its way\n",
        "type": "Normal", "firstTimestamp": timestamp(NOW - 600), "lastTimestamp": timestamp(NOW - 5), "count": 3,
        "source": {"component": "op"}})
    [row] = table(caller, "/api/v1/events", wide=True)
    assert row == {"Last Seen": "5s", "Type": "Normal", "Reason": "Upgraded", "Object": "node/n", "Subobject": "",
                   "Source": "op",
                   "Message": "on its way", "First Seen": "10m", "Count": 3, "Name": "e"}


def test_custom_resources_have_their_printer_columns() -> None:
    columns = [{"name": "State", "type": "string", "jsonPath": ".status.state"},
               {"name": "Big", "type": "boolean", "jsonPath": ".spec.big"},
               {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
               {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
    schema = kind_schema(big={"type": "boolean"}, size={"type": "integer"})
    caller = Caller()
    caller.ok("POST", CRDS, definition(schema, additionalPrinterColumns=columns))
    caller.ok("POST", THINGS, {**THING, "metadata": {"name": "t"}, "spec": {"big": True, "size": 3}})
    assert table(caller, THINGS) == [{"Name": "t", "State": None, "Big": True, "Age": "0s"}]
    caller.patch("merge", f"{THINGS}/t/status", {"status": {"state": "ready"}})
    assert table(caller, f"{THINGS}/t", wide=True) == [{"Name": "t", "State": "ready", "Big": True, "Size": 3, "Age": "0s"}]


@pytest.mark.parametrize(("holds", "kind"), [("None", None), ("Metadata", "PartialObjectMetadata"), ("Object", "Node"),
                                             (None, "PartialObjectMetadata")])
def test_rows_bring_as_much_as_was_asked(holds: str | None, kind: str | None) -> None:
    caller = Caller()
    caller.node()
    [row] = caller.ok("GET", "/api/v1/nodes", accept=TABLE, includeObject=holds)["rows"]
    assert (row["object"] or {}).get("kind") == kind
