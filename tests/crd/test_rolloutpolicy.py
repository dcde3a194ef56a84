from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward.crd.decode import rollout_policy, to_object
from gpuward.crd.generate import schema_for_reading
from gpuward.crd.rollout_conversion import rollout_settings, typed_rollout
from gpuward.crd.rolloutpolicy import DEADLINE_STATES, RolloutPolicy
from gpuward.model.domains import DomainMode, DomainSettings
from gpuward.model.gangs import GangSettings
from gpuward.model.notice import Acknowledge, NoticeSettings
from gpuward.model.opportunities import OpportunisticSettings
from gpuward.model.rollout import DEADLINES, DeviceHolders, FailureBudget, RolloutSettings
from gpuward.model.states import State
from gpuward.model.windows import WindowFit
from tests.crd.specimen import defaulted

EXAMPLE = Path(__file__).parents[2] / "examples" / "rolloutpolicy.yaml"
HEAD = {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"}}


WITHOUT_DEFAULT = {"domains", "finishBy", "gangs", "growth", "notice", "opportunistic", "undrainable"}
"""Fields without which nothing of theirs is done: the example has them in comments."""


def policy(**spec: Any) -> dict[str, Any]:
    return {**HEAD, "spec": spec}


def settings(**spec: Any) -> RolloutSettings:
    return rollout_settings(rollout_policy(policy(**spec)))


def test_an_empty_policy_means_the_models_defaults_and_so_does_what_the_schema_fills_in() -> None:
    assert settings() == RolloutSettings()
    filled = defaulted(policy(), schema_for_reading(RolloutPolicy))
    assert filled["spec"]["failureBudget"] == {"nodes": 3, "percent": 10}
    assert rollout_policy(filled) == rollout_policy(policy())


def test_every_setting_gets_through() -> None:
    assert settings(
        failureBudget={"nodes": 0, "percent": 100}, deadlines={"drain-required": "1h30m", "validation-required": "0s"},
        retries=0, retryBackoff="90s", discoveryGrace="0", deviceHolders="Evict", killAtDeadline=True,
    ) == RolloutSettings(
        FailureBudget(0, 100), {State.DRAIN_REQUIRED: 5400.0, State.VALIDATION_REQUIRED: 0.0}, 0, 90.0, 0.0,
        DeviceHolders.EVICT, True,
    )


def test_domains_get_through() -> None:
    assert settings(domains={"key": "rack"}).domains == DomainSettings("rack", DomainMode.SPREAD, 1)
    assert settings(domains={"key": "rack", "mode": "Whole", "max": 2}).domains == DomainSettings("rack", DomainMode.WHOLE, 2)


def test_gangs_get_through() -> None:
    assert settings(gangs={}).gangs == GangSettings(86_400.0)
    assert settings(gangs={"mode": "Together", "until": "0s"}).gangs == GangSettings(0.0)
    assert settings(gangs={"mode": "Ignore", "until": "1h"}).gangs is None
    assert settings().gangs is None


def test_when_a_rollout_should_be_done_gets_through() -> None:
    assert settings(finishBy="2026-12-24T18:00").finish_by == datetime(2026, 12, 24, 18, tzinfo=UTC).timestamp()
    assert settings(finishBy="2026-12-24T18:00+02:00").finish_by == datetime(2026, 12, 24, 16, tzinfo=UTC).timestamp()
    assert settings(windowFit="P90").window_fit is WindowFit.P90


def test_opportunities_get_through() -> None:
    assert settings(notice={"before": "15m"}).notice == NoticeSettings(900.0)
    assert settings(notice={"before": "1h", "acknowledge": "Required"}).notice == NoticeSettings(3600.0, Acknowledge.REQUIRED)
    assert settings(opportunistic={"idleFor": "15m", "until": "72h"}).opportunistic == OpportunisticSettings(900.0, 259_200.0)


def test_states_with_a_default_deadline_can_have_another_one() -> None:
    assert set(DEADLINES) <= set(DEADLINE_STATES)


@pytest.mark.parametrize(("spec", "field", "value", "fix"), [
    ({"failureBudget": {"nodes": -1}}, "spec.failureBudget.nodes", -1, "write a whole number of at least 0"),
    ({"failureBudget": {"percent": 101}}, "spec.failureBudget.percent", 101, "write a whole number from 0 to 100"),
    ({"failureBudget": {"percent": "10%"}}, "spec.failureBudget.percent", "10%",
     "write a whole number from 0 to 100, without quotes"),
    ({"retries": 21}, "spec.retries", 21, "write a whole number from 0 to 20"),
    ({"retryBackoff": "soon"}, "spec.retryBackoff", "soon", "write a duration such as 30s, 10m or 1h30m"),
    ({"discoveryGrace": 600}, "spec.discoveryGrace", 600, "write a duration such as 30s, 10m or 1h30m"),
    ({"discoveryGrace": "10m\n"}, "spec.discoveryGrace", "10m\n", "write a duration such as 30s, 10m or 1h30m"),
    ({"deadlines": {"drain-required": ""}}, "spec.deadlines.drain-required", "", "write a duration such as 30s, 10m or 1h30m"),
    ({"deviceHolders": "hold"}, "spec.deviceHolders", "hold", "write one of Hold, Evict, Ignore"),
    ({"domains": {"key": "a b"}}, "spec.domains.key", "a b",
     "write the key of a node label, such as topology.kubernetes.io/zone or nvidia.com/gpu.clique"),
    ({"domains": {"key": "gpuward.io/driver-os"}}, "spec.domains.key", "gpuward.io/driver-os",
     "write the key of a node label, such as topology.kubernetes.io/zone or nvidia.com/gpu.clique: this one changes as nodes are "
     "upgraded"),
    ({"domains": {"key": "rack", "mode": "whole"}}, "spec.domains.mode", "whole", "write one of Spread, Whole"),
    ({"domains": {"key": "rack", "max": 0}}, "spec.domains.max", 0, "write a whole number of at least 1"),
    ({"gangs": {"mode": "together"}}, "spec.gangs.mode", "together", "write one of Together, Ignore"),
    ({"gangs": {"until": "9000h"}}, "spec.gangs.until", "9000h",
     "write a duration of at most 8784h, from when a gang had to leave"),
    ({"gangs": {"until": "soon"}}, "spec.gangs.until", "soon", "write a duration such as 30s, 10m or 1h30m"),
    ({"notice": {"before": "0s"}}, "spec.notice.before", "0s", "write a duration between 1s and 168h, or leave notice out"),
    ({"notice": {"before": "200h"}}, "spec.notice.before", "200h", "write a duration between 1s and 168h, or leave notice out"),
    ({"opportunistic": {"idleFor": "15m", "until": "0"}}, "spec.opportunistic.until", "0",
     "write a duration between 1s and 8784h, from when a node begins to wait"),
    ({"opportunistic": {"idleFor": "2h", "until": "1h"}}, "spec.opportunistic.idleFor", "2h", "write one shorter than until, 1h"),
    ({"windowFit": "P50"}, "spec.windowFit", "P50", "write one of Off, P90"),
    ({"windowFit": False}, "spec.windowFit", False, "write one of Off, P90, in quotes, as YAML reads Off as false"),
    ({"finishBy": "2026-02-30"}, "spec.finishBy", "2026-02-30",
     "write a time such as 2026-12-24T18:00, in UTC, or 2026-12-24T17:00Z"),
    ({"prestage": {"mode": "image"}}, "spec.prestage.mode", "image", "write one of Off, Image"),
    ({"prestage": {"mode": False}}, "spec.prestage.mode", False,
     "write one of Off, Image, in quotes, as YAML reads Off as false"),
    ({"prestage": {"parallel": 0}}, "spec.prestage.parallel", 0, "write a whole number from 1 to 1000"),
    ({"prestage": {"onFailure": "Skip"}}, "spec.prestage.onFailure", "Skip", "write one of Hold, Ignore"),
    ({"killAtDeadline": "no"}, "spec.killAtDeadline", "no", "write true or false, without quotes"),
    ({"deadlines": {"upgrade-done": "1m"}}, "spec.deadlines", "upgrade-done",
     "name one of the states wait-for-jobs-required, pod-deletion-required, drain-required, pod-restart-required, "
     "validation-required"),
])
def test_what_cannot_be_followed_is_named_with_value_and_fix(spec: dict[str, Any], field: str, value: Any, fix: str) -> None:
    _, (problem,) = typed_rollout(policy(**spec))
    assert (problem.field, problem.value, problem.fix) == (field, value, fix)


def test_all_problems_are_named_at_once() -> None:
    _, found = typed_rollout(policy(retries="3", deadlines={"sleeping": "x"}, deviceHolders=1))
    fields = [problem.field for problem in found]
    assert fields == ["spec.retries", "spec.deadlines.sleeping", "spec.deviceHolders", "spec.deadlines"]


@pytest.mark.parametrize("spec", [None, [], {"deadlines": ["drain-required"]}, {"deadlines": None}], ids=repr)
def test_an_object_of_another_shape_is_no_crash(spec: Any) -> None:
    assert bool(typed_rollout({**HEAD, "spec": spec})[1]) is (spec not in (None, {"deadlines": None}))


def test_the_example_has_every_field_and_its_default() -> None:
    written = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    schema = schema_for_reading(RolloutPolicy)
    assert typed_rollout(written)[1] == []
    assert set(written["spec"]) == set(schema["properties"]["spec"]["properties"]) - WITHOUT_DEFAULT
    assert set(written["spec"].pop("deadlines")) == set(DEADLINE_STATES)
    assert rollout_settings(rollout_policy(written)) == RolloutSettings()


@pytest.mark.parametrize("field", sorted(WITHOUT_DEFAULT))
def test_what_the_example_has_in_comments_can_be_followed(field: str) -> None:
    lines = [line for line in EXAMPLE.read_text(encoding="utf-8").splitlines() if line.startswith(f"  #   {field}: ")]
    assert lines
    for line in lines:
        followed, problems = typed_rollout(policy(**yaml.safe_load(line.replace("#", "", 1))))
        assert problems == []
        assert followed is not None
        assert rollout_settings(followed) != RolloutSettings()


def test_a_policy_goes_through_the_types_and_back() -> None:
    written = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert rollout_policy(to_object(rollout_policy(written))) == rollout_policy(written)
