from __future__ import annotations

import pytest

from kubesandbox import errors
from kubesandbox.store import Store

SPEC = {"containers": [{"name": "c", "image": "i"}]}


@pytest.fixture
def store() -> Store:
    return Store(now=lambda: 1_700_000_000.0)


def test_the_default_account_is_there_as_soon_as_a_pod_asks_for_it(store: Store) -> None:
    assert store.find("serviceaccounts", "default", "default") is None
    store.create("pods", {"metadata": {"name": "a"}, "spec": SPEC})
    assert store.find("serviceaccounts", "default", "default") is not None


def test_nothing_is_stored_of_a_pod_that_is_refused(store: Store) -> None:
    with pytest.raises(errors.Forbidden, match='serviceaccount "nobody" not found'):
        store.create("pods", {"metadata": {"name": "a"}, "spec": {**SPEC, "serviceAccountName": "nobody"}})
    assert store.list("pods") == []


def test_an_overhead_needs_a_runtime_class(store: Store) -> None:
    with pytest.raises(errors.Forbidden, match="Overhead set without corresponding RuntimeClass"):
        store.create("pods", {"metadata": {"name": "a"}, "spec": {**SPEC, "overhead": {"cpu": "1"}}})
    runtime = {"metadata": {"name": "r"}, "handler": "r", "overhead": {"podFixed": {"cpu": "1"}}}
    store.create("runtimeclasses.node.k8s.io", runtime)
    made = store.create("pods", {"metadata": {"name": "a"}, "spec": {**SPEC, "runtimeClassName": "r"}})
    assert made["spec"]["overhead"] == {"cpu": "1"}
