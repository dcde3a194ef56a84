"""What is quoted of events."""

from __future__ import annotations

import pytest

from gpuward.cli.events import why_refused


@pytest.mark.parametrize(("said", "told"), [
    ('Error creating: pods "d-x" is forbidden: violates PodSecurity "baseline"', 'violates PodSecurity "baseline"'),
    ('(combined from similar events): Error creating: pods "d-x" is forbidden: exceeded quota: gpus', "exceeded quota: gpus"),
    ('Error creating: admission webhook "a" denied the request', 'admission webhook "a" denied the request'),
    ("Error creating: ", "Error creating: "),
])
def test_the_reason_is_quoted_without_what_stands_before_each(said: str, told: str) -> None:
    assert why_refused(said) == told
