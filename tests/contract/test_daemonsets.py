"""DaemonSets: which nodes get a pod, what a revision is, and when a pod is replaced."""

from __future__ import annotations

from gpuward.kube.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from tests.contract.api import Api, Object
from tests.contract.objects import workload

HASH = "controller-revision-hash"
HOLD = "example.com/hold"


def daemon_set(api: Api, strategy: str = "OnDelete", **template: object) -> Object:
    spec = {"nodeSelector": {"test": api.ns}, **template}
    return workload("DaemonSet", "agent", template=spec, updateStrategy={"type": strategy})


def running(api: Api, count: int) -> list[Object]:
    """Wait for so many ready pods, none of which is on its way out."""
    return api.until(PODS.path(api.ns), lambda found: len(found) == count and all(
        not one["metadata"].get("deletionTimestamp") and one["status"].get("phase") == "Running" for one in found))


def settled(api: Api, **status: int) -> Object:
    """Wait until the DaemonSet's status follows its newest generation and says this."""
    return api.when(f"{DAEMON_SETS.path(api.ns)}/agent", lambda one: (
        one["status"].get("observedGeneration") == one["metadata"]["generation"]
        and all(one["status"].get(name, 0) == value for name, value in status.items())))


def change_image(api: Api, image: str) -> Object:
    reply = api.strategic(f"{DAEMON_SETS.path(api.ns)}/agent", {"spec": {"template": {"spec": {"containers": [
        {"name": "main", "image": image}]}}}})
    assert reply.status == 200, reply.body
    return dict(reply.body)


