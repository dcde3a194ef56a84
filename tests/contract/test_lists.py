"""Lists: selectors, pages, versions."""

from __future__ import annotations

import pytest

from gpuward.kube.resources import CONFIG_MAPS, EVENTS, PODS
from tests.contract.api import Api
from tests.contract.objects import event, names, pod

COLORS = {"a": {"color": "red"}, "b": {"color": "blue"}, "c": {"color": "red", "size": "1"}, "d": {"size": "2"}}


@pytest.mark.parametrize(("selector", "found"), [
    ("color=red", "ac"), ("color==red", "ac"), ("color!=red", "bd"), ("color in (red,blue)", "abc"), ("color", "abc"),
    ("!color", "d"), ("color notin (red)", "bd"), ("color=red,size", "c"), ("size>1", "d"), ("size<2", "c"), ("", "abcd"),
    ("color=", ""),
])
def test_label_selectors(api: Api, selector: str, found: str) -> None:
    for name, labels in COLORS.items():
        api.made(CONFIG_MAPS.path(api.ns), {"metadata": {"name": name, "labels": {**labels, "of": "test"}}})
    listed = api.get(CONFIG_MAPS.path(api.ns), labelSelector=f"of=test,{selector}" if selector else "of=test").body
    assert names(listed) == list(found)


@pytest.mark.parametrize("selector", ["color in red", "=", "a b", "color in (", "size>big"])
def test_bad_label_selectors(api: Api, selector: str) -> None:
    reply = api.get(CONFIG_MAPS.path(api.ns), labelSelector=selector)
    assert (reply.status, reply.reason) == (400, "BadRequest")


def test_field_selectors(api: Api) -> None:
    path = PODS.path(api.ns)
    api.made(path, pod("a", node="n1"))
    api.made(path, pod("b", node="n2"))
    api.made(path, pod("c", node="n1"))
    api.merge(f"{path}/c/status", {"status": {"phase": "Failed"}})
    assert names(api.get(path, fieldSelector="spec.nodeName=n1").body) == ["a", "c"]
    assert names(api.get(path, fieldSelector="spec.nodeName!=n1").body) == ["b"]
    assert names(api.get(path, fieldSelector="spec.nodeName=n1,status.phase!=Failed").body) == ["a"]
    assert names(api.get(path, fieldSelector="metadata.name=b").body) == ["b"]
    assert names(api.get("/api/v1/pods", fieldSelector=f"metadata.namespace={api.ns}").body) == ["a", "b", "c"]
    refused = api.get(path, fieldSelector="spec.hostname=x")
    assert (refused.status, refused.message) == (400, 'field label not supported: spec.hostname')
    assert api.get(CONFIG_MAPS.path(api.ns), fieldSelector="data.x=1").status == 400


def test_pages_show_one_version(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    for name in "abcde":
        api.made(path, {"metadata": {"name": name, "labels": {"of": "test"}}})
    first = api.get(path, limit=2, labelSelector="of=test").body
    assert names(first) == ["a", "b"]
    assert "remainingItemCount" not in first["metadata"]
    api.made(path, {"metadata": {"name": "bb", "labels": {"of": "test"}}})
    api.delete(f"{path}/d")
    second = api.get(path, limit=2, labelSelector="of=test", continue_=first["metadata"]["continue"]).body
    assert names(second) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = api.get(path, limit=2, labelSelector="of=test", continue_=second["metadata"]["continue"]).body
    assert names(last) == ["e"]
    assert "continue" not in last["metadata"]
    fresh = api.get(path, labelSelector="of=test").body
    assert names(fresh) == ["a", "b", "bb", "c", "e"]


def test_pages_count_what_is_left(api: Api) -> None:
    for name in "abc":
        api.made(PODS.path(api.ns), pod(name, node="nowhere"))
    page = api.get(PODS.path(api.ns), limit=1).body
    assert page["metadata"]["remainingItemCount"] == 2
    assert (page["kind"], page["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in page["items"][0]


def test_a_page_after_a_compaction(api: Api) -> None:
    # Events are not in kube-apiserver's watch cache, which may keep more than etcd does.
    path = EVENTS.path(api.ns)
    for name in "abc":
        api.made(path, event(name, api.ns))
    first = api.get(path, limit=1).body
    api.made(path, event("d", api.ns))
    api.server.compact()
    late = api.get(path, limit=1, continue_=first["metadata"]["continue"])
    assert (late.status, late.reason) == (410, "Expired")
    assert "The provided continue parameter is too old" in late.message
    # The answer has a token of its own, for who prefers the rest of an inconsistent list.
    assert names(api.get(path, limit=1, continue_=late.body["metadata"]["continue"]).body) == ["b"]


@pytest.mark.parametrize(("query", "status", "reason"), [
    ({"continue_": "nonsense"}, 400, "BadRequest"),
    pytest.param({"resourceVersion": "abc"}, 400, "BadRequest", marks=pytest.mark.since("1.36")),
    ({"limit": "many"}, 400, "BadRequest"), ({"resourceVersion": "999999999"}, 504, "Timeout"),
    ({"resourceVersionMatch": "Exact"}, 422, "Invalid"),
])
def test_bad_questions(api: Api, query: dict[str, str], status: int, reason: str) -> None:
    reply = api.get(CONFIG_MAPS.path(api.ns), **query)
    assert (reply.status, reply.reason) == (status, reason), reply.body


def test_a_list_at_version_zero_is_good_enough(api: Api) -> None:
    api.made(PODS.path(api.ns), pod("a", node="nowhere"))
    api.until(PODS.path(api.ns), lambda found: names(found) == ["a"])
    assert api.get(PODS.path(api.ns), resourceVersion="0").status == 200
    version = api.get(PODS.path(api.ns)).body["metadata"]["resourceVersion"]
    older = api.get(PODS.path(api.ns), resourceVersion=version, resourceVersionMatch="NotOlderThan").body
    assert int(older["metadata"]["resourceVersion"]) >= int(version)


def test_all_namespaces_at_once_come_sorted(api: Api) -> None:
    api.made(PODS.path(api.ns), pod("b", node="nowhere"))
    api.made(PODS.path(api.ns), pod("a", node="nowhere"))
    listed = api.get("/api/v1/pods").body["items"]
    keys = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in listed]
    assert keys == sorted(keys)
    assert (api.ns, "a") in keys
