"""Domains on paper: whatever happens in whatever order, no rollout disturbs more of one, or more of them, than it may."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.domains import DomainLimit, DomainMode, DomainSettings, domains_of, remembered
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Record, decode_record, encode_record
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView, Owner
from gpuward.upgrade.decide import decide
from gpuward.upgrade.domains import DomainUse, in_the_way
from gpuward.upgrade.remedies import remedies
from tests import build
from tests.upgrade import test_properties, world
from tests.upgrade.test_properties import NAMES, Watched, examples, happen, steps

RACK = "rack"
SPREAD, WHOLE = DomainMode.SPREAD, DomainMode.WHOLE


def use(**out: str) -> DomainUse:
    """Return how domains stand: the nodes that are out of service of each, with a ! where they stay so, or * where under way."""
    nodes = {domain: names.split() for domain, names in out.items()}
    return DomainUse(
        out={domain: frozenset(each.strip("!*") for each in found) for domain, found in nodes.items() if found},
        under_way=frozenset(domain for domain, found in nodes.items() if any(each.endswith("*") for each in found)),
        stuck=frozenset(each.strip("!") for found in nodes.values() for each in found if each.endswith("!")),
    )


def with_half_done(found: DomainUse, *domains: str) -> DomainUse:
    return msgspec.structs.replace(found, half_done=frozenset(domains))


@pytest.mark.parametrize(("mode", "limit", "found", "domain", "reason"), [
    (SPREAD, 1, use(), "a", None),
    (SPREAD, 1, use(b="x* y*"), "a", None),
    (SPREAD, 1, use(a="x*"), "a", Reason.DOMAIN_LIMIT),
    (SPREAD, 2, use(a="x*"), "a", None),
    (SPREAD, 1, use(a="x!"), "a", Reason.DOMAIN_BROKEN),
    (SPREAD, 2, use(a="x! y*"), "a", Reason.DOMAIN_LIMIT),
    (SPREAD, 1, use(a="n"), "a", None),
    (WHOLE, 1, use(), "a", None),
    (WHOLE, 1, use(a="x* y*"), "a", None),
    (WHOLE, 1, use(b="x*"), "a", Reason.DOMAIN_LIMIT),
    (WHOLE, 2, use(b="x*"), "a", None),
    (WHOLE, 1, use(b="x!"), "a", Reason.DOMAIN_BROKEN),
    (WHOLE, 1, use(a="x*", b="y!"), "a", None),
    (WHOLE, 1, use(a="x!", b="y!"), "a", Reason.DOMAIN_BROKEN),
    (WHOLE, 1, with_half_done(use(), "b"), "a", Reason.DOMAIN_LIMIT),
    (WHOLE, 1, with_half_done(use(), "a", "b"), "a", None),
    (WHOLE, 1, with_half_done(use(a="x!"), "b"), "a", None),
    (WHOLE, 1, with_half_done(use(a="x!"), "b"), "b", Reason.DOMAIN_BROKEN),
    (WHOLE, 1, use(a="x*", b="y*"), "a", Reason.DOMAIN_LIMIT),
], ids=map(str, range(19)))
def test_a_domain_has_room_or_holds(
    mode: DomainMode, limit: int, found: DomainUse, domain: str, reason: Reason | None
) -> None:
    held = in_the_way(DomainSettings(RACK, mode, limit), found, "n", (domain,))
    assert (None if held is None else held.reason) == reason
    assert held is None or (held.limit == limit and held.used >= limit)


def test_a_node_is_in_the_domain_of_its_label_and_in_the_one_that_is_remembered() -> None:
    labelled, bare = build.node(labels={RACK: "a"}), build.node()
    known = Record(domain=remembered(RACK, "b"))
    assert domains_of(labelled, Record(), RACK) == ("a",)
    assert domains_of(labelled, known, RACK) == ("a", "b")
    assert domains_of(bare, known, RACK) == ("b",)
    assert domains_of(bare, Record(domain=remembered("other", "b")), RACK) == ("node/n0",)
    assert decode_record(encode_record(known)).domain == known.domain


def racked(count: int, racks: str, **rest: Any) -> Snapshot:
    """Return a fleet that waits, with the rack of each node."""
    found = build.fleet(count, state=State.UPGRADE_REQUIRED, **rest)
    nodes = {name: msgspec.structs.replace(node, labels={**node.labels, RACK: rack})
             for (name, node), rack in zip(sorted(found.nodes.items()), racks, strict=True)}
    return msgspec.structs.replace(found, nodes=nodes)


def rules(mode: DomainMode, limit: int = 1, **rest: Any) -> UpgradePolicy:
    return build.policy(**{"parallel": 0, "unavailable": None, **rest},
                        rollout=RolloutSettings(domains=DomainSettings(RACK, mode, limit)))


def starts(snapshot: Snapshot, policy: UpgradePolicy) -> set[str]:
    return {name for name, status in decide(snapshot, policy, build.NOW).nodes.items() if status.state in IN_PROGRESS}


def test_one_node_of_each_domain_starts_or_all_of_one_domain() -> None:
    fleet = racked(6, "abcabc")
    assert starts(fleet, rules(SPREAD)) == {"n0", "n1", "n2"}
    assert starts(fleet, rules(SPREAD, 2)) == set(fleet.nodes)
    assert starts(fleet, rules(WHOLE)) == {"n0", "n3"}
    assert starts(fleet, rules(WHOLE, 2)) == {"n0", "n3", "n1", "n4"}
    assert starts(fleet, rules(WHOLE, parallel=1)) == {"n0"}


def test_a_write_without_an_answer_begins_no_domain_while_another_one_is_out() -> None:
    """It may have started n0, or labelled it only."""
    fleet = racked(3, "aba", not_ready=[1], unsettled=["n0"])
    assert starts(msgspec.structs.replace(fleet, unsettled=frozenset()), rules(WHOLE)) == set()
    plan = decide(fleet, rules(WHOLE), build.NOW)
    assert plan.nodes["n2"].state is State.UPGRADE_REQUIRED
    assert build.hold_of(plan, "n2").what == DomainLimit(Reason.DOMAIN_BROKEN, "a", 1, 1, ("n1",), ("b",))


def test_a_domain_larger_than_a_limit_is_told_and_not_widened() -> None:
    plan = decide(racked(6, "aaaabb"), rules(WHOLE, unavailable=2), build.NOW)
    assert sum(status.state in IN_PROGRESS for status in plan.nodes.values()) == 2
    large = {getattr(hold.what, "large", None) for name, hold in plan.holds.items() if name in ("n2", "n3")}
    assert [(each.name, each.size) for each in large if each is not None] == [("a", 4)]


def test_raising_the_limit_of_domains_is_told_where_that_helps() -> None:
    fleet = world.apply(racked(2, "aa"), decide(racked(2, "aa"), rules(SPREAD), build.NOW).actions)
    hold = decide(fleet, rules(SPREAD), build.NOW).holds["n1"]
    assert hold.what == DomainLimit(Reason.DOMAIN_LIMIT, "a", 1, 1, ("n0",))
    (remedy,) = remedies(fleet, rules(SPREAD), build.NOW, "n1")
    assert (remedy.do, remedy.then) == ("raise max of domains to 2", "this node starts at once")
    assert '"spec":{"domains":{"max":2}}' in remedy.commands[0]


class Racked(Watched):
    """A cluster with racks: a node is where its label said when it was in service last, whoever edits that afterwards."""

    def __init__(self, snapshot: Snapshot, policy: UpgradePolicy) -> None:
        super().__init__(snapshot, policy)
        self.racks: dict[str, str] = {}
        self.look()

    def look(self) -> None:
        for name, node in self.snapshot.nodes.items():
            serves = node.state not in IN_PROGRESS and not node.unschedulable and node.ready
            if name not in self.racks or (serves and self._serves(name)):
                self.racks[name] = node.labels.get(RACK) or f"node/{name}"

    def _serves(self, name: str) -> bool:
        return test_properties._serves(self.snapshot, self.policy, name)

    def out(self, name: str) -> bool:
        node = self.snapshot.nodes[name]
        return node.unschedulable or not node.ready or not self._serves(name) or node.state in IN_PROGRESS

    def move(self, name: str, rack: str) -> None:
        """Edit a node's label; while it is out of service only where its domain is known."""
        self.look()
        node = self.snapshot.nodes[name]
        known = node.record is not None and node.record.domain == remembered(RACK, self.racks[name])
        if known or not self.out(name):
            self.snapshot = world.label(self.snapshot, name, RACK, rack or None)
            self.look()

    def check_limits(self, before: Snapshot, patch: PatchNode) -> None:
        name, settings = patch.node.name, self.policy.rollout.domains
        served = before.nodes[name].ready and test_properties._serves(before, self.policy, name)
        started = self.snapshot.nodes[name].state in IN_PROGRESS and before.nodes[name].state not in IN_PROGRESS
        if started and served and not before.nodes[name].unschedulable and settings is not None:
            rack = self.racks[name]
            others = {each for each in self.managed() if each != name and self.out(each)}
            if settings.mode is SPREAD:
                assert len([each for each in others if self.racks[each] == rack]) < settings.max
            else:
                racks = {self.racks[each] for each in others}
                assert rack in racks or len(racks) < settings.max
        super().check_limits(before, patch)


