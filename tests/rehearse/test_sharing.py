"""Equal parts of objects are kept once, and nothing else is different for it."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from gpuward.rehearse.sharing import Shared, packed, unpacked
from kubesandbox.store import Store

Object = dict[str, Any]


def pod(name: str, image: str = "app:1") -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"nodeName": "gpu-1", "containers": [{"name": "main", "image": image}]}, "status": {"phase": "Running"}}


def test_equal_parts_are_one_object_and_others_stay() -> None:
    one, two, other = pods = [pod("a"), pod("b"), pod("c", "app:2")]
    before, shared = copy.deepcopy(pods), Shared()
    for each in pods:
        shared.share(each)
    assert pods == before
    assert one["spec"]["containers"] is two["spec"]["containers"] is not other["spec"]["containers"]
    assert one["metadata"]["labels"] is other["metadata"]["labels"]


def test_what_is_packed_comes_back_anew() -> None:
    one = pod("a")
    data = packed(one)
    assert unpacked(data) == one
    assert unpacked(data)["spec"] is not unpacked(data)["spec"]


def test_items_of_a_list_are_shared_as_they_are_read() -> None:
    found = Shared().read(msgspec.json.encode({"items": [pod("a"), pod("b")]}))
    assert found == [pod("a"), pod("b")]
    assert found[0]["spec"]["containers"] is found[1]["spec"]["containers"]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"items": [1]}', b'{"items": null}'])
def test_what_is_no_list_of_objects_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        Shared().read(data)


def test_a_change_of_one_stored_object_leaves_those_that_share_with_it() -> None:
    store, shared = Store(lambda: 0.0), Shared()
    for name in ("a", "b"):
        store.restore("pods", pod(name), shared.share)
    first, second = store.list("pods")
    assert first["spec"]["containers"] is second["spec"]["containers"]
    store.modify("pods", "default", "a", lambda obj: obj["metadata"]["labels"].update(app="other"))
    store.patch_status("pods", "default", "a", lambda obj: obj["status"].update(phase="Failed"))
    second = store.get("pods", "default", "b")
    assert (second["metadata"]["labels"], second["status"]["phase"]) == ({"app": "web"}, "Running")
