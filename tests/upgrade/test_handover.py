"""A node in mid-upgrade whose driver passes from a ClusterPolicy to an NVIDIADriver that has no DaemonSet for it yet."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.states import State
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import NOW, driver_pod, policy, under_way

OWNED = {names.DRIVER_OWNER: "a", names.DEPLOY_DRIVER: "true"}


@pytest.mark.parametrize("has_old_pod", [True, False])
def test_it_keeps_its_state_and_its_cordon(has_old_pod: bool) -> None:
    view = under_way(State.POD_RESTART_REQUIRED, labels=OWNED)
    plan = decide(build.cluster([view], [driver_pod()] if has_old_pod else []), policy(driver="a"), NOW)
    assert plan.nodes["n0"].hold is not None
    assert plan.actions == ()


def test_without_the_label_for_drivers_it_is_left() -> None:
    view = under_way(State.POD_RESTART_REQUIRED, labels={names.DRIVER_OWNER: "a", names.DEPLOY_DRIVER: "pre-installed"})
    snapshot = msgspec.structs.replace(build.cluster([view]), daemonsets=())
    (patch,) = decide(snapshot, policy(driver="a"), NOW).actions
    assert patch.labels == {names.UPGRADE_STATE: None}  # type: ignore[union-attr]
