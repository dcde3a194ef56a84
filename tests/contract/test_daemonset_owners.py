"""Whose pods and revisions are whose: adoption, release, and what a DaemonSet leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.kube.resources import CONTROLLER_REVISIONS, DAEMON_SETS, EVENTS, NODES, PODS
from tests.contract.api import Api, Object
from tests.contract.objects import pod, workload

HASH = "controller-revision-hash"


def daemon_set(api: Api, name: str = "agent", *, selector: dict[str, str] | None = None, image: str = "registry.example/app:1",
               strategy: str = "OnDelete", **template: Any) -> Object:
    """Return a DaemonSet for the test's nodes; with `selector` it shares its pods' labels with others."""
    body = workload("DaemonSet", name, template={"nodeSelector": {"test": api.ns}, **template}, updateStrategy={"type": strategy})
    if selector is not None:
        body["spec"]["selector"]["matchLabels"] = body["spec"]["template"]["metadata"]["labels"] = selector
    body["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return body


def made(api: Api, body: Object) -> Object:
    return api.made(DAEMON_SETS.path(api.ns), body)


def leave(api: Api, name: str = "agent") -> None:
    """Delete a DaemonSet as `kubectl delete --cascade=orphan` does."""
    api.delete(f"{DAEMON_SETS.path(api.ns)}/{name}", propagationPolicy="Orphan")
    api.gone(f"{DAEMON_SETS.path(api.ns)}/{name}")


def pods(api: Api, count: int, owner: str | None = None) -> list[Object]:
    """Wait for so many running pods, all of an owner (by uid) if one is given."""
    return api.until(PODS.path(api.ns), lambda found: len(found) == count and all(
        not one["metadata"].get("deletionTimestamp") and one["status"].get("phase") == "Running"
        and (owner is None or owners(one) == [owner]) for one in found))


def owners(obj: Object) -> list[str]:
    return [one["uid"] for one in obj["metadata"].get("ownerReferences") or ()]


def uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def revisions(api: Api) -> list[Object]:
    return list(api.get(CONTROLLER_REVISIONS.path(api.ns)).body["items"])


def test_pods_left_behind_are_adopted_by_the_next_one_that_selects_them(api: Api) -> None:
    api.node()
    made(api, daemon_set(api))
    (old,) = pods(api, 1)
    leave(api)
    assert owners(api.get(f"{PODS.path(api.ns)}/{old['metadata']['name']}").body) == []
    second = made(api, daemon_set(api))
    (adopted,) = pods(api, 1, uid(second))
    assert uid(adopted) == uid(old)
    # So is the revision: the same template has the same hash, and the pod is up to date.
    api.until(CONTROLLER_REVISIONS.path(api.ns), lambda found: [owners(one) for one in found] == [[uid(second)]])
    assert [one["metadata"]["labels"][HASH] for one in revisions(api)] == [old["metadata"]["labels"][HASH]]
    done = api.when(f"{DAEMON_SETS.path(api.ns)}/agent", lambda one: one["status"].get("updatedNumberScheduled") == 1)
    assert done["status"].get("collisionCount", 0) == 0


@pytest.mark.parametrize("changes", [0, 1])
def test_an_adopted_pod_passes_for_updated_where_both_templates_have_changed_equally_often(api: Api, changes: int) -> None:
    api.node()
    made(api, daemon_set(api))
    (old,) = pods(api, 1)
    leave(api)
    second = made(api, daemon_set(api, image="registry.example/app:2", strategy="OnDelete"))
    (adopted,) = pods(api, 1, uid(second))
    assert uid(adopted) == uid(old)
    if changes:
        api.strategic(f"{DAEMON_SETS.path(api.ns)}/agent", {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}})
    api.when(f"{DAEMON_SETS.path(api.ns)}/agent", lambda one: (
        one["status"].get("observedGeneration") == 1 + changes and one["status"]["currentNumberScheduled"] == 1
        and one["status"].get("updatedNumberScheduled", 0) == 1 - changes))
    found = api.until(CONTROLLER_REVISIONS.path(api.ns), lambda listed: len(listed) == 2 + changes)
    assert {one["revision"]: owners(one) for one in found} == {number: [uid(second)] for number in range(1, 3 + changes)}


def test_the_first_that_selects_orphans_takes_them_all_and_deletes_those_on_other_nodes(api: Api) -> None:
    api.node("a", labels={"kernel": "one"})
    api.node("b", labels={"kernel": "two"})
    shared = {"app": "driver"}
    made(api, daemon_set(api, selector=shared))
    old = {one["spec"]["nodeName"]: uid(one) for one in pods(api, 2)}
    leave(api)
    first = made(api, daemon_set(api, "one", selector=shared, nodeSelector={"test": api.ns, "kernel": "one"}))
    (kept,) = pods(api, 1, uid(first))
    assert uid(kept) == old[f"{api.ns}-a"]
    second = made(api, daemon_set(api, "two", selector=shared, nodeSelector={"test": api.ns, "kernel": "two"}))
    found = pods(api, 2)
    assert {one["spec"]["nodeName"]: owners(one) for one in found} == {
        f"{api.ns}-a": [uid(first)], f"{api.ns}-b": [uid(second)]}
    assert uid(next(one for one in found if owners(one) == [uid(second)])) not in old.values()


def test_who_adopts_a_pod_adopts_its_revisions_too_and_its_own_stays_the_newest(api: Api) -> None:
    api.node()
    made(api, daemon_set(api, "one", selector={"app": "driver", "kernel": "one"}))
    pods(api, 1)
    api.strategic(f"{DAEMON_SETS.path(api.ns)}/one", {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}})
    api.until(CONTROLLER_REVISIONS.path(api.ns), lambda found: len(found) == 2)
    second = made(api, daemon_set(api, "two", selector={"app": "driver"}, image="registry.example/app:2"))
    pods(api, 2)
    leave(api, "one")
    (kept,) = pods(api, 1, uid(second))
    found = api.until(CONTROLLER_REVISIONS.path(api.ns), lambda listed: all(owners(one) == [uid(second)] for one in listed)
                      and max(one["revision"] for one in listed) == 3)
    assert {one["revision"]: one["metadata"]["name"].split("-")[0] for one in found} == {1: "one", 2: "one", 3: "two"}
    assert kept["metadata"]["labels"][HASH] in {one["metadata"]["labels"][HASH] for one in found}


def test_a_revision_that_is_set_free_is_adopted_though_no_pod_changes(api: Api) -> None:
    """There is no node for either DaemonSet. The one uses a revision of the other meanwhile: it has its name and template."""
    selector = {"app": "driver", "kernel": "one"}
    made(api, daemon_set(api, "one", selector=selector))
    api.until(CONTROLLER_REVISIONS.path(api.ns), lambda found: len(found) == 1)
    leave(api, "one")
    other = made(api, daemon_set(api, "two", selector={"app": "driver"}, image="registry.example/app:2"))
    api.until(CONTROLLER_REVISIONS.path(api.ns), lambda found: [owners(one) for one in found] == [[uid(other)]] * 2)
    again = made(api, daemon_set(api, "one", selector=selector))
    api.when(f"{DAEMON_SETS.path(api.ns)}/one", lambda one: one["status"].get("observedGeneration") == 1)
    leave(api, "two")
    api.until(CONTROLLER_REVISIONS.path(api.ns), lambda found: {"one": [uid(again)], "two": []} == {
        one["metadata"]["name"].split("-")[0]: owners(one) for one in found})


def test_pods_with_a_controller_are_nobody_elses(api: Api) -> None:
    api.node()
    shared = {"app": "driver"}
    first = made(api, daemon_set(api, "one", selector=shared))
    pods(api, 1, uid(first))
    second = made(api, daemon_set(api, "two", selector=shared))
    found = pods(api, 2)
    assert sorted(owners(one) for one in found) == sorted([[uid(first)], [uid(second)]])


def test_a_pod_that_somebody_made_is_adopted_and_a_second_one_on_its_node_goes(api: Api) -> None:
    node = api.node()
    foreign = api.made(PODS.path(api.ns), pod("foreign", node=node, labels={"app": "agent"}))
    owner = made(api, daemon_set(api))
    (kept,) = pods(api, 1, uid(owner))
    assert uid(kept) == uid(foreign)
    api.made(PODS.path(api.ns), pod("second", node=node, labels={"app": "agent"}))
    api.until(PODS.path(api.ns), lambda found: [uid(one) for one in found] == [uid(foreign)])


def test_a_pod_on_its_way_out_is_not_adopted(api: Api) -> None:
    node = api.node()
    body = pod("leaving", node=node, labels={"app": "agent"})
    body["metadata"]["finalizers"] = ["example.com/hold"]
    api.made(PODS.path(api.ns), body)
    api.delete(f"{PODS.path(api.ns)}/leaving")
    owner = made(api, daemon_set(api))
    api.until(PODS.path(api.ns), lambda found: any(owners(one) == [uid(owner)] for one in found))
    assert owners(api.get(f"{PODS.path(api.ns)}/leaving").body) == []
    api.merge(f"{PODS.path(api.ns)}/leaving", {"metadata": {"finalizers": None}})


def test_a_pod_whose_labels_no_longer_match_is_set_free_and_replaced(api: Api) -> None:
    api.node()
    owner = made(api, daemon_set(api))
    (old,) = pods(api, 1)
    at = f"{PODS.path(api.ns)}/{old['metadata']['name']}"
    api.merge(at, {"metadata": {"labels": {"app": "else"}}})
    found = pods(api, 2)
    assert {uid(one): owners(one) for one in found}[uid(old)] == []
    assert sorted(len(owners(one)) for one in found) == [0, 1]
    # Given its label back it is adopted again, and one of the two goes.
    api.merge(at, {"metadata": {"labels": {"app": "agent"}}})
    pods(api, 1, uid(owner))


def test_a_daemon_set_that_waits_for_its_pods_makes_no_more(api: Api) -> None:
    api.node()
    made(api, daemon_set(api))
    (old,) = pods(api, 1)
    at = f"{PODS.path(api.ns)}/{old['metadata']['name']}"
    api.strategic(at, {"metadata": {"finalizers": ["example.com/hold"]}})
    api.delete(f"{DAEMON_SETS.path(api.ns)}/agent", propagationPolicy="Foreground")
    api.when(at, lambda one: one["metadata"].get("deletionTimestamp"))
    api.node("b")
    assert api.get(f"{DAEMON_SETS.path(api.ns)}/agent").body["metadata"]["finalizers"] == ["foregroundDeletion"]
    api.merge(at, {"metadata": {"finalizers": None}})
    api.gone(f"{DAEMON_SETS.path(api.ns)}/agent")
    assert api.get(PODS.path(api.ns)).body["items"] == []
    api.until(CONTROLLER_REVISIONS.path(api.ns), lambda found: not found)


def test_a_new_daemon_set_of_the_name_owes_nothing_to_the_old_one(api: Api) -> None:
    api.node()
    first = made(api, daemon_set(api))
    (old,) = pods(api, 1)
    api.delete(f"{DAEMON_SETS.path(api.ns)}/agent", propagationPolicy="Background")
    second = made(api, daemon_set(api))
    assert uid(second) != uid(first)
    (new,) = pods(api, 1, uid(second))
    assert uid(new) != uid(old)
    # The revision of the dead one is collected, and made anew under the name that its template gives it.
    api.until(CONTROLLER_REVISIONS.path(api.ns), lambda found: [owners(one) for one in found] == [[uid(second)]])
    assert [one["metadata"]["labels"][HASH] for one in revisions(api)] == [new["metadata"]["labels"][HASH]]


def test_a_failed_pod_is_told_of_and_replaced_later_and_later(api: Api) -> None:
    api.node()
    made(api, daemon_set(api))
    for _ in range(2):
        (old,) = pods(api, 1)
        api.merge(f"{PODS.path(api.ns)}/{old['metadata']['name']}/status", {"status": {"phase": "Failed"}})
        api.until(PODS.path(api.ns), lambda found, old=old: len(found) == 1 and uid(found[0]) != uid(old))  # type: ignore[misc]
        told = f"Found failed daemon pod {api.ns}/{old['metadata']['name']} on node {api.ns}-a, will try to kill it"
        api.until(EVENTS.path(api.ns), lambda found, told=told: any(  # type: ignore[misc]
            (one["reason"], one["message"]) == ("FailedDaemonPod", told) for one in found))


def test_a_pod_that_waits_for_a_node_goes_with_it(api: Api) -> None:
    node = api.node()
    needs = {"requests": {"cpu": "1000"}}
    made(api, daemon_set(api, containers=[{"name": "main", "image": "registry.example/app:1", "resources": needs}]))
    (waiting,) = api.until(PODS.path(api.ns), lambda found: len(found) == 1)
    assert "nodeName" not in waiting["spec"]
    api.delete(NODES.path("", node))
    # That a node goes does not wake the controller.
    api.merge(f"{DAEMON_SETS.path(api.ns)}/agent", {"metadata": {"annotations": {"look": "again"}}})
    api.until(PODS.path(api.ns), lambda found: not found)


def test_a_node_of_the_same_name_is_another_one_and_keeps_the_pods_that_are_bound_to_it(api: Api) -> None:
    node = api.node()
    owner = made(api, daemon_set(api))
    (old,) = pods(api, 1)
    before = api.get(NODES.path("", node)).body
    api.delete(NODES.path("", node))
    again = api.made(NODES.path(), {"metadata": {"name": node, "labels": before["metadata"]["labels"]}, "spec": {},
                                    "status": before["status"]})
    assert uid(again) != uid(before)
    (kept,) = pods(api, 1, uid(owner))
    assert uid(kept) == uid(old)


def test_the_history_keeps_so_many_revisions_and_those_of_pods(api: Api) -> None:
    api.node()
    body = daemon_set(api)
    body["spec"]["revisionHistoryLimit"] = 1
    made(api, body)
    pods(api, 1)
    at = f"{DAEMON_SETS.path(api.ns)}/agent"
    for number in (2, 3, 4):
        changed = api.strategic(at, {"spec": {"template": {"spec": {"containers": [
            {"name": "main", "image": f"registry.example/app:{number}"}]}}}}).body
        api.when(at, lambda one, wanted=changed["metadata"]["generation"]: (  # type: ignore[misc]
            one["status"].get("observedGeneration") == wanted))
    api.until(CONTROLLER_REVISIONS.path(api.ns), lambda found: sorted(one["revision"] for one in found) == [1, 4])
