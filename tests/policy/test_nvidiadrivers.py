"""Which upgrade policies are in force, and what is wrong with which NVIDIADriver."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.owners import NoOwner, OwnedBy
from gpuward.model.policy import MaxUnavailable, UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, NodeView, Owner, PolicyView
from gpuward.policy.kept import KeptClaim, remember
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from gpuward.policy.refused import problems_besides, why_refused
from tests.policy import test_clusterpolicy as policies

LEFT = {"useNvidiaDriverCRD": True}
UNOWNED = ("", False, True)


def driver(name: str, *, annotations: dict[str, str] | None = None, deleting: bool = False, **spec: Any) -> PolicyView:
    body = {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "spec": {"version": "1", "repository": "r", **spec},
            "metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations or {}}}
    return PolicyView(name, f"uid-{name}", generation=1, deleting=deleting, body=body)


def cluster_policy(**spec: Any) -> PolicyView:
    view = policies.view()
    body = msgspec.json.decode(msgspec.json.encode(view.body))
    body["spec"]["driver"] |= spec
    return msgspec.structs.replace(view, body=body)


def read(*drivers: PolicyView, policy: PolicyView | None = None, **facts: Any) -> PoliciesInForce:
    views = (cluster_policy(**LEFT),) if policy is None else (policy,)
    return PolicyReader().read(Snapshot("ns", policies=views, drivers=drivers, **facts))


def in_force(found: PoliciesInForce) -> list[tuple[str, bool, bool]]:
    return [(policy.driver, policy.auto_upgrade, policy.unowned) for policy in found.upgrades]


def owned_driver(kind: str) -> DaemonSetView:
    labels = {names.COMPONENT_LABEL: names.DRIVER_COMPONENT}
    return DaemonSetView("ns", kind, labels=labels, owner=Owner(kind, "x", "u"))


def test_each_has_an_upgrade_policy_of_its_own_that_is_automatic_unless_turned_off() -> None:
    found = read(driver("a", upgradePolicy={"maxUnavailable": 7}), driver("b", upgradePolicy={"autoUpgrade": False}))
    assert in_force(found) == [("a", True, False), ("b", False, False), UNOWNED]
    assert found.upgrades[0].max_unavailable == MaxUnavailable(count=7)


def test_without_the_switch_the_policy_is_the_cluster_policy_s() -> None:
    found = read(driver("a"), policy=cluster_policy())
    assert in_force(found) == [("", True, False)]


def test_without_a_cluster_policy_they_are_in_force_if_there_are_any() -> None:
    reader = PolicyReader()
    found = reader.read(Snapshot("ns", drivers=(driver("a"),)))
    assert in_force(found) == [("a", False, False), UNOWNED], "nothing is upgraded, whatever they say"
    assert {policy.absent for policy in found.upgrades} == {"there is no ClusterPolicy"}
    assert in_force(reader.read(Snapshot("ns"))) == [("", False, False)]
    ending = msgspec.structs.replace(cluster_policy(**LEFT), deleting=True)
    found = read(driver("a"), policy=ending)
    assert in_force(found) == [("a", False, False), UNOWNED]
    assert {policy.absent for policy in found.upgrades} == {"ClusterPolicy p is being deleted"}


def test_one_that_is_being_deleted_claims_no_node_and_lets_those_that_it_has_go_within_its_limits() -> None:
    found = read(driver("a", deleting=True))
    assert (found.active, found.claims) == ((), ())
    assert in_force(found) == [("a", True, False), UNOWNED]


@pytest.mark.parametrize(("owners", "theirs"), [
    (["NVIDIADriver"], True), (["ClusterPolicy"], False), (["ClusterPolicy", "NVIDIADriver"], False), ([], False),
])
def test_while_the_cluster_policy_is_invalid_drivers_are_whose_they_were(owners: list[str], theirs: bool) -> None:
    broken = cluster_policy(upgradePolicy={"maxUnavailable": "few"})
    found = read(driver("a"), policy=broken, daemonsets=tuple(map(owned_driver, owners)))
    assert found.in_force is theirs
    assert not any(policy.admit for policy in found.upgrades)
    if theirs:
        assert found.upgrades[0].invalid == "ClusterPolicy p"


def test_a_daemonset_of_the_cluster_policys_counts_by_its_app_alone() -> None:
    broken = cluster_policy(upgradePolicy={"maxUnavailable": "few"})
    own = msgspec.structs.replace(owned_driver("ClusterPolicy"), labels={"app": names.DRIVER_APP})
    assert not read(driver("a"), policy=broken, daemonsets=(own, owned_driver("NVIDIADriver"))).in_force


def test_an_invalid_one_starts_nothing_and_goes_on_under_what_it_was() -> None:
    valid = UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=5, driver="a")
    before = {names.VALID_UPGRADE_POLICY: remember(valid, claim=KeptClaim())}
    found = read(driver("a", upgradePolicy={"maxUnavailable": "few"}, annotations=before), driver("b"))
    broken, fine, _ = found.upgrades
    assert (broken.driver, broken.admit, broken.max_parallel_upgrades) == ("a", False, 5)
    assert (fine.driver, fine.admit) == ("b", True)
    assert [problem.field for problem in found.active[0].problems] == ["spec.upgradePolicy.maxUnavailable"]
    assert found.claims[0].valid, "its nodes stay its own"


def test_the_type_of_one_that_cannot_be_decoded_is_the_kept_one_and_else_not_known() -> None:
    valid = UpgradePolicy(auto_upgrade=True, driver="a")
    for claim, driver_type in (KeptClaim(driver_type="vgpu-host-manager"), "vgpu-host-manager"), (KeptClaim(), ""):
        before = {names.VALID_UPGRADE_POLICY: remember(valid, claim=claim)}
        (broken,) = read(driver("a", nodeSelector=7, annotations=before)).claims
        assert (broken.driver_type, broken.is_for_hosts) == (driver_type, bool(driver_type))
    assert [each.driver_type for each in read(driver("a"), driver("b", driverType="vgpu")).claims] == ["gpu", "vgpu"]


@pytest.mark.parametrize("spec", [
    {"default": True, "nodeSelector": {"a": "b"}}, {"nodeSelector": {names.DRIVER_OWNER: "x"}}, {"nodeSelector": 7},
])
def test_one_that_chooses_its_nodes_wrongly_claims_none(spec: dict[str, Any]) -> None:
    (found,) = read(driver("a", **spec)).active
    assert found.is_misplaced
    assert not found.claim.valid


def test_a_conflict_holds_those_that_are_in_it() -> None:
    node = NodeView("n0", labels={names.GPU_PRESENT: "true", "pool": "a"})
    pool = {"pool": "a"}
    found = read(driver("a", nodeSelector=pool), driver("b", nodeSelector=pool), driver("c", default=True), nodes={"n0": node})
    assert set(found.conflicts) == {"a", "b"}
    assert [policy.admit for policy in found.upgrades] == [False, False, True, True]


def test_one_that_was_never_valid_is_told_of_the_overlap_too_and_is_in_nobodys_way() -> None:
    node = NodeView("n0", labels={names.GPU_PRESENT: "true", "pool": "a"})
    broken = driver("b", nodeSelector={"pool": "a"}, upgradePolicy={"maxUnavailable": "few"})
    found = read(driver("a", nodeSelector={"pool": "a"}), broken, nodes={"n0": node})
    assert (found.conflicts, found.owners["n0"]) == ({}, OwnedBy("a"))
    assert [policy.admit for policy in found.upgrades[:2]] == [True, False]
    told = "multiple NVIDIADrivers match the same node n0: [a b]"
    assert (why_refused(found, "a"), why_refused(found, "b").count(told)) == ("", 1)
    assert "spec.upgradePolicy.maxUnavailable" in why_refused(found, "b")
    apart = read(driver("a", nodeSelector={"pool": "b"}), broken, nodes={"n0": node})
    assert (apart.overlaps, apart.owners["n0"]) == ({}, NoOwner())


def test_each_problem_of_each_policy_is_counted() -> None:
    twice = driver("b", upgradePolicy={"maxUnavailable": "few"}, nodeSelector=7)
    assert len(read(twice).active[0].problems) == 2
    assert [problems_besides(found) for found in (read(driver("a")), read(twice), read(twice, driver("c", nodeSelector=7)),
                                                  read(driver("a", nodeSelector=7), twice))] == [0, 0, 1, 2]


def test_a_second_default_that_was_never_valid_is_told_so() -> None:
    found = read(driver("a", default=True), driver("b", default=True, upgradePolicy={"maxUnavailable": "few"}))
    assert why_refused(found, "b").endswith("multiple default NVIDIADrivers found: [a b]")
    assert not found.conflicts


def test_a_node_is_a_matter_of_its_owner_s_policy() -> None:
    found = read(driver("a"), driver("b"))
    assert found.upgrades_of(NodeView("n0", labels={names.DRIVER_OWNER: "b"})).driver == "b"
    assert found.upgrades_of(NodeView("n0")).driver == ""
    assert found.upgrades_of(None).driver == ""
    assert found.upgrades_of(NodeView("n0")) == found.upgrades[-1]
    assert found.upgrades_of(NodeView("n0")).unowned


def test_a_resumed_rollout_is_that_of_one_driver() -> None:
    found = read(driver("a", annotations={names.RESUMED_AT: "2026-01-01T00:00:00Z"}), driver("b"),
                 driver("c", annotations={names.RESUMED_AT: "soon"}))
    assert [policy.rollout.resumed_at for policy in found.upgrades[:3]] == [1767225600.0, 0.0, 0.0]
    assert found.active[2].resume_problem is not None


def test_resuming_the_cluster_policy_s_rollout_resumes_every_driver_s() -> None:
    policy = cluster_policy(**LEFT)
    meta = {**policy.body["metadata"], "annotations": {names.RESUMED_AT: "2026-01-01T00:00:00Z"}}
    found = read(driver("a"), policy=msgspec.structs.replace(policy, body={**policy.body, "metadata": meta}))
    assert found.upgrades[0].rollout.resumed_at == 1767225600.0


def test_whose_a_node_should_be_follows_its_labels() -> None:
    reader = PolicyReader()
    views: tuple[PolicyView, ...] = (driver("a", nodeSelector={"pool": "a"}), driver("b", default=True))

    def owner(**labels: str) -> object:
        node = NodeView("n0", labels={names.GPU_PRESENT: "true", **labels})
        facts = Snapshot("ns", policies=(cluster_policy(**LEFT),), drivers=views, nodes={"n0": node, "cpu": NodeView("cpu")})
        return reader.read(facts).owners

    assert owner(pool="a") == {"n0": OwnedBy("a")}
    assert owner(pool="b") == {"n0": OwnedBy("b")}
    views = (driver("b", default=True),)
    assert owner(pool="a") == {"n0": OwnedBy("b")}


def test_a_version_of_a_spec_is_decoded_once() -> None:
    reader = PolicyReader()
    first, again = (reader.read(Snapshot("ns", drivers=(driver("a"),))) for _ in range(2))
    assert first.active[0] is again.active[0]