racks = st.sampled_from(["a", "b", ""])
domains = st.builds(DomainSettings, st.just(RACK), st.sampled_from(DomainMode), st.sampled_from([1, 1, 2]))
moves = st.tuples(st.just("rack"), st.sampled_from(NAMES), racks)


machinery = st.tuples(st.sampled_from(["pass", "pass", "pass", "pass", "gone", "made", "pods-ready"]), st.sampled_from(NAMES),
                      st.just(""))
wide = st.builds(build.policy, parallel=st.sampled_from([0, 0, 2, 3]), unavailable=st.sampled_from([None, None, "60%", 3]))


@examples(300)
@given(found=domains, policy=wide, where=st.text("aabc", min_size=5, max_size=5),
       script=st.lists(st.one_of(machinery, machinery, steps, moves), min_size=15, max_size=40), seed=st.integers(0, 2**32))
def test_no_more_of_a_domain_is_disturbed_than_may_be_whatever_the_order(
    found: DomainSettings, policy: UpgradePolicy, where: str, script: list[tuple[str, str, str]], seed: int
) -> None:
    rollout = msgspec.structs.replace(policy.rollout, domains=found)
    cluster, dice = Racked(racked(5, where), msgspec.structs.replace(policy, rollout=rollout)), random.Random(seed)
    for step in script:
        if step[0] == "rack":
            cluster.move(step[1], step[2])
        else:
            happen(cluster, step, dice)
            cluster.look()
    end = world.rollout(cluster.snapshot, cluster.policy, now=cluster.now)
    test_properties.check_end(end, cluster.foreign)


