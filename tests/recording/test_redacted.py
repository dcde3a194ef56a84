"""Of custom resources nothing is recorded in which people put secrets; the rest stays, so that the same is decided."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.decode import cluster_policy
from gpuward.crd.keptspec import spec_to_keep
from gpuward.crd.validate import cluster_policy as problems
from gpuward.model.views import PolicyView
from gpuward.policy.lastvalid import last_valid, to_remember
from gpuward.recording.redacted import LEFT_OUT, redacted
from tests.policy.test_clusterpolicy import view

SECRET = "hunter2"


def of(spec: dict[str, Any], **rest: Any) -> PolicyView:
    body = msgspec.json.decode(msgspec.json.encode(view().body))
    return PolicyView("p", "u", "1", 1, body={**body, "spec": {**body["spec"], **spec}, **rest})


def secret_everywhere() -> PolicyView:
    env = [{"name": "TOKEN", "value": SECRET}, {"name": "EMPTY", "value": ""}]
    return of(
        {
            "toolkit": {"env": env, "args": [f"--key={SECRET}"], "password": SECRET, "version": "v1"},
            "daemonsets": {"annotations": {"example.com/token": SECRET}, "labels": {"team": "gpus"}},
            "credentials": {"token": SECRET},
        },
        metadata={"name": "p", "uid": "u", "managedFields": [{"x": SECRET}], "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SECRET, names.RESUMED_AT: "2026-01-31T12:00:00Z",
            names.VALID_SPEC: msgspec.json.encode({"toolkit": {"env": env}}).decode()}},
        status={"state": "notReady", "conditions": [
            {"type": "Error", "status": "True", "reason": "ReconcileFailed",
             "message": f"Failed to reconcile state-driver: spec.driver.version: '{SECRET}' cannot be used"}]},
        data={"key": SECRET},
    )


def test_nothing_secret_stays() -> None:
    assert SECRET not in str(redacted(secret_everywhere()))


def test_the_rest_stays_and_can_be_followed() -> None:
    body = redacted(secret_everywhere()).body
    assert body["spec"]["toolkit"] == {"env": [{"name": "TOKEN", "value": LEFT_OUT}, {"name": "EMPTY", "value": ""}],
                                       "args": [LEFT_OUT], "version": "v1"}
    assert body["spec"]["daemonsets"] == {"annotations": {"example.com/token": LEFT_OUT}, "labels": {"team": "gpus"}}
    assert body["metadata"] == {"name": "p", "uid": "u", "annotations": {
        names.RESUMED_AT: "2026-01-31T12:00:00Z",
        names.VALID_SPEC: '{"toolkit":{"env":[{"name":"TOKEN","value":"..."},{"name":"EMPTY","value":""}]}} '}}
    assert body["status"]["conditions"][0]["message"] == "Failed to reconcile state-driver: ..."
    assert body["spec"]["driver"] == of({}).body["spec"]["driver"]
    kept, given = problems(cluster_policy(body)), problems(cluster_policy(secret_everywhere().body))
    assert list(map(str, kept)) == list(map(str, given))


def keeping(kept: PolicyView, spec: dict[str, Any]) -> PolicyView:
    return of(spec, metadata={"name": "p", "annotations": {names.VALID_SPEC: spec_to_keep(kept.body)}})


def test_a_kept_spec_is_the_spec_where_it_was() -> None:
    secret, other = ({"toolkit": {"env": [{"name": "TOKEN", "value": f"{SECRET}{end}"}]}} for end in ("", "2"))
    for kept, given in itertools.product((secret, other), repeat=2):
        view = keeping(of(kept), given)
        body = redacted(view).body
        assert SECRET not in str(body)
        assert to_remember(body, "").keys() == to_remember(view.body, "").keys()
        assert last_valid(body, ClusterPolicy, lambda _: []) is not None


@pytest.mark.parametrize("kept", [SECRET, f'["{SECRET}"]', "[" * 200_000 + SECRET, f'{{"toolkit": "{SECRET}"}}', "", None])
def test_whatever_is_kept_does_no_harm(kept: Any) -> None:
    assert SECRET not in str(redacted(of({}, metadata={"name": "p", "annotations": {names.VALID_SPEC: kept}})))


def test_whatever_is_there_instead_of_what_belongs_there_does_no_harm() -> None:
    some: tuple[Any, ...] = (None, [], "x", 7, [SECRET], {"a": SECRET})
    for broken in some:
        odd = of({"toolkit": {"env": broken, "args": broken}, "daemonsets": broken}, status=broken, metadata=broken)
        assert SECRET not in str(redacted(odd))
    assert redacted(PolicyView("p", body={"kind": "Pod", "spec": {"token": SECRET}})).body["spec"] == {}
    assert SECRET not in str(redacted(of({"toolkit": {"env": SECRET}})))
