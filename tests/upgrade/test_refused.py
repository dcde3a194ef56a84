"""When what was refused is tried again."""

from __future__ import annotations

import pytest

from gpuward.model.snapshot import Refusal
from gpuward.upgrade.refused import TOLD_FOR, brings_images_at
from tests.build import NOW


@pytest.mark.parametrize(("count", "at", "after"), [(1, NOW, 1.0), (4, NOW - 2, 6.0), (30, NOW, TOLD_FOR), (30, NOW + 3600, 0.0)])
def test_images_are_brought_ever_later_after_refusals_and_at_once_where_the_clock_was_set_back(
    count: int, at: float, after: float
) -> None:
    assert brings_images_at(Refusal(at, count, "no"), NOW) == NOW + after
