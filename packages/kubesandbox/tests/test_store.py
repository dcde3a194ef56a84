"""The rules of writing that every resource type shares."""

from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import errors
from kubesandbox.store import Event, Store, copy


@pytest.fixture
def store() -> Store:
    return Store(now=lambda: 1_700_000_000.0, seed=7)


def pod(name: str | None = "a", node: str | None = "n1", **meta: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30}
    if node:
        spec["nodeName"] = node
    return {"metadata": {**({"name": name} if name else {}), "namespace": "default", **meta}, "spec": spec}


def daemon_set(**spec: Any) -> dict[str, Any]:
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"metadata": {"name": "d", "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


def test_create_fills_what_the_server_owns(store: Store) -> None:
    made = store.create("pods", pod())
    meta = made["metadata"]
    assert (made["apiVersion"], made["kind"]) == ("v1", "Pod")
    assert meta["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert meta["resourceVersion"] == str(store.version)
    assert len(meta["uid"]) == 36
    assert meta["generation"] == 1
    assert "generation" not in store.create("configmaps", {"metadata": {"name": "a"}})["metadata"]


def test_what_was_in_another_cluster_is_restored_as_it_was_there(store: Store) -> None:
    kept: dict[str, Any] = {"uid": "of-old", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 7,
            "deletionTimestamp": "2020-01-02T00:00:00Z"}
    made = store.restore("pods", pod(**kept) | {"status": {"phase": "Running"}})
    assert {key: made["metadata"][key] for key in kept} == kept
    assert made["status"]["phase"] == "Running"
    assert made["metadata"]["resourceVersion"] == str(store.version)
    assert store.restore("pods", pod("b"))["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    with pytest.raises(errors.AlreadyExists):
        store.restore("pods", pod())


def test_same_seed_gives_same_names() -> None:
    names = []
    for _ in range(2):
        fresh = Store(now=lambda: 0.0, seed=3)
        made = fresh.create("pods", pod(None, generateName="job-"))
        names.append((made["metadata"]["name"], made["metadata"]["uid"]))
    assert names[0] == names[1]
    assert names[0][0].startswith("job-")
    assert len(names[0][0]) == 9


def test_create_refuses(store: Store) -> None:
    store.create("pods", pod())
    with pytest.raises(errors.AlreadyExists, match='pods "a" already exists'):
        store.create("pods", pod())
    with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
        store.create("pods", pod(namespace="nowhere"))
    with pytest.raises(errors.Invalid, match=r"metadata\.name: Required value"):
        store.create("pods", {"metadata": {}})


def test_stored_objects_are_not_the_callers(store: Store) -> None:
    mine = pod(labels={"a": "b"})
    store.create("pods", mine)
    mine["metadata"]["labels"]["a"] = "c"
    assert store.get("pods", "default", "a")["metadata"]["labels"] == {"a": "b"}


def test_update_without_change_moves_no_version(store: Store) -> None:
    made = store.create("pods", pod())
    seen: list[Event] = []
    store.subscribe(seen.append)
    again = store.update("pods", {**copy(made), "metadata": {**made["metadata"], "managedFields": [{"manager": "x"}]}})
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert seen == []


def test_update_with_an_old_version_conflicts(store: Store) -> None:
    old = store.create("pods", pod())
    store.modify("pods", "default", "a", lambda p: p["metadata"].update(labels={"x": "1"}))
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        store.update("pods", old)
    with pytest.raises(errors.Conflict, match="UID in precondition"):
        store.update("pods", pod(uid="other"))


@pytest.mark.parametrize(("change", "generation"), [
    (lambda d: d["spec"].update(revisionHistoryLimit=5), 2),
    (lambda d: d["metadata"].update(labels={"x": "y"}), 1),
    (lambda d: d.update(status={"numberReady": 4}), 1),
    (lambda d: d["spec"]["template"]["spec"].pop("dnsPolicy"), 1),
])
def test_generation_counts_spec_changes_only(store: Store, change: Any, generation: int) -> None:
    store.create("daemonsets.apps", daemon_set())
    after = store.modify("daemonsets.apps", "default", "d", change)
    assert after["metadata"]["generation"] == generation
    assert after["status"]["numberReady"] == 0


def test_status_writes_leave_the_spec_alone(store: Store) -> None:
    made = copy(store.create("daemonsets.apps", daemon_set(revisionHistoryLimit=3)))
    made["spec"]["revisionHistoryLimit"] = 9
    made["status"] = {"numberReady": 1}
    after = store.update("daemonsets.apps", made, subresource="status")
    assert after["spec"]["revisionHistoryLimit"] == 3
    assert after["status"]["numberReady"] == 1
    again = store.patch_status("daemonsets.apps", "default", "d", lambda d: d["status"].update(numberReady=2))
    assert again["status"]["numberReady"] == 2
    assert after["status"]["numberReady"] == 1


@pytest.mark.parametrize(("node", "phase", "grace", "left"), [
    ("n1", None, None, 30),
    ("n1", None, 5, 5),
    ("n1", None, 0, None),
    (None, None, None, None),
    ("n1", "Succeeded", None, None),
])
def test_pods_end_gracefully_when_a_kubelet_has_them(
    store: Store, node: str | None, phase: str | None, grace: int | None, left: int | None,
) -> None:
    store.create("pods", pod(node=node))
    if phase:
        store.patch_status("pods", "default", "a", lambda p: p["status"].update(phase=phase))
    store.delete("pods", "default", "a", grace_seconds=grace)
    found = store.find("pods", "default", "a")
    assert (found and found["metadata"]["deletionGracePeriodSeconds"]) == left
    if found:
        store.remove("pods", "default", "a")
        assert store.find("pods", "default", "a") is None


def test_a_second_delete_can_only_shorten_the_grace(store: Store) -> None:
    store.create("pods", pod())
    first = store.delete("pods", "default", "a")
    assert store.delete("pods", "default", "a", grace_seconds=60) is first
    second = store.delete("pods", "default", "a", grace_seconds=10)
    assert second["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:30Z"


def test_finalizers_hold_an_object_until_the_last_is_gone(store: Store) -> None:
    store.create("configmaps", {"metadata": {"name": "c", "finalizers": ["x/y"]}})
    store.delete("configmaps", "default", "c")
    assert store.get("configmaps", "default", "c")["metadata"]["deletionTimestamp"]
    with pytest.raises(errors.Invalid, match="no new finalizers can be added"):
        store.modify("configmaps", "default", "c", lambda c: c["metadata"]["finalizers"].append("z/z"))
    store.modify("configmaps", "default", "c", lambda c: c["metadata"].update(finalizers=[]))
    assert store.find("configmaps", "default", "c") is None


def test_propagation_leaves_its_finalizer(store: Store) -> None:
    store.create("daemonsets.apps", daemon_set())
    marked = store.delete("daemonsets.apps", "default", "d", propagation="Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert marked["metadata"]["generation"] == 2


def test_delete_preconditions(store: Store) -> None:
    made = store.create("pods", pod())
    with pytest.raises(errors.Conflict):
        store.delete("pods", "default", "a", uid="other")
    with pytest.raises(errors.Conflict):
        store.delete("pods", "default", "a", resource_version="1")
    meta = made["metadata"]
    store.delete("pods", "default", "a", uid=meta["uid"], resource_version=meta["resourceVersion"])


def test_watch_history_and_compaction(store: Store) -> None:
    start = store.version
    made = store.create("pods", pod())
    store.modify("pods", "default", "a", lambda p: p["metadata"].update(labels={"x": "1"}))
    store.delete("pods", "default", "a", grace_seconds=0)
    assert [event.type for event in store.events_since("pods", start)] == ["ADDED", "MODIFIED", "DELETED"]
    after = store.events_since("pods", int(made["metadata"]["resourceVersion"]))
    assert [event.type for event in after] == ["MODIFIED", "DELETED"]
    store.compact(store.version)
    with pytest.raises(errors.Gone, match="too old resource version"):
        store.events_since("pods", start)
    assert store.events_since("pods", store.version) == []


def test_history_is_bounded() -> None:
    store = Store(now=lambda: 0.0, history=2)
    first, *_ = [int(store.create("pods", pod(name))["metadata"]["resourceVersion"]) for name in "abc"]
    with pytest.raises(errors.Gone):
        store.events_since("pods", first - 1)
    assert len(store.events_since("pods", first)) == 2


def test_every_subscriber_sees_changes_in_order(store: Store) -> None:
    seen: list[str] = []

    def react(event: Event) -> None:
        if event.type == "ADDED":
            store.patch_status("pods", "default", "a", lambda p: p["status"].update(phase="Running"))

    store.subscribe(react, "pods")
    stop = store.subscribe(lambda event: seen.append(event.type), "pods")
    store.create("pods", pod())
    stop()
    store.modify("pods", "default", "a", lambda p: p["metadata"].update(labels={"x": "1"}))
    assert seen == ["ADDED", "MODIFIED"]


def test_list_is_sorted_and_can_be_of_one_namespace(store: Store) -> None:
    for namespace, name in (("kube-system", "b"), ("default", "z"), ("default", "a")):
        store.create("pods", pod(name, namespace=namespace))
    assert [p["metadata"]["name"] for p in store.list("pods")] == ["a", "z", "b"]
    assert [p["metadata"]["name"] for p in store.list("pods", "default")] == ["a", "z"]


def test_pods_are_found_by_node(store: Store) -> None:
    store.create("pods", pod("a", node="n1"))
    store.bind(store.create("pods", pod("b", node=None)), "n1")
    assert [p["metadata"]["name"] for p in store.lookup("pods", "node", "n1")] == ["a", "b"]
    store.remove("pods", "default", "a")
    assert [p["metadata"]["name"] for p in store.lookup("pods", "node", "n1")] == ["b"]


def test_a_namespace_stays_until_it_is_finalized(store: Store) -> None:
    store.create("namespaces", {"metadata": {"name": "short"}})
    store.delete("namespaces", None, "short")
    assert store.get("namespaces", None, "short")["status"]["phase"] == "Terminating"
    with pytest.raises(errors.Forbidden, match="being terminated"):
        store.create("pods", pod(namespace="short"))
    store.modify("namespaces", None, "short", lambda n: n["spec"].update(finalizers=[]))
    assert store.find("namespaces", None, "short") is None
