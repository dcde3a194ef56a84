"""How objects end: finalizers, grace periods, owners."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from gpuward.kube.resources import CONFIG_MAPS, DAEMON_SETS, NAMESPACES, PODS, RUNTIME_CLASSES
from tests.contract.api import Api, Object
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


def child(name: str, *owners: Object, **more: Any) -> Object:
    """Return a ConfigMap that belongs to others."""
    references = [one for owner in owners for one in owned_by(owner, blocks=True)]
    return {"metadata": {"name": name, "ownerReferences": references, **more}}


def test_an_owner_of_the_same_name_is_another_one(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    first = api.made(path, config_map("owner"))
    api.made(path, child("child", first))
    api.delete(f"{path}/owner", propagationPolicy="Orphan")
    api.gone(f"{path}/owner")
    api.made(path, config_map("owner"))
    # Its reference was taken out, so it lives; one that still names the first owner does not.
    assert "ownerReferences" not in api.get(f"{path}/child").body["metadata"]
    api.made(path, child("late", first))
    api.gone(f"{path}/late")
    assert api.get(f"{path}/child").status == 200


def test_a_cluster_scoped_owner_takes_its_dependents_in_namespaces_along(api: Api) -> None:
    owner = api.cluster_wide(RUNTIME_CLASSES.path(), {"metadata": {"name": f"{api.ns}-owner"}, "handler": "x"})
    path = CONFIG_MAPS.path(api.ns)
    api.made(path, child("child", owner))
    api.delete(f"{RUNTIME_CLASSES.path()}/{api.ns}-owner")
    api.gone(f"{path}/child")


def test_an_owner_in_another_namespace_counts_as_absent(api: Api) -> None:
    inner = f"{api.ns}-inner"
    api.cluster_wide(NAMESPACES.path(), {"metadata": {"name": inner}})
    owner = api.made(CONFIG_MAPS.path(inner), config_map("owner"))
    api.made(CONFIG_MAPS.path(api.ns), child("child", owner))
    api.gone(f"{CONFIG_MAPS.path(api.ns)}/child")


def test_nothing_is_done_about_owners_that_cannot_be(api: Api) -> None:
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobody", "uid": "1"}}
    unknown = {"apiVersion": "nobody.example.com/v1", "kind": "Thing", "metadata": {"name": "nobody", "uid": "2"}}
    cluster_wide = child(f"{api.ns}-child", nobody)
    api.cluster_wide(RUNTIME_CLASSES.path(), {**cluster_wide, "handler": "x"})
    path = CONFIG_MAPS.path(api.ns)
    api.made(path, child("child", unknown))
    api.made(path, child("witness", nobody))
    api.gone(f"{path}/witness")
    assert api.get(f"{path}/child").status == 200
    assert api.get(f"{RUNTIME_CLASSES.path()}/{api.ns}-child").status == 200


def test_foreground_deletion_goes_down_the_tree_and_comes_up_again(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    top = api.made(path, config_map("top"))
    middle = api.made(path, child("middle", top))
    api.made(path, child("leaf", middle, finalizers=[HOLD]))
    api.delete(f"{path}/top", propagationPolicy="Foreground")
    api.when(f"{path}/leaf", lambda one: one["metadata"].get("deletionTimestamp"))
    waiting = api.get(f"{path}/middle").body["metadata"]
    assert (waiting["finalizers"], bool(waiting.get("deletionTimestamp"))) == (["foregroundDeletion"], True)
    assert api.get(f"{path}/top").status == 200
    api.merge(f"{path}/leaf", {"metadata": {"finalizers": None}})
    for name in ("leaf", "middle", "top"):
        api.gone(f"{path}/{name}")


def test_who_has_another_owner_outlives_one_that_goes_in_the_foreground(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    goes, stays = api.made(path, config_map("goes")), api.made(path, config_map("stays"))
    api.made(path, child("child", goes, stays))
    api.delete(f"{path}/goes", propagationPolicy="Foreground")
    api.gone(f"{path}/goes")
    left = api.get(f"{path}/child").body["metadata"]
    assert [one["name"] for one in left["ownerReferences"]] == ["stays"]


def test_dependents_that_do_not_block_go_too_and_are_not_waited_for(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    owner = api.made(path, config_map("owner"))
    held = {"metadata": {"name": "held", "finalizers": [HOLD], "ownerReferences": owned_by(owner)}}
    api.made(path, held)
    api.delete(f"{path}/owner", propagationPolicy="Foreground")
    api.gone(f"{path}/owner")
    api.when(f"{path}/held", lambda one: one["metadata"].get("deletionTimestamp"))
    api.merge(f"{path}/held", {"metadata": {"finalizers": None}})


def test_a_namespace_that_ends_takes_nothing_new_and_waits_for_its_pods(api: Api) -> None:
    inner = f"{api.ns}-inner"
    api.cluster_wide(NAMESPACES.path(), {"metadata": {"name": inner}})
    body = pod("a", node="nowhere")
    body["metadata"]["finalizers"] = [HOLD]
    at = f"{PODS.path(inner)}/a"
    api.made(PODS.path(inner), body)
    api.delete(NAMESPACES.path("", inner))
    api.when(at, lambda one: one["metadata"].get("deletionTimestamp"))
    refused = api.post(PODS.path(inner), pod("b"))
    assert (refused.status, {reason for reason, _ in refused.causes}) == (403, {"NamespaceTerminating"})
    evicted = api.post(f"{at}/eviction", {"metadata": {"name": "a", "namespace": inner}})
    assert (evicted.status, evicted.message) == (403, (
        f'pods "a" is forbidden: unable to create new content in namespace {inner} because it is being terminated'))
    api.merge(at, {"metadata": {"finalizers": None}})
    api.delete(at, gracePeriodSeconds=0)
    api.gone(NAMESPACES.path("", inner))


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_cannot_be_deleted(api: Api, name: str) -> None:
    refused = api.delete(NAMESPACES.path("", name))
    assert (refused.status, refused.message) == (403, f'namespaces "{name}" is forbidden: this namespace may not be deleted')


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