def test_every_node_that_fits_gets_one_pod(api: Api) -> None:
    first, second = api.node("a"), api.node("b")
    api.node("c", labels={"test": "other"})
    made = api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    pods = running(api, 2)
    assert {one["spec"]["nodeName"] for one in pods} == {first, second}
    for one in pods:
        owner = one["metadata"]["ownerReferences"]
        assert owner == [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": made["metadata"]["uid"],
                          "controller": True, "blockOwnerDeletion": True}]
        assert one["metadata"]["generateName"] == "agent-"
        assert one["metadata"]["labels"]["pod-template-generation"] == "1"
        wanted = one["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert wanted == {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [one["spec"]["nodeName"]]}]}]}
        assert {each["key"] for each in one["spec"]["tolerations"]} == {f"node.kubernetes.io/{name}" for name in (
            "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")}
    done = settled(api, desiredNumberScheduled=2, numberReady=2)["status"]
    assert done["currentNumberScheduled"] == done["updatedNumberScheduled"] == done["numberAvailable"] == 2
    assert (done["numberMisscheduled"], done.get("numberUnavailable", 0)) == (0, 0)


def test_a_pod_carries_the_hash_of_its_revision(api: Api) -> None:
    api.node()
    made = api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    (pod,) = running(api, 1)
    (revision,) = api.get(CONTROLLER_REVISIONS.path(api.ns)).body["items"]
    code = revision["metadata"]["labels"][HASH]
    assert pod["metadata"]["labels"][HASH] == code
    assert revision["metadata"]["name"] == f"agent-{code}"
    assert (revision["revision"], revision["metadata"]["labels"]["app"]) == (1, "agent")
    assert revision["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    template = revision["data"]["spec"]["template"]
    assert template["$patch"] == "replace"
    assert template["spec"]["containers"][0]["image"] == "registry.example/app:1"


def test_on_delete_replaces_a_pod_only_when_somebody_deletes_it(api: Api) -> None:
    api.node()
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    (old,) = running(api, 1)
    changed = change_image(api, "registry.example/app:2")
    assert changed["metadata"]["generation"] == 2
    settled(api, desiredNumberScheduled=1, updatedNumberScheduled=0)
    assert [one["metadata"]["uid"] for one in running(api, 1)] == [old["metadata"]["uid"]]
    revisions = api.get(CONTROLLER_REVISIONS.path(api.ns)).body["items"]
    newest = max(revisions, key=lambda one: one["revision"])
    assert sorted(one["revision"] for one in revisions) == [1, 2]
    api.delete(f"{PODS.path(api.ns)}/{old['metadata']['name']}")
    (new,) = api.until(PODS.path(api.ns), lambda found: len(found) == 1 and (
        found[0]["metadata"]["uid"] != old["metadata"]["uid"] and found[0]["status"].get("phase") == "Running"))
    assert new["spec"]["containers"][0]["image"] == "registry.example/app:2"
    assert new["metadata"]["labels"][HASH] == newest["metadata"]["labels"][HASH]
    assert new["metadata"]["labels"]["pod-template-generation"] == "2"
    settled(api, updatedNumberScheduled=1, numberReady=1)


def test_going_back_reuses_the_old_revision_under_a_new_number(api: Api) -> None:
    api.node()
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    (pod,) = running(api, 1)
    change_image(api, "registry.example/app:2")
    settled(api, updatedNumberScheduled=0)
    change_image(api, "registry.example/app:1")
    settled(api, updatedNumberScheduled=1)
    listed = api.get(CONTROLLER_REVISIONS.path(api.ns)).body["items"]
    revisions = {one["revision"]: one["metadata"]["labels"][HASH] for one in listed}
    assert sorted(revisions) == [2, 3]
    assert revisions[3] == pod["metadata"]["labels"][HASH]


def test_no_replacement_before_the_old_pod_is_gone(api: Api) -> None:
    api.node()
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    (old,) = running(api, 1)
    at = f"{PODS.path(api.ns)}/{old['metadata']['name']}"
    api.strategic(at, {"metadata": {"finalizers": [HOLD]}})
    api.delete(at)
    change_image(api, "registry.example/app:2")
    settled(api, desiredNumberScheduled=1)
    listed = api.get(PODS.path(api.ns)).body["items"]
    assert [one["metadata"]["uid"] for one in listed] == [old["metadata"]["uid"]]
    version = api.get(at).body["metadata"]["resourceVersion"]
    with api.watching(PODS.path(api.ns), resourceVersion=version, timeoutSeconds=10) as watch:
        api.merge(at, {"metadata": {"finalizers": None}})
        kinds = [(event["type"], event["object"]["metadata"]["uid"] == old["metadata"]["uid"])
                 for event in (watch.next() for _ in range(3)) if event["type"] in ("ADDED", "DELETED")]
    assert kinds[:2] == [("DELETED", True), ("ADDED", False)]


def test_a_rolling_update_replaces_pods_one_after_the_other(api: Api) -> None:
    for suffix in "abc":
        api.node(suffix)
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api, "RollingUpdate"))
    running(api, 3)
    settled(api, numberReady=3)
    version = api.get(PODS.path(api.ns)).body["metadata"]["resourceVersion"]
    change_image(api, "registry.example/app:2")
    settled(api, updatedNumberScheduled=3, numberReady=3)
    with api.watching(PODS.path(api.ns), resourceVersion=version, timeoutSeconds=1) as watch:
        events = watch.until_end()
    gone = {event["object"]["spec"]["nodeName"] for event in events if event["type"] == "DELETED"}
    assert len(gone) == 3
    down: set[str] = set()
    for event in events:
        one = event["object"]
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in one["status"].get("conditions") or ())
        node = one["spec"].get("nodeName")
        if event["type"] == "DELETED" or one["metadata"].get("deletionTimestamp") or not ready:
            down |= {node} if node else set()
        else:
            down.discard(node)
        assert len(down) <= 1, events


def test_pods_leave_a_node_that_fits_no_longer(api: Api) -> None:
    first, second = api.node("a"), api.node("b")
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    running(api, 2)
    api.merge(NODES.path("", first), {"metadata": {"labels": {"test": None}}})
    (left,) = running(api, 1)
    assert left["spec"]["nodeName"] == second
    settled(api, desiredNumberScheduled=1, numberMisscheduled=0)
    api.merge(NODES.path("", first), {"metadata": {"labels": {"test": api.ns}}})
    running(api, 2)


def test_a_changed_selector_moves_pods_under_on_delete_too(api: Api) -> None:
    first, second = api.node("a", labels={"pool": "one"}), api.node("b", labels={"pool": "two"})
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    running(api, 2)
    api.strategic(f"{DAEMON_SETS.path(api.ns)}/agent", {"spec": {"template": {"spec": {"nodeSelector": {"pool": "two"}}}}})
    (left,) = running(api, 1)
    assert left["spec"]["nodeName"] == second != first
    settled(api, desiredNumberScheduled=1, updatedNumberScheduled=0)


