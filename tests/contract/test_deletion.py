"""How objects end: finalizers, grace periods, owners."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from gpuward.kube.resources import CONFIG_MAPS, DAEMON_SETS, PODS
from tests.contract.api import Api
from tests.contract.objects import config_map, owned_by, pod, workload

HOLD = "example.com/hold"


def test_a_finalizer_holds_an_object(api: Api) -> None:
    path = f"{CONFIG_MAPS.path(api.ns)}/a"
    made = api.made(CONFIG_MAPS.path(api.ns), {"metadata": {"name": "a", "finalizers": [HOLD]}})
    marked = api.delete(path)
    assert (marked.status, marked.body["metadata"]["deletionGracePeriodSeconds"]) == (200, 0)
    assert marked.body["metadata"]["uid"] == made["metadata"]["uid"]
    again = api.delete(path)
    assert again.body["metadata"]["resourceVersion"] == marked.body["metadata"]["resourceVersion"]
    assert api.merge(path, {"data": {"still": "writable"}}).status == 200
    refused = api.merge(path, {"metadata": {"finalizers": [HOLD, "example.com/more"]}})
    assert (refused.status, refused.causes) == (422, {("FieldValueForbidden", "metadata.finalizers")})
    assert "no new finalizers can be added if the object is being deleted" in refused.message
    last = api.merge(path, {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert api.get(path).status == 404


@pytest.mark.parametrize(("spec", "query", "seconds"), [
    ({}, {}, 30), ({"terminationGracePeriodSeconds": 7}, {}, 7),
    ({"terminationGracePeriodSeconds": 7}, {"gracePeriodSeconds": 3}, 3),
    ({"terminationGracePeriodSeconds": 7}, {"gracePeriodSeconds": 60}, 60),
])
def test_a_pod_gets_its_grace(api: Api, spec: dict[str, Any], query: dict[str, int], seconds: int) -> None:
    path = f"{PODS.path(api.ns)}/a"
    made = api.made(PODS.path(api.ns), pod("a", node="nowhere", **spec))
    marked = api.delete(path, **query).body["metadata"]
    assert marked["deletionGracePeriodSeconds"] == seconds
    until = datetime.fromisoformat(marked["deletionTimestamp"]) - datetime.fromisoformat(made["metadata"]["creationTimestamp"])
    assert seconds <= until.total_seconds() <= seconds + 5
    assert api.get(path).status == 200
    assert api.delete(path, gracePeriodSeconds=0).status == 200
    assert api.get(path).status == 404


def test_a_second_deletion_only_shortens(api: Api) -> None:
    path = f"{PODS.path(api.ns)}/a"
    api.made(PODS.path(api.ns), pod("a", node="nowhere"))
    assert api.delete(path, gracePeriodSeconds=20).body["metadata"]["deletionGracePeriodSeconds"] == 20
    assert api.delete(path, gracePeriodSeconds=40).body["metadata"]["deletionGracePeriodSeconds"] == 20
    assert api.delete(path, gracePeriodSeconds=5).body["metadata"]["deletionGracePeriodSeconds"] == 5
    assert api.delete(path).body["metadata"]["deletionGracePeriodSeconds"] == 5


@pytest.mark.parametrize("state", ["unscheduled", "Succeeded", "Failed"])
def test_pods_that_no_kubelet_runs_go_at_once(api: Api, state: str) -> None:
    path = f"{PODS.path(api.ns)}/a"
    body = pod("a", nodeSelector={"nobody": "has-it"}) if state == "unscheduled" else pod("a", node="nowhere")
    api.made(PODS.path(api.ns), body)
    if state != "unscheduled":
        api.merge(f"{path}/status", {"status": {"phase": state}})
    gone = api.delete(path)
    assert (gone.status, gone.body["kind"]) == (200, "Pod")
    assert api.get(path).status == 404


def test_a_finalizer_holds_a_pod_beyond_its_grace(api: Api) -> None:
    path = f"{PODS.path(api.ns)}/a"
    body = pod("a", node="nowhere")
    body["metadata"]["finalizers"] = [HOLD]
    api.made(PODS.path(api.ns), body)
    api.delete(path)
    held = api.delete(path, gracePeriodSeconds=0).body["metadata"]
    assert (held["deletionGracePeriodSeconds"], held["finalizers"]) == (0, [HOLD])
    api.merge(path, {"metadata": {"finalizers": None}})
    assert api.get(path).status == 404


def test_kubelets_end_pods(api: Api) -> None:
    node = api.node()
    path = f"{PODS.path(api.ns)}/a"
    api.made(PODS.path(api.ns), pod("a", nodeSelector={"test": api.ns}))
    running = api.when(path, lambda one: one["status"]["phase"] == "Running")
    assert running["spec"]["nodeName"] == node
    told = {(one["type"], one["status"]) for one in running["status"]["conditions"]}
    assert told >= {("Ready", "True"), ("PodScheduled", "True")}
    api.delete(path)
    api.gone(path)


def test_dependents_go_after_their_owner_in_the_background(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    owner = api.made(path, config_map("owner"))
    for name in ("one", "two"):
        body = config_map(name)
        body["metadata"]["ownerReferences"] = owned_by(owner)
        api.made(path, body)
    gone = api.delete(f"{path}/owner", propagationPolicy="Background")
    assert gone.body["status"] == "Success"
    api.gone(f"{path}/one")
    api.gone(f"{path}/two")


def test_an_owner_waits_in_the_foreground_for_those_that_block_it(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    owner = api.made(path, config_map("owner"))
    held = {"metadata": {"name": "held", "finalizers": [HOLD], "ownerReferences": owned_by(owner, blocks=True)}}
    api.made(path, held)
    marked = api.delete(f"{path}/owner", propagationPolicy="Foreground")
    assert marked.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    api.when(f"{path}/held", lambda one: one["metadata"].get("deletionTimestamp"))
    assert api.get(f"{path}/owner").status == 200
    api.merge(f"{path}/held", {"metadata": {"finalizers": None}})
    api.gone(f"{path}/owner")


def test_orphans_stay_without_their_owner(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    owner = api.made(path, config_map("owner"))
    api.made(path, {"metadata": {"name": "orphan", "ownerReferences": owned_by(owner)}})
    marked = api.delete(f"{path}/owner", propagationPolicy="Orphan")
    assert marked.body["metadata"]["finalizers"] == ["orphan"]
    api.gone(f"{path}/owner")
    assert "ownerReferences" not in api.get(f"{path}/orphan").body["metadata"]


def test_one_of_two_owners_is_enough_to_live(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    first, second = api.made(path, config_map("first")), api.made(path, config_map("second"))
    api.made(path, {"metadata": {"name": "child", "ownerReferences": owned_by(first) + owned_by(second)}})
    api.delete(f"{path}/first")
    child = api.when(f"{path}/child", lambda one: len(one["metadata"]["ownerReferences"]) == 1)
    assert child["metadata"]["ownerReferences"][0]["name"] == "second"
    api.delete(f"{path}/second")
    api.gone(f"{path}/child")


def test_an_owner_that_never_was_takes_its_dependents_along(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobody", "uid": "no-such-uid"}}
    api.made(path, {"metadata": {"name": "child", "ownerReferences": owned_by(nobody)}})
    api.gone(f"{path}/child")


def test_a_daemon_set_takes_its_pods_along_or_leaves_them(api: Api) -> None:
    api.node()
    path = DAEMON_SETS.path(api.ns)
    for name in ("left", "taken"):
        api.made(path, workload("DaemonSet", name, template={"nodeSelector": {"test": api.ns}}))
        api.until(PODS.path(api.ns), lambda found: len(found) == 1, labelSelector=f"app={name}")
    api.delete(f"{path}/left", propagationPolicy="Orphan")
    api.delete(f"{path}/taken")
    api.gone(f"{path}/left")
    api.until(PODS.path(api.ns), lambda found: not found, labelSelector="app=taken")
    left = api.get(PODS.path(api.ns), labelSelector="app=left").body["items"]
    assert ["ownerReferences" in one["metadata"] for one in left] == [False]


def test_an_unknown_propagation_policy_is_refused(api: Api) -> None:
    api.made(CONFIG_MAPS.path(api.ns), config_map("a"))
    reply = api.delete(f"{CONFIG_MAPS.path(api.ns)}/a", {"propagationPolicy": "Sideways"})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "propagationPolicy" in reply.message
