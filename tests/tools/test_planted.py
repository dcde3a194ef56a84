"""Defects that are put back on purpose: each comes and goes with its run, and a rule catches it."""

from __future__ import annotations

import msgspec
import pytest
from tools.simulate import planted
from tools.simulate.scenario import Fault, Scenario, draw
from tools.simulate.world import play

from gpuward.upgrade import queueing


def driver_pod_deleted_in_the_queue(plant: str = "") -> Scenario:
    """Two nodes wait for a third one, and somebody deletes the driver pod of one of them."""
    faults = (Fault(100.0, "budget-closes", 200.0, 0.5, 0.5), Fault(101.0, "change-driver", 0.0, 0.0, 0.5),
              Fault(103.0, "delete-driver-pod", 0.0, 0.0, 0.99))
    one_by_one = {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": "100%"}
    return msgspec.structs.replace(draw(0), mode="clusterpolicy", nodes=3, seconds=300.0, latency=0.004, upgrade=one_by_one,
                                   rollout=None, workloads=("inference",), faults=faults, stays_broken=False, plant=plant)


def test_a_node_that_leaves_the_queue_with_the_old_driver_is_caught() -> None:
    assert play(driver_pod_deleted_in_the_queue()).violation is None
    found = play(driver_pod_deleted_in_the_queue("queue-asks-for-the-pod-alone")).violation
    assert found is not None
    assert found.rule == "done is what is loaded"


def test_a_defect_ends_with_its_run() -> None:
    mended = queueing._is_stuck
    with planted.planted("queue-asks-for-the-pod-alone"):
        assert queueing._is_stuck is not mended
    assert queueing._is_stuck is mended


def test_a_defect_that_undoes_nothing_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"moved-on": ((("gpuward.upgrade.queueing", "no_such_function"), lambda original: original),)}
    monkeypatch.setattr(planted, "PLANTS", gone)
    with pytest.raises(planted.NotThere, match="no_such_function"), planted.planted("moved-on"):
        pass


def test_ten_defects_can_be_put_back() -> None:
    assert len(planted.PLANTS) == 10
