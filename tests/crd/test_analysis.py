"""The analysis of a wave as people write it: what cannot be followed is refused with its field, its value and a fix."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.crd.decode import rollout_policy
from gpuward.crd.rollout_conversion import rollout_settings, typed_rollout
from gpuward.model.analysis import Check, FailWhen, NodeCondition, Promql

PROMQL = {"server": "http://prometheus:9090/", "query": "up", "failWhen": "> 0"}


def written(*checks: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
            "spec": {"waves": [{"name": "canary", "analysis": list(checks)}]}}


def test_checks_are_followed_as_they_are_written() -> None:
    secret = {"server": "https://p.example/prom", "secretRef": {"name": "access"}}
    settings = rollout_settings(rollout_policy(written(
        {"name": "slo", "promql": PROMQL},
        {"name": "more", "promql": {**PROMQL, **secret, "failWhen": ">=-.5e3"}, "interval": "30s", "for": "0s", "failures": 3},
        {"name": "xid", "nodeConditions": [{"type": "Xid"}, {"type": "Fine", "status": "False"}]})))
    assert settings.waves[0].analysis == (
        Check("slo", (), Promql("http://prometheus:9090", "up", FailWhen(">", 0.0)), 60.0, 300.0, 1),
        Check("more", (), Promql("https://p.example/prom", "up", FailWhen(">=", -500.0), "access"), 30.0, 0.0, 3),
        Check("xid", (NodeCondition("Xid"), NodeCondition("Fine", "False"))))


def test_a_check_is_another_one_by_what_it_asks_and_not_by_its_name() -> None:
    one = Check("a", promql=Promql("http://p", "up", FailWhen(">", 0.0)))
    assert one.key == Check("b", promql=one.promql).key
    assert one.key != Check("a", promql=Promql("http://p", "up", FailWhen(">", 1.0))).key


@pytest.mark.parametrize(("check", "field"), [
    ({"promql": PROMQL, "nodeConditions": [{"type": "Xid"}]}, ""),
    ({}, ""),
    ({"promql": {**PROMQL, "server": "ftp://prometheus"}}, ".promql.server"),
    ({"promql": {**PROMQL, "server": "http://user:secret@prometheus"}}, ".promql.server"),
    ({"promql": {**PROMQL, "server": "http://prometheus?x=1"}}, ".promql.server"),
    ({"promql": {**PROMQL, "server": "http://prometheus:99999"}}, ".promql.server"),
    ({"promql": {**PROMQL, "server": "http://prometheus\n"}}, ".promql.server"),
    ({"promql": {**PROMQL, "secretRef": {"name": "access"}}}, ".promql.server"),
    ({"promql": {**PROMQL, "query": "  "}}, ".promql.query"),
    *(({"promql": {**PROMQL, "failWhen": text}}, ".promql.failWhen") for text in (
        "0", "> x", "=> 1", "> 1 or 2", "> 1\n", "> nan", "> 0x1", ">  1", "~ 1", "> 1e999")),
    ({"promql": PROMQL, "interval": "1s"}, ".interval"),
    ({"promql": PROMQL, "for": "25h"}, ".for"),
    ({"promql": PROMQL, "failures": 0}, ".failures"),
    ({"promql": PROMQL, "onNoData": "Pass"}, ".onNoData"),
    ({"nodeConditions": [{"type": "Ready"}]}, ".nodeConditions"),
    ({"nodeConditions": []}, ".nodeConditions"),
    ({"nodeConditions": [{"type": f"Xid{number}"} for number in range(17)]}, ".nodeConditions"),
    ({"nodeConditions": [{"type": "Xid", "status": "Maybe"}]}, ".nodeConditions[0].status"),
])
def test_what_cannot_be_followed_is_refused_where_it_is_written(check: dict[str, Any], field: str) -> None:
    _, problems = typed_rollout(written({"name": "slo", **check}))
    assert [problem.field for problem in problems] == [f"spec.waves[0].analysis[0]{field}"]
    assert problems[0].fix


def test_two_checks_of_a_wave_have_two_names() -> None:
    _, problems = typed_rollout(written({"name": "a", "promql": PROMQL}, {"name": "a", "promql": PROMQL}))
    assert [problem.field for problem in problems] == ["spec.waves[0].analysis[1].name"]
