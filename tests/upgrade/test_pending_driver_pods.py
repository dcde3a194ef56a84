"""Driver pods that have loaded nothing: which of them go at once, before the turn of their nodes."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import DeletePod
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.model.taints import Taint
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import NOW, driver_pod, node, policy


@pytest.mark.parametrize(("revision", "left", "goes"), [("550", False, True), ("560", False, False), ("550", True, True),
                                                       ("560", True, False)])
def test_it_goes_where_another_would_come(revision: str, left: bool, goes: bool) -> None:
    """One that its DaemonSet was made to leave, and would make again as it is, would come again and again."""
    pod = driver_pod("n0", revision, ready=False, phase="Pending", begun=False)
    if left:
        pod = msgspec.structs.replace(pod, orphan=True, owner=None, labels={**pod.labels, "app": names.LEFT_DRIVER_APP})
    others = [node(f"n{number}", State.POD_RESTART_REQUIRED) for number in (1, 2)]
    plan = decide(build.cluster([node("n0", State.UPGRADE_REQUIRED), *others], [pod]), policy(parallel=2), NOW)
    assert any(isinstance(action, DeletePod) and action.pod == pod.ref for action in plan.actions) is goes


def test_it_stays_where_a_taint_would_keep_the_next_one_away() -> None:
    """It may get ready yet, as after a reboot. Who has let go of it has no driver until somebody takes the taint away."""
    pod = driver_pod("n0", "550", ready=False, phase="Pending", begun=False)
    tainted = msgspec.structs.replace(node("n0", State.UPGRADE_REQUIRED), taints=(Taint("team", "a", "NoSchedule"),))
    cluster = build.cluster([tainted], [pod])
    cluster = msgspec.structs.replace(cluster, daemonsets=tuple(
        msgspec.structs.replace(ds, tolerations=()) for ds in cluster.daemonsets))
    plan = decide(cluster, policy(), NOW)
    assert plan.holds["n0"].reason is Reason.DRIVER_REPELLED
    assert not any(isinstance(action, DeletePod) for action in plan.actions)
