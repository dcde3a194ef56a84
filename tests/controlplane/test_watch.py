"""The recorded watch, by which the tests of this folder judge rollouts, shows every change, whatever happens to its stream."""

from __future__ import annotations

import pytest

from gpuward import names
from tests.controlplane.plane import NodeWatch, Plane

pytestmark = pytest.mark.controlplane

NODE = "gpu-01"


def test_a_watch_whose_stream_ends_misses_nothing(plane: Plane) -> None:
    with NodeWatch(plane) as watch:
        before = watch.moments[-1][NODE].state
        states = ["one", "two", "three", before]
        for state in states:
            watch.end_stream()
            label = f"{names.UPGRADE_STATE}={state}" if state else f"{names.UPGRADE_STATE}-"
            plane.kubectl("label", "node", NODE, label, "--overwrite")
        watch.wait_for("the last label to be seen", lambda now: "three" in seen(watch) and now[NODE].state == before)
        assert seen(watch) == [before, *states]


def seen(watch: NodeWatch) -> list[str]:
    """Return the states that the watch showed of the node, one after the other."""
    states = [moment[NODE].state for moment in list(watch.moments)]
    return [state for number, state in enumerate(states) if number == 0 or state != states[number - 1]]