def test_taints_keep_pods_away_and_drive_them_out(api: Api) -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    free, tainted = api.node("a"), api.node("b", taints=[taint])
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    (pod,) = running(api, 1)
    assert pod["spec"]["nodeName"] == free
    api.merge(NODES.path("", free), {"spec": {"taints": [{**taint, "key": "late"}]}})
    api.strategic(f"{DAEMON_SETS.path(api.ns)}/agent", {"spec": {"template": {"spec": {"tolerations": [
        {"key": "gpu", "operator": "Exists"}]}}}})
    pods = running(api, 2)
    assert {one["spec"]["nodeName"] for one in pods} == {free, tainted}
    # A pod stays where NoSchedule came later, and leaves where NoExecute does.
    settled(api, desiredNumberScheduled=1, numberMisscheduled=1)
    api.merge(NODES.path("", free), {"spec": {"taints": [{**taint, "key": "late", "effect": "NoExecute"}]}})
    (left,) = running(api, 1)
    assert left["spec"]["nodeName"] == tainted


def test_a_cordon_keeps_no_daemon_away(api: Api) -> None:
    node = api.node()
    api.merge(NODES.path("", node), {"spec": {"unschedulable": True}})
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    (pod,) = running(api, 1)
    assert pod["spec"]["nodeName"] == node


def test_a_failed_pod_is_replaced(api: Api) -> None:
    api.node()
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    (old,) = running(api, 1)
    api.merge(f"{PODS.path(api.ns)}/{old['metadata']['name']}/status", {"status": {"phase": "Failed"}})
    api.until(PODS.path(api.ns), lambda found: len(found) == 1 and found[0]["metadata"]["uid"] != old["metadata"]["uid"])


def test_the_selector_cannot_change_and_must_fit(api: Api) -> None:
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    at = f"{DAEMON_SETS.path(api.ns)}/agent"
    changed = api.merge(at, {"spec": {"selector": {"matchLabels": {"other": "x"}}}})
    assert (changed.status, ("FieldValueInvalid", "spec.selector") in changed.causes) == (422, True)
    bad = daemon_set(api)
    bad["metadata"]["name"] = "bad"
    bad["spec"]["selector"] = {"matchLabels": {"app": "else"}}
    refused = api.post(DAEMON_SETS.path(api.ns), bad)
    assert (refused.status, refused.causes) == (422, {("FieldValueInvalid", "spec.template.metadata.labels")})


def test_metadata_alone_moves_no_generation_and_annotations_of_the_template_do(api: Api) -> None:
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    at = f"{DAEMON_SETS.path(api.ns)}/agent"
    assert api.merge(at, {"metadata": {"annotations": {"a": "b"}}}).body["metadata"]["generation"] == 1
    assert api.merge(at, {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}).body["metadata"]["generation"] == 2
    assert api.merge(at, {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}).body["metadata"]["generation"] == 2


def test_the_current_revision_is_made_anew_when_it_is_deleted_and_an_old_one_is_not(api: Api) -> None:
    api.node()
    api.made(DAEMON_SETS.path(api.ns), daemon_set(api))
    (pod,) = running(api, 1)
    change_image(api, "registry.example/app:2")
    settled(api, updatedNumberScheduled=0)
    change_image(api, "registry.example/app:1")
    made = settled(api, updatedNumberScheduled=1)
    assert made["metadata"]["annotations"]["deprecated.daemonset.template.generation"] == "3"
    at = CONTROLLER_REVISIONS.path(api.ns)
    before = {one["revision"]: one["metadata"] for one in api.get(at).body["items"]}
    api.delete(f"{at}/{before[2]['name']}")
    api.delete(f"{at}/{before[3]['name']}")
    (anew,) = api.until(at, lambda found: len(found) == 1 and found[0]["metadata"]["uid"] != before[3]["uid"])
    assert anew["metadata"]["name"] == before[3]["name"]
    assert anew["metadata"]["labels"][HASH] == pod["metadata"]["labels"][HASH]
    assert [one["metadata"]["uid"] for one in running(api, 1)] == [pod["metadata"]["uid"]]
