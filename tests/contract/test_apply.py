"""Server-side apply: who owns which field, what goes when its owner drops it, and conflicts."""

from __future__ import annotations

from gpuward.kube.resources import CONFIG_MAPS, DEPLOYMENTS
from tests.contract.api import Api, Object
from tests.contract.objects import config_map, workload


def owners(obj: Object) -> dict[str, Object]:
    """Return the fields of each manager that applied."""
    return {one["manager"]: one["fieldsV1"] for one in obj["metadata"]["managedFields"] if one["operation"] == "Apply"}


def test_an_apply_creates_and_owns(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    first = api.apply(at, config_map("a", x="1"), "one")
    assert (first.status, first.body["data"]) == (201, {"x": "1"})
    assert owners(first.body) == {"one": {"f:data": {"f:x": {}}}}
    again = api.apply(at, config_map("a", x="1"), "one")
    assert (again.status, again.body["metadata"]["resourceVersion"]) == (200, first.body["metadata"]["resourceVersion"])


def test_a_field_that_its_owner_drops_goes(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.apply(at, config_map("a", x="1", y="2"), "one")
    assert api.apply(at, config_map("a", x="1"), "one").body["data"] == {"x": "1"}


def test_a_field_with_two_owners_stays_until_both_drop_it(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.apply(at, config_map("a", x="1", y="2"), "one")
    api.apply(at, config_map("a", y="2"), "two")
    assert api.apply(at, config_map("a", x="1"), "one").body["data"] == {"x": "1", "y": "2"}
    assert api.apply(at, config_map("a", z="3"), "two").body["data"] == {"x": "1", "z": "3"}


def test_a_field_of_another_owner_is_a_conflict_unless_forced(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.apply(at, config_map("a", x="1"), "one")
    refused = api.apply(at, config_map("a", x="2"), "two")
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert refused.causes == {("FieldManagerConflict", ".data.x")}
    forced = api.apply(at, config_map("a", x="2"), "two", force="true")
    assert (forced.status, forced.body["data"]) == (200, {"x": "2"})
    assert owners(forced.body) == {"two": {"f:data": {"f:x": {}}}}
    assert api.apply(at, config_map("a", x="2"), "one").status == 200


def test_what_others_wrote_otherwise_stays_and_conflicts_too(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.made(CONFIG_MAPS.path(api.ns), config_map("a", x="1", y="2"), fieldManager="creator")
    mine = api.apply(at, config_map("a", z="3"), "one").body
    assert mine["data"] == {"x": "1", "y": "2", "z": "3"}
    refused = api.apply(at, config_map("a", x="5", z="3"), "one")
    assert (refused.status, refused.causes) == (409, {("FieldManagerConflict", ".data.x")})
    api.merge(at, {"data": {"z": "4"}}, fieldManager="hand")
    taken = api.apply(at, config_map("a", z="3"), "one")
    assert (taken.status, taken.causes) == (409, {("FieldManagerConflict", ".data.z")})


def test_lists_are_owned_by_their_keys(api: Api) -> None:
    at = f"{DEPLOYMENTS.path(api.ns)}/w"
    body = workload("Deployment", "w", replicas=0)
    body["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "side:1"})
    api.apply(at, body, "one")
    other: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w", "labels": {"two": "yes"}}, "spec": {
        "template": {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}}}}
    added = api.apply(at, other, "two").body
    assert [one["name"] for one in added["spec"]["template"]["spec"]["containers"]] == ["main", "side"]
    assert added["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    body["spec"]["template"]["spec"]["containers"].pop()
    less = api.apply(at, body, "one").body["spec"]["template"]["spec"]["containers"]
    assert [(one["name"], one.get("env")) for one in less] == [("main", [{"name": "A", "value": "1"}])]
    containers = owners(added)["two"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert set(containers) == {'k:{"name":"main"}'}


def test_an_apply_needs_a_manager_and_the_kind(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    nobody = api.apply(at, config_map("a"), "")
    assert (nobody.status, nobody.causes) == (422, {("FieldValueRequired", "fieldManager")})
    kindless = api.apply(at, {"metadata": {"name": "a"}})
    assert (kindless.status, kindless.reason) == (400, "BadRequest")
    known = api.apply(at, {**config_map("a"), "metadata": {"name": "a", "managedFields": [{"manager": "x"}]}})
    assert (known.status, known.reason) == (400, "BadRequest")


def test_another_name_in_the_body_is_refused(api: Api) -> None:
    reply = api.apply(f"{CONFIG_MAPS.path(api.ns)}/a", config_map("b"))
    assert (reply.status, reply.reason) == (400, "BadRequest")


def test_a_plain_replacement_keeps_who_owns_what(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    made = api.apply(at, config_map("a", x="1"), "one").body
    after = api.put(at, {**made, "data": {"x": "1", "y": "2"}}).body
    assert owners(after) == {"one": {"f:data": {"f:x": {}}}}
    gone = api.put(at, {**after, "data": {"y": "2"}}).body
    assert "f:x" not in owners(gone).get("one", {}).get("f:data", {})
