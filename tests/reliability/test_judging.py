"""What the enumerations are judged by sees what is wrong, and only that."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from kubesandbox.store import Event, Store
from tests.reliability.past import Followed, Past, changes_a_view
from tests.reliability.picture import differences, plain
from tests.reliability.scene import Scene


def picture(**changed: object) -> dict[str, Any]:
    return {"title": "end", "nodes": {"gpu-1": {"cordoned": False}}, "pods": ["web gpu-1"], "events": ["a", "b"], **changed}


def test_equal_pictures_do_not_differ() -> None:
    assert differences(picture(), picture()) == []


def test_a_difference_is_named_with_its_place() -> None:
    assert differences(picture(nodes={"gpu-1": {"cordoned": True}}), picture()) == [
        "end/nodes/gpu-1/cordoned is True, not False"]
    assert differences(picture(pods=[]), picture()) == ["end/pods: web gpu-1 is missing"]


def test_an_event_may_be_lost_only_where_it_was_in_flight() -> None:
    assert differences(picture(events=["a"]), picture(), {"b"}) == []
    assert differences(picture(events=["a"]), picture(), {"a"}) == ["end: no event says: b"]


def test_an_event_may_come_early_only_where_it_comes_at_all() -> None:
    assert differences(picture(events=["a", "b", "c"]), picture(), later=["c"]) == []
    assert differences(picture(events=["a", "b", "c"]), picture(), later=["d"]) == ["end: an event that should not be: c"]


def test_generated_names_and_counted_times_are_no_difference() -> None:
    assert plain("waits for driver-x7k2z (2 restarts), after 60 s") == plain("waits for driver-bbbbb (3 restarts), after 61 s")


def test_the_past_has_what_was_deleted_and_not_what_came_since() -> None:
    store = Store(lambda: 0.0)
    for name in ("gone", "changed"):
        store.create("nodes", {"metadata": {"name": name}})
    then = store.version
    store.create("nodes", {"metadata": {"name": "new"}})
    store.modify("nodes", None, "changed", lambda node: node["metadata"].setdefault("labels", {}).update(a="b"))
    store.delete("nodes", None, "gone")
    past = {node["metadata"]["name"]: node["metadata"].get("labels") for node in Past(store, then).list("nodes")}
    assert past == {"changed": None, "gone": None}


def test_a_change_that_the_operator_does_not_see_is_no_case_of_its_own() -> None:
    store, events = Store(lambda: 0.0), list[Event]()
    store.create("nodes", {"metadata": {"name": "gpu-1"}})
    store.subscribe(events.append)
    store.patch_status("nodes", None, "gpu-1", lambda node: node["status"].update(images=[{"names": ["driver"]}]))
    store.modify("nodes", None, "gpu-1", lambda node: node["metadata"].setdefault("labels", {}).update(a="b"))
    assert [changes_a_view(event) for event in events] == [False, True]


def test_only_an_edit_of_what_the_policy_asks_for_makes_an_old_view_one_from_before_an_edit() -> None:
    noted: list[Callable[[Event], None]] = []
    followed = Followed(cast(Scene, SimpleNamespace(sandbox=SimpleNamespace(store=SimpleNamespace(subscribe=noted.append)))))
    before = {"metadata": {"name": "p"}, "spec": {"paused": False}}
    annotated = {**before, "metadata": {"name": "p", "annotations": {"a": "b"}}}
    edited = {**annotated, "spec": {"paused": True}}
    noted[0](policy_changed(5, before, annotated))
    assert not followed.edited_since(4)
    noted[0](policy_changed(6, annotated, edited))
    assert followed.edited_since(5)
    assert not followed.edited_since(6)


def policy_changed(version: int, old: dict[str, Any], new: dict[str, Any]) -> Event:
    return Event(type="MODIFIED", resource_key="clusterpolicies.nvidia.com", obj=new, version=version, old=old)
