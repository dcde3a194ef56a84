from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import errors
from kubesandbox.store import Store, copy

CONTAINER = {"name": "c", "image": "i"}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
DAEMONS = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


@pytest.fixture
def store() -> Store:
    return Store(now=lambda: 1_700_000_000.0)


@pytest.mark.parametrize(("key", "meta", "spec", "message"), [
    ("pods", {"name": "Upper"}, {"containers": [CONTAINER]}, r'metadata\.name: Invalid value: "Upper": a lowercase RFC 1123'),
    ("pods", {"labels": {"a": "b c"}}, {"containers": [CONTAINER]}, 'metadata.labels: Invalid value: "b c": a valid label'),
    ("pods", {"labels": {"a b": "c"}}, {"containers": [CONTAINER]}, 'metadata.labels: Invalid value: "a b": name part'),
    ("pods", {"labels": {"a": "x" * 64}}, {"containers": [CONTAINER]}, "must be no more than 63 bytes"),
    ("pods", {}, {}, r"spec\.containers: Required value"),
    ("pods", {}, {"containers": [{"name": "c"}]}, r"spec\.containers\[0\]\.image: Required value"),
    ("pods", {}, {"containers": [CONTAINER, CONTAINER]}, r'spec\.containers\[1\]\.name: Duplicate value: "c"'),
    ("pods", {}, {"containers": [{**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/"}]}]},
     r'spec\.containers\[0\]\.volumeMounts\[0\]\.name: Not found: "v"'),
    ("daemonsets.apps", {}, {"template": TEMPLATE}, r"spec\.selector: Required value"),
    ("daemonsets.apps", {}, {**DAEMONS, "selector": {"matchLabels": {"a": "c"}}}, "`selector` does not match template"),
    ("daemonsets.apps", {}, {**DAEMONS, "template": {**TEMPLATE, "spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}},
     'Unsupported value: "Never": supported values: "Always"'),
])
def test_refused_at_creation(store: Store, key: str, meta: Any, spec: Any, message: str) -> None:
    with pytest.raises(errors.Invalid, match=message) as caught:
        store.create(key, {"metadata": {"name": "x", **meta}, "spec": spec})
    assert caught.value.details["causes"]


@pytest.mark.parametrize(("key", "spec", "change", "message"), [
    ("daemonsets.apps", DAEMONS, lambda o: o["spec"].update(
        selector={"matchLabels": {"z": "y"}}, template={**TEMPLATE, "metadata": {"labels": {"z": "y"}}}), "field is immutable"),
    ("pods", {"containers": [CONTAINER]}, lambda o: o["spec"].update(hostNetwork=True), "pod updates may not change fields"),
    ("pods", {"containers": [CONTAINER]}, lambda o: o["spec"].pop("containers"), "pod updates may not add or remove"),
    ("jobs.batch", {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}},
     lambda o: o["spec"]["template"]["spec"].update(hostNetwork=True), "field is immutable"),
])
def test_refused_as_a_change(store: Store, key: str, spec: Any, change: Any, message: str) -> None:
    store.create(key, {"metadata": {"name": "x"}, "spec": spec})
    with pytest.raises(errors.Invalid, match=message):
        store.modify(key, "default", "x", change)


def test_a_pods_image_and_tolerations_may_change(store: Store) -> None:
    made = copy(store.create("pods", {"metadata": {"name": "x"}, "spec": {"containers": [CONTAINER]}}))
    made["spec"]["containers"][0]["image"] = "j"
    made["spec"]["tolerations"].append({"key": "k", "operator": "Exists"})
    assert store.update("pods", made)["spec"]["containers"][0]["image"] == "j"
