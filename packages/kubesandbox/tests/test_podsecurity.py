from __future__ import annotations

import pytest

from kubesandbox import errors
from kubesandbox.store import Store

PREFIX = "pod-security.kubernetes.io/"
SPEC = {"containers": [{"name": "c", "image": "i"}], "hostPID": True}


@pytest.fixture
def store() -> Store:
    return Store(now=lambda: 1_700_000_000.0)


def secure(store: Store, **labels: str) -> None:
    named = {PREFIX + name.replace("_", "-"): value for name, value in labels.items()}
    store.modify("namespaces", None, "default", lambda obj: obj["metadata"].update(labels=named))


def test_without_labels_everything_is_allowed(store: Store) -> None:
    store.create("pods", {"metadata": {"name": "a"}, "spec": SPEC})


def test_controllers_are_refused_as_people_are(store: Store) -> None:
    secure(store, enforce="baseline")
    with pytest.raises(errors.Forbidden, match='violates PodSecurity "baseline:latest": host namespaces'):
        store.create("pods", {"metadata": {"generateName": "a-"}, "spec": SPEC})


def test_a_pod_that_is_there_can_still_be_changed(store: Store) -> None:
    store.create("pods", {"metadata": {"name": "a"}, "spec": SPEC})
    secure(store, enforce="restricted")
    store.modify("pods", "default", "a", lambda obj: obj["metadata"].update(labels={"a": "b"}))


def test_labels_that_were_wrong_before_do_not_hold_up_another_change(store: Store) -> None:
    with pytest.raises(errors.Invalid, match="must be one of privileged, baseline, restricted"):
        secure(store, enforce="strict")
