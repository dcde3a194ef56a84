"""The last RolloutPolicy as the ClusterPolicy keeps it, whoever edited the annotation since."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.crd.keptspec import LONGEST
from gpuward.model.snapshot import Snapshot
from gpuward.policy.lastrollout import last_rollout, rollout_to_remember
from gpuward.policy.rolloutpolicy import ActiveRollout, RolloutReader
from gpuward.recording.redacted import LEFT_OUT, recorded_annotations
from tests.policy.test_rolloutpolicy import rollout

SPEC: dict[str, Any] = {"windows": [{"schedule": "0 3 * * *", "duration": "1h"}], "notice": {"before": "6h"}}


def of(spec: dict[str, Any], **how: Any) -> ActiveRollout:
    view = msgspec.structs.replace(rollout(**spec), **how)
    return RolloutReader().read(Snapshot("gpu-operator", rollout_policies=(view,)))


def body(kept: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {} if kept is None else {names.VALID_ROLLOUT_POLICY: kept}}}


def kept(spec: dict[str, Any]) -> str:
    text = rollout_to_remember(body(None), of(spec))[names.VALID_ROLLOUT_POLICY]
    assert text is not None
    return text


def test_what_is_kept_is_the_policy_as_it_was() -> None:
    found = last_rollout(body(kept(SPEC)))
    assert found is not None
    assert (found.name, found.uid, found.body["spec"]) == ("default", "uid-default", SPEC)


def test_it_is_written_once() -> None:
    assert rollout_to_remember(body(kept(SPEC)), of(SPEC)) == {}


def test_it_goes_with_the_policy() -> None:
    assert rollout_to_remember(body(kept(SPEC)), ActiveRollout()) == {names.VALID_ROLLOUT_POLICY: None}
    assert rollout_to_remember(body(None), ActiveRollout()) == {}


@pytest.mark.parametrize("now", [of(SPEC, gone=True), of({"retries": -1})], ids=["gone", "invalid"])
def test_it_stays_while_another_is_not_in_force(now: ActiveRollout) -> None:
    assert rollout_to_remember(body(kept({"retries": 2})), now) == {}


def test_a_long_one_is_not_kept() -> None:
    many = {f"example.com/pool-{number}": "x" * 60 for number in range(LONGEST // 60)}
    long = of({"waves": [{"name": "first", "nodeSelector": many}]})
    assert not long.problems
    assert rollout_to_remember(body(kept(SPEC)), long) == {names.VALID_ROLLOUT_POLICY: None}


@pytest.mark.parametrize("text", [
    "", "{", "[]", "7", '{"name": "default"}', '{"name": "default", "uid": "u", "spec": []}',
    '{"name": "default", "uid": "u", "spec": {"retries": -1}}', json.dumps({"name": "x" * LONGEST, "uid": "u", "spec": {}}),
    "[" * 10_000,
])
def test_garbage_is_as_good_as_nothing(text: str) -> None:
    assert last_rollout(body(text)) is None


def test_it_is_recorded_without_what_nobody_knows() -> None:
    text = json.dumps({"name": "default", "uid": "uid-default", "spec": {**SPEC, "password": "hunter2"}})
    told = recorded_annotations({names.VALID_ROLLOUT_POLICY: text})[names.VALID_ROLLOUT_POLICY]
    assert "hunter2" not in told
    assert last_rollout(body(told)) == last_rollout(body(kept(SPEC)))
    assert recorded_annotations({names.VALID_ROLLOUT_POLICY: "{"}) == {names.VALID_ROLLOUT_POLICY: LEFT_OUT}
