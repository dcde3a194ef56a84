"""Two leaders together start no more nodes than one may: what one was granted counts for the other."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import GrantNodes, PatchNode
from gpuward.model.containers import PodShape, Pull
from gpuward.model.plan import Plan
from gpuward.model.reasons import Reason
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.staging import Prestage, PrestageMode
from gpuward.model.states import State
from gpuward.model.waves import Share, Wave
from gpuward.upgrade.decide import decide
from gpuward.upgrade.ledger import read_grants, stamp, write_grants
from tests import build
from tests.upgrade.world import Refused, annotate, apply

QUEUED = State.UPGRADE_REQUIRED
POLICY = build.policy(parallel=2)


def kept(snapshot: Snapshot, grants: Mapping[str, str] = {}) -> Snapshot:
    return msgspec.structs.replace(snapshot, grants=grants)


def queue(nodes: int) -> Snapshot:
    """Build a fleet that waits, whose leader keeps a ledger with nothing in it."""
    members = [build.node(f"n{each}", QUEUED, remembers=build.record(QUEUED)) for each in range(nodes)]
    pods = [pod for each in range(nodes) for pod in (build.driver_pod(f"n{each}"), build.validator(f"n{each}"))]
    return kept(build.cluster(members, pods))


def granted(plan: Plan) -> GrantNodes:
    (action,) = [action for action in plan.actions if isinstance(action, GrantNodes)]
    return action


def started(plan: Plan) -> list[str]:
    return [action.node.name for action in plan.actions if isinstance(action, PatchNode) and action.entered]


def with_grants(snapshot: Snapshot, *nodes: str) -> Snapshot:
    return kept(snapshot, {name: stamp(snapshot.nodes[name]) for name in nodes})


def test_nodes_are_granted_before_the_first_of_them_is_touched() -> None:
    plan = decide(queue(4), POLICY, build.NOW)
    assert set(granted(plan).add) == {"n0", "n1"}
    assert started(plan) == []
    assert set(plan.holds) == {"n2", "n3"}


def test_what_was_granted_starts_and_nothing_else() -> None:
    plan = decide(with_grants(queue(4), "n0", "n1"), POLICY, build.NOW)
    assert started(plan) == ["n0", "n1"]
    assert not any(isinstance(action, GrantNodes) for action in plan.actions)


def test_what_an_earlier_leader_was_granted_takes_the_place_of_others() -> None:
    plan = decide(with_grants(queue(4), "n2", "n3"), POLICY, build.NOW)
    assert started(plan) == ["n2", "n3"]


def test_a_grant_means_nothing_once_its_node_has_changed_and_leaves_with_the_next_ones() -> None:
    snapshot = with_grants(queue(4), "n0", "n1")
    begun = apply(snapshot, [action for action in decide(snapshot, POLICY, build.NOW).actions if isinstance(action, PatchNode)])
    finished = msgspec.structs.replace(begun, nodes={**begun.nodes, "n0": build.node("n0", State.DONE)},
                                       pods={**begun.pods, "n0": (build.driver_pod("n0", "560"), build.validator("n0"))})
    plan = decide(finished, POLICY, build.NOW)
    assert set(granted(plan).add) == {"n2"}
    assert granted(plan).drop == ("n0", "n1")


def test_the_ledger_is_cleared_when_the_rollout_is_over() -> None:
    done = [build.node(f"n{each}", State.DONE) for each in range(2)]
    pods = [pod for each in range(2) for pod in (build.driver_pod(f"n{each}", "560"), build.validator(f"n{each}"))]
    over = kept(build.cluster(done, pods), {"n0": "long ago", "gone": "as well"})
    assert granted(decide(over, POLICY, build.NOW)).drop == ("gone", "n0")


@pytest.mark.parametrize("auto_upgrade", [True, False])
def test_a_grant_that_is_not_used_is_withdrawn_so_that_a_late_patch_fails(auto_upgrade: bool) -> None:
    snapshot = with_grants(queue(2), "n0")
    late = decide(snapshot, POLICY, build.NOW).actions[0]
    skipped = msgspec.structs.replace(
        snapshot, nodes={**snapshot.nodes, "n0": msgspec.structs.replace(
            snapshot.nodes["n0"], labels={**snapshot.nodes["n0"].labels, names.UPGRADE_SKIP: "true"})})
    rules = msgspec.structs.replace(POLICY, auto_upgrade=auto_upgrade)
    fenced = apply(skipped, [action for action in decide(skipped, rules, build.NOW).actions
                             if isinstance(action, PatchNode) and action.node.name == "n0"][:1])
    with pytest.raises(Refused):
        apply(fenced, [late])


@pytest.mark.parametrize("waves", [(Wave("canary", nodes=Share(1)),), (Wave("canary", nodes=Share(1), approval=True),)])
def test_a_granted_node_that_is_to_wait_for_a_wave_by_now_does_not_start(waves: tuple[Wave, ...]) -> None:
    """As where the patch came late, and the node should have another driver meanwhile."""
    snapshot = with_grants(queue(4), "n2")
    late = decide(snapshot, POLICY, build.NOW).actions[0]
    rules = msgspec.structs.replace(POLICY, rollout=RolloutSettings(waves=waves))
    plan = decide(snapshot, rules, build.NOW)
    assert plan.holds["n2"].reason is Reason.WAVE_NOT_DONE
    fenced = apply(snapshot, [action for action in plan.actions if isinstance(action, PatchNode) and action.node.name == "n2"])
    assert fenced.nodes["n2"].state is QUEUED
    with pytest.raises(Refused):
        apply(fenced, [late])


def test_a_granted_node_whose_next_driver_has_other_images_by_now_waits_for_them() -> None:
    """As where it was granted to lose its driver, and should have a new one in the next pass."""
    found = with_grants(queue(2), "n0")
    shape = PodShape((Pull("nvidia-driver-ctr", "registry.example.com/driver:560", "IfNotPresent"),))
    daemonsets = tuple(msgspec.structs.replace(each, shape=shape) for each in found.daemonsets)
    snapshot = msgspec.structs.replace(found, daemonsets=daemonsets)
    assert started(decide(snapshot, POLICY, build.NOW)) == ["n0"]
    rules = msgspec.structs.replace(POLICY, rollout=RolloutSettings(prestage=Prestage(PrestageMode.IMAGE)))
    plan = decide(snapshot, rules, build.NOW)
    assert plan.holds["n0"].reason is Reason.IMAGE_NOT_STAGED
    after = apply(snapshot, [action for action in plan.actions if isinstance(action, PatchNode) and action.node.name == "n0"])
    assert after.nodes["n0"].state is QUEUED


def test_a_granted_node_that_lost_its_driver_pod_keeps_its_place_until_its_grant_is_withdrawn() -> None:
    snapshot = with_grants(queue(4), "n0")
    late = decide(snapshot, POLICY, build.NOW).actions[0]
    bare = msgspec.structs.replace(snapshot, pods={**snapshot.pods, "n0": (build.validator("n0"),)})
    plan = decide(bare, POLICY, build.NOW)
    assert set(granted(plan).add) == {"n1"}
    with pytest.raises(Refused):
        apply(apply(bare, [action for action in plan.actions if isinstance(action, PatchNode)]), [late])


def test_a_node_that_looks_like_any_new_one_gets_a_memory_before_it_is_granted() -> None:
    fresh = kept(build.fleet(nodes=1))
    plan = decide(fresh, POLICY, build.NOW)
    assert started(plan) == ["n0"]
    assert not any(isinstance(action, GrantNodes) for action in plan.actions)
    queued = apply(fresh, plan.actions)
    assert queued.nodes["n0"].state is QUEUED
    assert set(granted(decide(queued, POLICY, build.NOW)).add) == {"n0"}


def test_the_stamp_covers_what_the_admission_tests() -> None:
    node = queue(1).nodes["n0"]
    stamps = {stamp(node), stamp(build.node("n0", State.DONE)), stamp(msgspec.structs.replace(node, uid="another")),
              stamp(annotate(queue(1), "n0", names.UPGRADE_RECORD, "{}").nodes["n0"])}
    assert len(stamps) == 4


@pytest.mark.parametrize("text", ["", "garbage", "[]", '{"n0": 7}'])
def test_garbage_in_the_ledger_grants_nothing(text: str) -> None:
    assert read_grants(text) == {}


def test_the_ledger_is_read_as_it_was_written() -> None:
    assert read_grants(write_grants({"n1": "b", "n0": "a"})) == {"n0": "a", "n1": "b"}
