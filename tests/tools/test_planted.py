"""Defects that are put back on purpose: each comes and goes with its run, and a rule about the world catches it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
import pytest
from tools.simulate import planted
from tools.simulate.scenario import Fault, Scenario, draw
from tools.simulate.world import play

from gpuward.upgrade import admission

ONE_BY_ONE: Final = {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": "100%",
                     "podDeletion": {"force": True, "deleteEmptyDir": True, "timeoutSeconds": 300}}


class Trial(NamedTuple):
    """Hold a small run in which a defect does harm, and the rule that catches it. Without the defect no rule is broken."""

    rule: str
    mode: str
    faults: tuple[Fault, ...]
    upgrade: dict[str, Any] = ONE_BY_ONE
    workload: str = "inference"
    nodes: int = 3
    seconds: float = 300.0
    seed: int = 0
    rollout: dict[str, Any] | None = None

    def scenario(self, plant: str) -> Scenario:
        """Return the run, with a defect put back if one is named."""
        return msgspec.structs.replace(
            draw(self.seed), mode=self.mode, nodes=self.nodes, seconds=self.seconds, latency=0.004, upgrade=self.upgrade,
            rollout=self.rollout, workloads=(self.workload,), faults=self.faults, stays_broken=False, heals_policy=True,
            plant=plant)


UNDER_PODS: Final = "no driver leaves a machine under a running GPU pod"
TRIALS: Final = {
    "accounts-are-never-made-again": Trial(
        "every GPU node is in the totals", "clusterpolicy", (Fault(100.0, "recreate-policy", 30.0, 0.5, 0.1),), seed=1),
    "queue-asks-for-the-pod-alone": Trial(
        "done is what is loaded", "clusterpolicy", (
            Fault(100.0, "budget-closes", 200.0, 0.5, 0.5), Fault(101.0, "change-driver", 0.0, 0.0, 0.5),
            Fault(103.0, "delete-driver-pod", 0.0, 0.0, 0.99)),
        {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": "100%"}),
    "owners-change-at-once": Trial(
        UNDER_PODS, "two-nvidiadrivers", (
            Fault(130.0, "change-pool", 0.0, 0.99, 0.8),)),
    "drivers-follow-discovery": Trial(UNDER_PODS, "precompiled", (Fault(100.0, "discovery-edited", 60.0, 0.8, 0.01),)),
    "kernels-share-a-selector": Trial(
        UNDER_PODS, "precompiled-two-kernels", (Fault(100.0, "delete-driver-daemonset", 0.0, 0.0, 0.1),)),
    "rollouts-go-on-without-a-policy": Trial(
        "nobody starts who must wait", "two-nvidiadrivers", (
            Fault(99.0, "budget-closes", 31.0, 0.5, 0.9), Fault(100.0, "delete-policy-in-rollout", 160.0, 0.1, 0.0)),
        nodes=4, seed=4),
    "failures-are-laundered": Trial(
        "failures are not laundered", "clusterpolicy", (
            Fault(100.0, "validator-overdue", 200.0, 0.0, 0.0), Fault(220.0, "operands-off", 40.0, 0.0, 0.1)), seconds=400.0),
    "what-is-refused-is-followed": Trial(
        UNDER_PODS, "clusterpolicy", (
            Fault(100.0, "refused-sandbox", 60.0, 0.5, 0.9),)),
    "absurd-times-stop-all": Trial(
        "no pass fails", "clusterpolicy", (
            Fault(100.0, "wild-time", 0.0, 0.55, 0.99), Fault(130.0, "change-driver", 0.0, 0.0, 0.5))),
    "evictions-have-no-back-off": Trial(
        "no object is written in a loop", "clusterpolicy", (Fault(100.0, "change-driver", 0.0, 0.0, 0.5),), workload="tolerant"),
    "aborts-hold-nobody": Trial(
        "no driver starts that was aborted", "clusterpolicy", (Fault(100.0, "command-abort", 180.0, 0.5, 0.1),)),
    "plans-hold-nobody": Trial(
        "no node starts but by the plan", "clusterpolicy", (Fault(100.0, "approve-plan", 180.0, 0.5, 0.4),)),
    "approvals-are-not-waited-for": Trial(
        "nobody goes past a canary that was not approved of", "clusterpolicy", (Fault(100.0, "change-driver", 0.0, 0.0, 0.5),),
        rollout={"waves": [{"name": "canary", "nodes": 1, "approval": "Required"}]}),
    "pauses-evict": Trial(
        "no node is emptied that people want to be left alone", "clusterpolicy", (
            Fault(100.0, "change-driver", 0.0, 0.0, 0.5), Fault(110.0, "command-pause", 150.0, 0.0, 0.1)),
        workload="tolerant", nodes=1),
    "checks-are-not-measured": Trial(
        "nobody goes past a canary whose check has not passed", "clusterpolicy", (Fault(100.0, "check-fails", 150.0, 0.5, 0.5),)),
    "idle-nodes-are-not-waited-for": Trial(
        "a rollout that waits for idle nodes evicts nobody", "clusterpolicy", (Fault(150.0, "idle-rollout", 0.0, 0.5, 0.5),)),
    "images-are-not-waited-for": Trial(
        "nobody starts before its images are there", "clusterpolicy", (Fault(100.0, "prestaged-rollout", 100.0, 0.5, 0.1),)),
    "nobody-is-given-up": Trial(
        "a node whose pods cannot be moved is given up in time", "clusterpolicy", (
            Fault(100.0, "pods-undrainable", 290.0, 0.5, 0.3),), seconds=400.0,
        upgrade=ONE_BY_ONE | {"podDeletion": {"force": True, "deleteEmptyDir": True, "timeoutSeconds": 0}}),
    "pods-for-images-stay": Trial(
        "nothing is left behind", "clusterpolicy", (Fault(100.0, "prestaged-rollout", 100.0, 0.5, 0.1),)),
    "windows-of-waves-hold-nobody": Trial(
        "nobody starts outside the windows", "clusterpolicy", (Fault(340.0, "change-driver", 0.0, 0.0, 0.5),), seconds=420.0,
        rollout={"waves": [{"name": "canary", "nodes": 1, "windows": [
            {"kind": "Allow", "schedule": "*/10 * * * *", "duration": "4m"}]}]}),
    "notices-hold-nobody": Trial(
        "no pod is evicted before its notice is over", "clusterpolicy", (Fault(100.0, "change-driver", 0.0, 0.0, 0.5),),
        rollout={"notice": {"before": "1m"}}),
    "notices-stay": Trial(
        "nothing is left behind", "clusterpolicy", (
            Fault(100.0, "change-driver", 0.0, 0.0, 0.5), Fault(170.0, "roll-back", 0.0, 0.0, 0.1)),
        rollout={"notice": {"before": "2m"}}),
    "gangs-are-not-spared": Trial(
        "no gang is sent away twice", "clusterpolicy", (Fault(100.0, "change-driver", 0.0, 0.0, 0.5),), workload="web", nodes=4,
        upgrade=ONE_BY_ONE | {"maxParallelUpgrades": 2},
        rollout={"gangs": {"until": "10m"}, "waves": [{"name": "canary", "nodes": 2, "soak": "1m"}]}),
    "pods-for-images-take-gpus": Trial(
        "a pod for images takes nothing else", "clusterpolicy", (Fault(100.0, "prestaged-rollout", 100.0, 0.5, 0.1),)),
}


@pytest.mark.parametrize("name", TRIALS)
def test_a_defect_that_is_put_back_is_caught_and_nothing_else(name: str) -> None:
    trial = TRIALS[name]
    assert play(trial.scenario("")).violation is None
    found = play(trial.scenario(name)).violation
    assert found is not None
    assert found.rule == trial.rule


def test_every_defect_is_tried() -> None:
    assert len(planted.PLANTS) == 24
    assert list(planted.PLANTS) == list(TRIALS)


def test_a_defect_ends_with_its_run() -> None:
    mended = admission._is_stuck
    with planted.planted("queue-asks-for-the-pod-alone"):
        assert admission._is_stuck is not mended
    assert admission._is_stuck is mended


def test_a_defect_that_undoes_nothing_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"moved-on": ((("gpuward.upgrade.admission", "no_such_function"), lambda original: original),)}
    monkeypatch.setattr(planted, "PLANTS", gone)
    with pytest.raises(planted.NotThere, match="no_such_function"), planted.planted("moved-on"):
        pass
