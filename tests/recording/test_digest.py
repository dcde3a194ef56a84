"""Plans have the same digest if and only if they say the same."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.actions import EvictPod, PatchNode
from gpuward.model.plan import Counts, Hold, NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.model.views import Ref
from gpuward.model.waits import Limit
from gpuward.recording.digest import digest
from gpuward.upgrade.decide import decide
from tests import build
from tests.waits import held_by

HELD = NodeStatus(State.UPGRADE_REQUIRED, 1.0, Hold(Limit(Reason.PARALLEL_LIMIT, 1, 1, ()), 1.0), "upgrade-required", 1)
PLAN = Plan((PatchNode(Ref("", "n0", "u"), why="x"),), {"n0": HELD}, 5.0, Counts(1), True)
replace = msgspec.structs.replace
NEWER = {Reason.DRIVER_IN_USE, Reason.NOT_SELECTED, Reason.DRIVER_REFUSED, Reason.REPLACEMENT_REFUSED, Reason.REFUSED_ELSEWHERE,
         Reason.TEMPLATE_EDITED, Reason.LEDGER_REFUSED, Reason.OPERANDS_STARTING, Reason.UNCORDONED, Reason.WRITE_UNANSWERED,
         Reason.DRIVER_UNPLACED, Reason.NO_NODE_MAY_START, Reason.DRIVER_LABEL_UNKNOWN, Reason.OPERAND_FAILING,
         Reason.KERNEL_UNKNOWN,
         Reason.WORKLOAD_KEPT, Reason.DRIVER_REPELLED, Reason.VALIDATION_OFF, Reason.IMAGE_MISSING, Reason.DRIVER_KEPT,
         Reason.WINDOW_SHUT, Reason.OPERANDS_KEPT,
         Reason.DOMAIN_LIMIT, Reason.DOMAIN_BROKEN, Reason.IDLE_AWAITED, Reason.ABORTED, Reason.WAVE_FAILED, Reason.WAVE_EMPTY,
         Reason.WAVE_NOT_DONE,
         Reason.WAVE_SOAKING, Reason.APPROVAL_REQUIRED, Reason.WAVE_LIMIT, Reason.GROWTH_LIMIT, Reason.GANG_AWAITED,
         Reason.GANG_SPARED,
         Reason.ANALYSIS_FAILED, Reason.ANALYSIS_UNKNOWN, Reason.ANALYSIS_RUNNING,
         Reason.IMAGE_NOT_STAGED, Reason.STAGING_FAILED, Reason.DELETION_UNSEEN,
         Reason.UNDRAINABLE, Reason.PLAN_DIFFERS, Reason.QUARANTINED, Reason.DEVICE_PLUGIN_STOPPING, Reason.WRONG_DRIVER_TYPE,
         Reason.DOES_NOT_STOP, Reason.NOTICE_GIVEN, Reason.NOTICE_UNANSWERED, Reason.MIG_NOT_APPLIED,
         Reason.EVICTION_FORBIDDEN, Reason.MAINTENANCE_AWAITED, Reason.MAINTENANCE_UNSEEN}
"""Reasons that no such recording has."""


def test_equal_facts_give_equal_digests() -> None:
    one, other = (decide(build.fleet(4), build.policy(), build.NOW) for _ in range(2))
    assert one is not other
    assert digest(one) == digest(other)


@pytest.mark.parametrize("other", [
    replace(PLAN, actions=()),
    replace(PLAN, actions=(PatchNode(Ref("", "n0", "v"), why="x"),)),
    replace(PLAN, actions=(*PLAN.actions, EvictPod(Ref("a", "b"), "n0"))),
    replace(PLAN, nodes={"n1": HELD}),
    *(replace(PLAN, nodes={"n0": replace(HELD, **{field: value})}) for field, value in
      [("state", None), ("since", 2.0), ("hold", None), ("label", ""), ("turn", 2),
       ("hold", Hold(Limit(Reason.PARALLEL_LIMIT, 2, 1, ()), 1.0))]),
    replace(PLAN, wake_at=None), replace(PLAN, counts=Counts(2)), replace(PLAN, auto_upgrade=False),
], ids=lambda other: "")
def test_every_difference_shows(other: Plan) -> None:
    assert digest(other) != digest(PLAN)


def test_digests_of_holds_are_those_of_recordings_made_before_waits_had_types() -> None:
    held = {reason: NodeStatus(State.UNKNOWN, 1.0, held_by(reason)) for reason in Reason if reason not in NEWER}
    assert digest(Plan(nodes={reason.value: status for reason, status in held.items()})) == "62d6457c0d5ee35a54c9f6f0e4782e2e"