@examples(100)
@given(count=st.integers(1, 5), where=st.text("abc", min_size=5, max_size=5), found=domains,
       parallel=st.sampled_from([0, 1, 2]), seed=st.integers(0, 2**32))
def test_every_domain_gets_its_turn(count: int, where: str, found: DomainSettings, parallel: int, seed: int) -> None:
    fleet = racked(count, where[:count])
    policy = build.policy(parallel=parallel, unavailable=None, rollout=RolloutSettings(domains=found))
    end = world.rollout(fleet, policy)
    assert {status.state for status in end.plan.nodes.values()} == {State.DONE}


def beside_another(other: NodeView, *, ready: bool = True) -> set[str]:
    """Return which node of an NVIDIADriver starts while another one's is in the same rack, its driver ready or not."""
    nodes = [build.node("n0", State.UPGRADE_REQUIRED, labels={RACK: "r", names.DRIVER_OWNER: "a"}), other]
    pods = [msgspec.structs.replace(build.driver_pod(node, ready=fine), owner=Owner("DaemonSet", ds, f"uid-{ds}"))
            for node, ds, fine in (("n0", "a", True), ("n1", "b", ready))]
    daemonsets = tuple(build.daemonset(name=each, uid=f"uid-{each}", driver=each, selects={names.DRIVER_OWNER: each})
                       for each in "ab")
    revisions = (build.revision("550", 1, owner="uid-a"), build.revision("560", 2, owner="uid-a"))
    snapshot = msgspec.structs.replace(build.cluster(nodes, pods), daemonsets=daemonsets, revisions=revisions)
    return starts(snapshot, rules(SPREAD, driver="a"))


OTHERS = {RACK: "r", names.DRIVER_OWNER: "b"}


@pytest.mark.parametrize("ready", [True, False])
def test_a_node_of_another_policy_counts_while_its_driver_is_not_ready(ready: bool) -> None:
    """Nobody has decided about it yet: it is new, or its policy is."""
    assert beside_another(build.node("n1", labels=OTHERS), ready=ready) == ({"n0"} if ready else set())


@pytest.mark.parametrize("state", [State.UNKNOWN, State.CORDON_REQUIRED, State.UPGRADE_REQUIRED])
def test_a_node_of_another_policy_counts_that_nvidias_operator_left_in_mid_upgrade(state: State) -> None:
    """There is no record of it, and its policy is paused."""
    left = msgspec.structs.replace(build.node("n1", state, labels=OTHERS), record=None, unschedulable=state in IN_PROGRESS)
    assert beside_another(left) == (set() if state in IN_PROGRESS else {"n0"})
