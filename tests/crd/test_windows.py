"""The windows of a RolloutPolicy as people write them: what cannot be followed is refused with its field, its value and a fix."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.crd.rollout_conversion import rollout_settings, typed_rollout
from gpuward.model.windows import Window

NIGHTLY = {"schedule": "0 22 * * *", "duration": "6h"}
FREEZE = {"kind": "Deny", "start": "2026-12-20", "end": "2027-01-04", "timeZone": "Europe/Berlin"}


def windows(*written: dict[str, Any]) -> dict[str, Any]:
    """Return a RolloutPolicy with windows."""
    return {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
            "spec": {"windows": list(written)}}


def test_windows_are_followed_as_they_are_written() -> None:
    policy, problems = typed_rollout(windows(NIGHTLY, FREEZE, {"start": "2026-06-01T10:00", "end": "2026-06-01T12:00:30Z"}))
    assert problems == []
    assert policy is not None
    assert rollout_settings(policy).windows == (
        Window(True, "0 22 * * *", 21_600.0),
        Window(False, start=1_797_721_200.0, end=1_799_017_200.0, zone="Europe/Berlin"),
        Window(True, start=1_780_308_000.0, end=1_780_315_230.0),
    )


@pytest.mark.parametrize(("window", "field", "value"), [
    ({}, "", "with none of them"),
    ({"kind": "Deny"}, "", "with none of them"),
    ({"schedule": "0 22 * * *"}, "", "with schedule"),
    ({"duration": "6h"}, "", "with duration"),
    ({"start": "2026-12-20"}, "", "with start"),
    ({**NIGHTLY, "start": "2026-12-20", "end": "2026-12-21"}, "", "with schedule, duration, start, end"),
    ({**NIGHTLY, "end": "2026-12-21"}, "", "with schedule, duration, end"),
    ({**NIGHTLY, "kind": "allow"}, ".kind", "allow"),
    ({**NIGHTLY, "schedule": "22:00"}, ".schedule", "22:00"),
    ({**NIGHTLY, "schedule": "0 0 22 * * *"}, ".schedule", "0 0 22 * * *"),
    ({**NIGHTLY, "schedule": "61 22 * * *"}, ".schedule", "61 22 * * *"),
    ({**NIGHTLY, "schedule": "0 22 30 2 *"}, ".schedule", "0 22 30 2 *"),
    ({**NIGHTLY, "schedule": "TZ=UTC 0 22 * * *"}, ".schedule", "TZ=UTC 0 22 * * *"),
    ({**NIGHTLY, "schedule": "0 \u0662\u0662 * * *"}, ".schedule", "0 \u0662\u0662 * * *"),
    ({**NIGHTLY, "duration": "0s"}, ".duration", "0s"),
    ({**NIGHTLY, "duration": "800h"}, ".duration", "800h"),
    ({**NIGHTLY, "duration": "6 hours"}, ".duration", "6 hours"),
    ({**NIGHTLY, "timeZone": "Berlin"}, ".timeZone", "Berlin"),
    ({**NIGHTLY, "timeZone": "../../etc/passwd"}, ".timeZone", "../../etc/passwd"),
    ({**NIGHTLY, "timeZone": "Local"}, ".timeZone", "Local"),
    ({**NIGHTLY, "timeZone": "+01:00"}, ".timeZone", "+01:00"),
    ({**NIGHTLY, "timeZone": ""}, ".timeZone", ""),
    ({**FREEZE, "start": "2027-01-04"}, ".end", "2027-01-04"),
    ({**FREEZE, "start": "2026-02-30"}, ".start", "2026-02-30"),
    ({**FREEZE, "start": "20.12.2026"}, ".start", "20.12.2026"),
    ({**FREEZE, "end": "9999-12-31T23:59:59-14:00"}, ".end", "9999-12-31T23:59:59-14:00"),
    ({**FREEZE, "start": "0001-01-01"}, ".start", "0001-01-01"),
])
def test_a_window_that_cannot_be_followed_is_named(window: dict[str, Any], field: str, value: str) -> None:
    _, (problem,) = typed_rollout(windows(NIGHTLY, window))
    assert (problem.field, problem.value) == (f"spec.windows[1]{field}", value)
    assert problem.fix


@pytest.mark.parametrize("written", [[{"schedule": 1}], [None], ["nightly"], {"schedule": "0 22 * * *"}, "nightly"], ids=repr)
def test_windows_of_another_shape_are_no_crash(written: Any) -> None:
    body = windows()
    body["spec"]["windows"] = written
    assert typed_rollout(body)[1]
