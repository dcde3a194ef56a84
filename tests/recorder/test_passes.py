"""What the recorder takes of passes: those that decided, and those that failed to."""

from __future__ import annotations

import msgspec

from gpuward.model.passes import Outcome, Pass
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.policy.pods import selections
from gpuward.recorder.recorder import entry_of
from gpuward.recording.frame import Done
from gpuward.upgrade.decide import decide
from tests import build

ALONE = UpgradePolicy(absent="there is no ClusterPolicy")


def known(snapshot: Snapshot) -> Snapshot:
    """Return facts with all pods that matter."""
    return msgspec.structs.replace(snapshot, followed=selections([ALONE]))


def test_a_pass_is_taken_with_what_it_was_decided_on_and_how_it_went() -> None:
    snapshot = known(build.cluster([build.node(state="upgrade-done")], [build.driver_pod(driver="560")]))
    plan = decide(snapshot, ALONE, build.NOW)
    outcomes = tuple(Outcome(action, error="no") for action in plan.actions)
    entry = entry_of(Pass(snapshot, PolicyReader().read(snapshot), build.NOW, plan, outcomes))
    assert entry is not None
    assert entry.snapshot is snapshot
    assert (entry.policies, entry.at, entry.policy) == ((ALONE,), build.NOW, "")
    assert entry.plan.actions
    assert entry.outcomes[0] == Done(0, "no")


def test_a_pass_in_which_nothing_could_be_decided_yet_is_not() -> None:
    facts = build.fleet(2)
    assert entry_of(Pass(facts, PolicyReader().read(facts), build.NOW)) is None


def test_a_pass_that_failed_is_taken_without_a_plan() -> None:
    facts = known(build.fleet(2))
    entry = entry_of(Pass(facts, PolicyReader().read(facts), build.NOW, error="AttributeError"))
    assert entry is not None
    assert (entry.error, entry.plan.nodes) == ("AttributeError", {})
