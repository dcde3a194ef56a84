"""What changed between two snapshots, taken over onto the first, makes the second."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from gpuward.model.budgets import BudgetView
from gpuward.model.owned import OwnedView
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.snapshot import Applied, References, Refusal, Snapshot
from gpuward.model.states import State
from gpuward.model.views import PolicyView
from gpuward.recording.changes import MOST, NOTHING, Changes, Table, changes_between, in_parts
from gpuward.recording.frame import Frame
from gpuward.recording.rebuilding import Facts
from tests import build

replace = msgspec.structs.replace


def written_and_read(changes: Changes) -> Iterable[Changes]:
    """Return changes as they come back from a file, in their parts."""
    return [msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=Changes) for part in in_parts(changes)]


def rebuilt(*snapshots: Snapshot) -> Snapshot:
    """Return the last of some snapshots, made again from what changed between them."""
    facts, before = Facts(), NOTHING
    for snapshot in snapshots:
        for part in written_and_read(changes_between(before, snapshot)):
            facts.apply(part)
        before = snapshot
    return facts.snapshot()


def test_of_a_custom_resource_only_what_is_recorded_counts_as_a_change() -> None:
    body = {**POLICY.body, "spec": {"driver": {"env": [{"name": "TOKEN", "value": "one"}]}}}
    other = {**POLICY.body, "spec": {"driver": {"env": [{"name": "TOKEN", "value": "two"}]}}}
    before, after = (replace(FLEET, policies=(replace(POLICY, body=each),)) for each in (body, other))
    assert changes_between(before, after) == Changes()


def in_order(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the pods of each node by name, as decisions look at them."""
    return replace(snapshot, pods={node: tuple(sorted(pods, key=lambda pod: pod.ref)) for node, pods in snapshot.pods.items()})


FLEET = build.fleet(3, states={1: State.DONE}, gpu_pods={2: 2})
POLICY = PolicyView("p", "u", "1", 1, body={"kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"driver": {}}})
OWNED = OwnedView("ClusterRole", "", "y", deleting=True)
BUDGETS = tuple(BudgetView("default", name, selector=(("app", "in", frozenset({"a", "b"})),)) for name in "abc")


def test_a_fleet_is_the_same_again() -> None:
    assert rebuilt(FLEET) == FLEET


@pytest.mark.parametrize("after", [
    build.fleet(2),
    build.fleet(4, cordoned=[1]),
    replace(FLEET, nodes={**FLEET.nodes, "n0": build.under_way(State.POD_RESTART_REQUIRED)}),
    replace(FLEET, nodes={**FLEET.nodes, "n0": replace(FLEET.nodes["n0"], labels={"only": "this"}, ready=None)}),
    replace(FLEET, pods={**FLEET.pods, "n0": (*FLEET.pods["n0"], build.gpu_pod("n0"))}),
    replace(FLEET, pods={**FLEET.pods, "n2": FLEET.pods["n2"][1:]}),
    replace(FLEET, pods={name: pods for name, pods in FLEET.pods.items() if name != "n1"}),
    replace(FLEET, refusals={"uid": Refusal(1.0, 2, "no")}, unsettled=frozenset({"n1"}), grants={"n1": "stamp"}),
    replace(FLEET, daemonsets=(build.daemonset(settled=False),), revisions=()),
    replace(FLEET, budgets=BUDGETS),
    replace(FLEET, policies=(POLICY, replace(POLICY, name="later")), drivers=(POLICY,), rollout_policies=(POLICY,)),
    replace(FLEET, departed=(POLICY,)),
    replace(FLEET, owned={("Service", "ns", "x"): OwnedView("Service", "ns", "x", "u", "7"), ("ClusterRole", "", "y"): OWNED},
            applied={("ClusterRole", "", "y"): Applied("hash", "7", 1)}),
    replace(FLEET, references=References(frozenset({("u", 1)}), True, {"map": ("key",)}, frozenset({"secret"})),
            unlisted={"NVIDIADriver": "not allowed"}),
], ids=lambda after: "")
def test_each_kind_of_change_is_taken_over(after: Snapshot) -> None:
    assert in_order(rebuilt(FLEET, after)) == in_order(after)
    assert in_order(rebuilt(FLEET, after, FLEET)) == in_order(FLEET), "and back"


def test_the_order_of_objects_is_kept() -> None:
    first, second, third = BUDGETS
    moved = replace(FLEET, budgets=(third, first, second))
    assert rebuilt(replace(FLEET, budgets=BUDGETS), moved).budgets == moved.budgets


def test_a_pod_that_gets_its_node_is_no_longer_where_it_was() -> None:
    waiting = replace(build.gpu_pod("n0"), node="")
    before, after = (replace(FLEET, pods={"": (waiting,)}), replace(FLEET, pods={"n0": (replace(waiting, node="n0"),)}))
    assert rebuilt(before, after).pods == after.pods


def test_what_did_not_change_takes_no_room_and_stays_the_same_object() -> None:
    facts = Facts()
    facts.apply(changes_between(NOTHING, FLEET))
    before = facts.snapshot()
    after = replace(FLEET, nodes={**FLEET.nodes, "n0": replace(FLEET.nodes["n0"], unschedulable=True)})
    changes = changes_between(FLEET, after)
    assert changes == Changes(nodes=msgspec.structs.replace(changes.nodes, changed={"n0": {"unschedulable": True}}))
    facts.apply(changes)
    assert facts.snapshot().nodes["n1"] is before.nodes["n1"]
    assert facts.snapshot().pods["n0"] is before.pods["n0"]


def test_of_labels_only_those_that_differ_are_kept() -> None:
    node = FLEET.nodes["n0"]
    after = replace(FLEET, nodes={**FLEET.nodes, "n0": replace(node, labels={**node.labels, "new": "1"})})
    assert changes_between(FLEET, after).nodes.changed == {"n0": {"labels": {"new": "1"}}}


def test_a_large_fleet_comes_in_parts() -> None:
    large = build.fleet(MOST // 2)
    assert len(list(in_parts(changes_between(NOTHING, large)))) == 3
    assert rebuilt(large) == large


def test_annotations_of_others_are_left_out_at_first_and_later() -> None:
    def with_password(value: str) -> Snapshot:
        return build.cluster([build.node(annotations={"example.com/password": value, "nvidia.com/kept": value})])

    read = rebuilt(with_password("one"), with_password("two"))
    assert read.nodes["n0"].annotations == {"nvidia.com/kept": "two"}
    assert b"password" not in msgspec.msgpack.encode(changes_between(with_password("one"), with_password("two")))


def test_changes_that_are_not_about_these_facts_are_refused() -> None:
    changes = changes_between(FLEET, build.fleet(2, cordoned=[0]))
    with pytest.raises(ValueError, match="was not there"):
        Facts().apply(changes)


def test_a_policy_is_the_same_again() -> None:
    policy = build.policy(parallel=3, unavailable="25%", wait_for="app=x", drain=DrainSettings(enable=True))
    frame = msgspec.msgpack.decode(msgspec.msgpack.encode(Frame(1.0, policies=(policy, UpgradePolicy()))), type=Frame)
    assert frame.policies == (policy, UpgradePolicy())


def test_a_key_that_somebody_made_up_is_taken_for_what_it_is() -> None:
    facts = Facts()
    facts.apply(Changes(owned=Table(new={"made up": OWNED, "a/b/c/d": OWNED})))
    assert list(facts.snapshot().owned) == [("made up", "", ""), ("a", "b", "c")]
