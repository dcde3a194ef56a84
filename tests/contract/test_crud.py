"""Create, read, replace and delete: what is stored, what is refused, and in which words."""

from __future__ import annotations

import pytest

from gpuward import errors
from gpuward.kube.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, RESOURCE_CLAIMS
from tests.contract.api import Api
from tests.contract.objects import claim, config_map, pod


def test_an_object_lives_from_post_to_delete(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    made = api.made(path, config_map("a", x="1"))
    meta = made["metadata"]
    assert (made["kind"], made["apiVersion"], meta["namespace"], made["data"]) == ("ConfigMap", "v1", api.ns, {"x": "1"})
    assert meta["uid"]
    assert meta["creationTimestamp"].endswith("Z")
    assert "generation" not in meta
    assert api.get(f"{path}/a").body == made
    replaced = api.put(f"{path}/a", {**made, "data": {"x": "2"}})
    assert replaced.status == 200
    assert int(replaced.body["metadata"]["resourceVersion"]) > int(meta["resourceVersion"])
    assert replaced.body["metadata"]["uid"] == meta["uid"]
    gone = api.delete(f"{path}/a")
    assert (gone.status, gone.body["status"], gone.body["details"]) == (
        200, "Success", {"name": "a", "kind": "configmaps", "uid": meta["uid"]})
    missing = api.get(f"{path}/a")
    assert (missing.status, missing.reason, missing.message) == (404, "NotFound", 'configmaps "a" not found')
    assert missing.body["details"] == {"name": "a", "kind": "configmaps"}
    assert api.delete(f"{path}/a").status == 404


@pytest.mark.since("1.36")
def test_what_a_claim_was_allocated_is_in_its_status(api: Api) -> None:
    path = RESOURCE_CLAIMS.path(api.ns)
    made = api.made(path, claim("gpu"))
    assert made["spec"]["devices"]["requests"] == [{"name": "r", "exactly": {
        "deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}}]
    result = {"request": "r", "driver": "gpu.nvidia.com", "pool": "n0", "device": "gpu-0"}
    allocated = {**made, "status": {"allocation": {"devices": {"results": [result]}}}}
    assert "allocation" not in api.put(f"{path}/gpu", allocated).body["status"]
    made = api.get(f"{path}/gpu").body
    reply = api.put(f"{path}/gpu/status", {**allocated, "metadata": made["metadata"]})
    assert reply.body["status"]["allocation"]["devices"]["results"] == [result], reply.body
    assert api.delete(f"{path}/gpu").status == 200


def test_a_taken_name_is_refused(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    api.made(path, config_map("a"))
    again = api.post(path, config_map("a"))
    assert (again.status, again.reason, again.message) == (409, "AlreadyExists", 'configmaps "a" already exists')


def test_a_generated_name_ends_with_five_letters_and_digits(api: Api) -> None:
    made = api.made(CONFIG_MAPS.path(api.ns), {"metadata": {"generateName": "gen-"}})
    name = made["metadata"]["name"]
    assert name.startswith("gen-")
    assert len(name) == len("gen-") + 5
    assert set(name[4:]) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert made["metadata"]["generateName"] == "gen-"
    long = api.made(CONFIG_MAPS.path(api.ns), {"metadata": {"generateName": "x" * 80}})
    assert len(long["metadata"]["name"]) == 63


def test_an_old_version_is_a_conflict_and_none_is_not(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    first = api.made(path, config_map("a", x="1"))
    api.put(f"{path}/a", {**first, "data": {"x": "2"}})
    late = api.put(f"{path}/a", {**first, "data": {"x": "3"}})
    assert (late.status, late.reason, late.message) == (
        409, "Conflict", 'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your '
        "changes to the latest version and try again")
    assert api.put(f"{path}/a", config_map("a", x="4")).status == 200
    foreign = api.put(f"{path}/a", {**config_map("a"), "metadata": {"name": "a", "uid": "1234"}})
    assert (foreign.status, foreign.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 1234" in foreign.message


def test_a_version_in_a_patch_is_a_precondition(api: Api) -> None:
    path = f"{CONFIG_MAPS.path(api.ns)}/a"
    first = api.made(CONFIG_MAPS.path(api.ns), config_map("a", x="1"))
    assert api.merge(path, {"data": {"x": "2"}}).status == 200
    late = api.merge(path, {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"x": "3"}})
    assert (late.status, late.reason) == (409, "Conflict")
    other = api.merge(path, {"metadata": {"uid": "1234"}, "data": {"x": "3"}})
    assert (other.status, other.reason, other.causes) == (422, "Invalid", {("FieldValueInvalid", "metadata.uid")})


@pytest.mark.parametrize("told", [{"uid": "1234"}, {"resourceVersion": "1"}])
def test_what_does_not_hold_of_a_patch_is_a_conflict_to_the_client(api: Api, told: dict[str, str]) -> None:
    api.made(CONFIG_MAPS.path(api.ns), config_map("a"))
    client = api.server.client
    with pytest.raises(errors.Conflict):
        api.server.run(client.patch_merge(CONFIG_MAPS, "a", {"metadata": told, "data": {"x": "1"}}, api.ns))
    with pytest.raises(errors.Invalid):
        api.server.run(client.patch_merge(CONFIG_MAPS, "a", {"metadata": {"labels": {"a": "b c"}}}, api.ns))


def test_preconditions_of_a_delete(api: Api) -> None:
    path = f"{CONFIG_MAPS.path(api.ns)}/a"
    made = api.made(CONFIG_MAPS.path(api.ns), config_map("a"))
    wrong = api.delete(path, {"preconditions": {"uid": "1234"}})
    assert (wrong.status, wrong.reason) == (409, "Conflict")
    assert "1234" in wrong.message
    late = api.delete(path, {"preconditions": {"resourceVersion": "1"}})
    assert (late.status, late.reason) == (409, "Conflict")
    assert api.delete(path, {"preconditions": {"uid": made["metadata"]["uid"]}}).status == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_write_that_changes_nothing_moves_no_version(api: Api, method: str) -> None:
    path = f"{CONFIG_MAPS.path(api.ns)}/a"
    made = api.made(CONFIG_MAPS.path(api.ns), config_map("a", x="1"))
    again = api.put(path, made) if method == "PUT" else api.merge(path, {"data": {"x": "1"}})
    assert again.status == 200
    assert again.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_dry_run_answers_and_keeps_nothing(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    assert api.post(path, config_map("a"), dryRun="All").status == 201
    assert api.get(f"{path}/a").status == 404
    api.made(path, config_map("a", x="1"))
    assert api.merge(f"{path}/a", {"data": {"x": "2"}}, dryRun="All").body["data"] == {"x": "2"}
    assert api.delete(f"{path}/a", dryRun="All").status == 200
    assert api.get(f"{path}/a").body["data"] == {"x": "1"}


@pytest.mark.parametrize(("body", "status", "reason", "said"), [
    ({"metadata": {}}, 422, "Invalid", "name or generateName is required"),
    ({"metadata": {"name": "Not_a_name"}}, 422, "Invalid", "a lowercase RFC 1123 subdomain must consist of"),
    ({"metadata": {"name": "a", "namespace": "elsewhere"}}, 400, "BadRequest",
     "the namespace of the provided object does not match the namespace sent on the request"),
    ({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}, 400, "BadRequest",
     "cannot be handled as a ConfigMap"),
    ({"metadata": {"name": "a", "labels": {"a b": "c"}}}, 422, "Invalid", "name part must consist of alphanumeric characters"),
    ({"metadata": {"name": "a", "labels": {"a": "b c"}}}, 422, "Invalid", "a valid label must be an empty string or consist of"),
    ({"metadata": {"name": "a"}, "data": {"x": 1}}, 400, "BadRequest",
     "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field "
     "ConfigMap.data of type string"),
    ([], 400, "BadRequest", ""),
])
def test_bad_bodies(api: Api, body: object, status: int, reason: str, said: str) -> None:
    reply = api.post(CONFIG_MAPS.path(api.ns), body)
    assert (reply.status, reply.reason) == (status, reason), reply.body
    assert said in reply.message


@pytest.mark.parametrize(("method", "path", "status", "said"), [
    ("GET", "/api/v1/namespaces/{ns}/nothings", 404, "the server could not find the requested resource"),
    ("GET", "/apis/nowhere.example.com/v1/things", 404, "404 page not found"),
    ("DELETE", "/version", 405, ""),
    ("POST", "/api/v1/namespaces/{ns}/configmaps/a", 405, "the server does not allow this method on the requested resource"),
    ("PUT", "/api/v1/namespaces/{ns}/configmaps", 405, "the server does not allow this method on the requested resource"),
])
def test_requests_that_lead_nowhere(api: Api, method: str, path: str, status: int, said: str) -> None:
    reply = api.server.request(method, path.format(ns=api.ns), b"{}" if method != "GET" else None)
    assert reply.status == status, reply.body
    assert said in (reply.body if isinstance(reply.body, str) else reply.message)


def test_a_namespace_that_is_not_there_takes_nothing(api: Api) -> None:
    reply = api.post(CONFIG_MAPS.path("nowhere-at-all"), config_map("a"))
    assert (reply.status, reply.reason, reply.message) == (404, "NotFound", 'namespaces "nowhere-at-all" not found')
    assert api.get(CONFIG_MAPS.path("nowhere-at-all")).body["items"] == []


def test_a_namespace_takes_its_content_with_it(api: Api) -> None:
    name = f"{api.ns}-inner"
    api.cluster_wide(NAMESPACES.path(), {"metadata": {"name": name}})
    api.made(CONFIG_MAPS.path(name), {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    going = api.delete(NAMESPACES.path("", name))
    assert (going.status, going.body["status"]["phase"]) == (200, "Terminating")
    api.when(f"{CONFIG_MAPS.path(name)}/held", lambda held: held["metadata"].get("deletionTimestamp"))
    late = api.post(CONFIG_MAPS.path(name), config_map("late"))
    assert (late.status, late.reason, late.causes) == (403, "Forbidden", {("NamespaceTerminating", "metadata.namespace")})
    api.merge(f"{CONFIG_MAPS.path(name)}/held", {"metadata": {"finalizers": None}})
    api.gone(NAMESPACES.path("", name))


def test_status_is_written_at_its_own_endpoint(api: Api) -> None:
    path = f"{PODS.path(api.ns)}/a"
    made = api.made(PODS.path(api.ns), {**pod("a", node="nowhere"), "status": {"phase": "Failed"}})
    assert made["status"]["phase"] == "Pending"
    ignored = api.merge(path, {"status": {"phase": "Running"}})
    assert ignored.body["status"]["phase"] == "Pending"
    assert ignored.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    changed = api.merge(f"{path}/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "b"}, "metadata": {
        "labels": {"new": "label"}}})
    assert (changed.status, changed.body["status"]["phase"], changed.body["spec"]["nodeName"]) == (200, "Running", "nowhere")
    assert changed.body["metadata"].get("labels", {}).get("new") == "label"
    put = api.put(f"{path}/status", {**changed.body, "status": {"phase": "Failed"}})
    assert (put.status, put.body["status"]["phase"]) == (200, "Failed")
    assert api.get(f"{path}/status").body["metadata"]["uid"] == made["metadata"]["uid"]


def test_a_collection_can_be_deleted_by_selector(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        api.made(path, {"metadata": {"name": name, "labels": {"color": color}}})
    gone = api.delete(path, labelSelector="color=red")
    assert (gone.status, [one["metadata"]["name"] for one in gone.body["items"]]) == (200, ["a", "c"])
    assert [one["metadata"]["name"] for one in api.get(path, labelSelector="color").body["items"]] == ["b"]


def test_an_update_cannot_change_what_the_server_owns(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    made = api.made(path, config_map("a"))
    changed = api.merge(f"{path}/a", {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}})
    assert changed.status == 200
    for name in ("creationTimestamp", "uid", "resourceVersion"):
        assert changed.body["metadata"][name] == made["metadata"][name]
    assert api.put(f"{path}/a", config_map("b")).status == 400


def test_a_cordon_is_one_field_and_no_generation(api: Api) -> None:
    name = api.node()
    path = NODES.path("", name)
    cordoned = api.merge(path, {"spec": {"unschedulable": True}}).body
    assert cordoned["spec"]["unschedulable"] is True
    assert "generation" not in cordoned["metadata"]
    open_again = api.merge(path, {"spec": {"unschedulable": False}}).body
    assert "unschedulable" not in open_again["spec"]
