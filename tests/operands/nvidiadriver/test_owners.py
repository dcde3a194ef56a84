"""Who owns the DaemonSets of NVIDIADrivers, whatever can be followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import Action, ApplyObject, DeleteObject, PatchAnnotations, SetOwner
from gpuward.model.owned import OwnedView
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, Owner, PolicyView, Ref
from gpuward.operands.nvidiadriver.owners import with_owners
from gpuward.policy.kept import kept
from gpuward.policy.nvidiadrivers import PolicyReader

NAMESPACE, ACCOUNT = "gpu-operator", "nvidia-gpu-driver-a-ubuntu22.04"
POLICY = Ref("", "cluster-policy", "p-new")
VALID = {"repository": "registry.example", "image": "driver", "version": "580"}
ROLE = OwnedView("Role", NAMESPACE, ACCOUNT, "r")


def driver_set(**rest: Any) -> DaemonSetView:
    given: dict[str, Any] = {"uid": "ds-a", "labels": {names.COMPONENT_LABEL: names.DRIVER_COMPONENT}, "account": ACCOUNT,
                             "node_selector": {names.DRIVER_OWNER: "a"}, "owner": Owner("NVIDIADriver", "a", "u")}
    return DaemonSetView(NAMESPACE, "ds-a", **(given | rest))


def nvidia_driver(uid: str = "u", **spec: Any) -> PolicyView:
    body = {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": "a", "uid": uid},
            "spec": VALID | spec}
    return PolicyView("a", uid, body=body)


def decided(ds: DaemonSetView, *actions: Action, drivers: tuple[PolicyView, ...] = (nvidia_driver(),), policy: bool = True,
            role: OwnedView | None = None, rollout: Mapping[str, Any] | None = None,
            departed: tuple[PolicyView, ...] = ()) -> list[Action]:
    """Return the actions under a ClusterPolicy that cannot be followed, as that says nothing about the owners."""
    spec = {"driver": {"upgradePolicy": {"maxUnavailable": "abc"}}}
    policies = (PolicyView(POLICY.name, POLICY.uid, body={"metadata": {}, "spec": spec}),) if policy else ()
    said = {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {}, "spec": rollout}
    rules = (PolicyView("default", "r", body=said),) if rollout else ()
    snapshot = Snapshot(NAMESPACE, {}, {}, (ds,), policies=policies, drivers=drivers,
                        owned={("Role", NAMESPACE, ACCOUNT): role} if role else {}, rollout_policies=rules,
                        departed=departed)
    return with_owners(actions, snapshot, PolicyReader().read(snapshot), {ds.uid})


def note_on(ds: DaemonSetView) -> str:
    (change,) = decided(ds)
    assert isinstance(change, SetOwner)
    return str(change.annotations[names.VALID_UPGRADE_POLICY])


def applied(ds: DaemonSetView) -> ApplyObject:
    return ApplyObject("DaemonSet", ds.ref, {}, "hash", "1")


@pytest.mark.parametrize("policies", [(), ("p-old",), ("p-old", POLICY.uid)])
def test_the_clusterpolicy_that_is_there_owns_them_too(policies: tuple[str, ...]) -> None:
    ds = driver_set(policies=policies)
    (change,) = decided(ds, applied(ds))
    assert isinstance(change, SetOwner), "what it should be comes in a later pass"
    assert (change.ref.uid, change.controller, change.policy) == ("ds-a", "u", POLICY)
    assert kept({"metadata": {"annotations": change.annotations}}).upgrades.driver == "a"


def test_what_is_as_it_should_be_costs_no_write() -> None:
    assert decided(driver_set(policies=(POLICY.uid,), upgrade_policy=note_on(driver_set()))) == []
    assert decided(driver_set(deleting=True)) == []
    assert decided(driver_set(owner=Owner("NVIDIADriver", "a", "another"))) == []
    assert decided(driver_set(), policy=False) == [], "there is no owner"


def test_a_note_alone_comes_with_what_is_written_anyway() -> None:
    ds = driver_set(policies=(POLICY.uid,), upgrade_policy="{}")
    assert decided(ds, applied(ds)) == [applied(ds)]
    assert isinstance(decided(ds)[0], SetOwner)
    unnoted = msgspec.structs.replace(ds, upgrade_policy="")
    assert [type(each) for each in decided(unnoted, applied(unnoted))] == [SetOwner], "without any it would look left behind"


def test_an_nvidiadriver_that_cannot_be_followed_keeps_what_was_noted() -> None:
    bad = nvidia_driver(version="")
    assert decided(driver_set(policies=(POLICY.uid,), upgrade_policy="{}"), drivers=(bad,)) == []
    (change,) = decided(driver_set(), drivers=(bad,))
    assert isinstance(change, SetOwner)
    upgrades = kept({"metadata": {"annotations": change.annotations}}).upgrades
    assert not upgrades.auto_upgrade, "whether anybody may be evicted is not known"


def test_nobody_else_owns_them_where_removals_are_to_be_at_once() -> None:
    (change,) = decided(driver_set(policies=(POLICY.uid,), upgrade_policy="{}"), rollout={"removeAtOnce": True})
    assert isinstance(change, SetOwner)
    assert (change.policy, change.annotations) == (None, {})


def test_what_was_left_behind_is_nobodys() -> None:
    ds = driver_set(owner=None, policies=("p-old",), upgrade_policy="{}")
    (change,) = decided(ds, drivers=(), role=ROLE)
    noted = {names.VALID_UPGRADE_POLICY: None}
    assert change == SetOwner("DaemonSet", ds.ref, "", None, noted, "its NVIDIADriver left it behind")
    of_earlier_versions = msgspec.structs.replace(ds, upgrade_policy="")
    (change,) = decided(of_earlier_versions, drivers=())
    assert isinstance(change, SetOwner)
    assert decided(msgspec.structs.replace(of_earlier_versions, policies=()), drivers=()) == []
    end = DeleteObject("DaemonSet", ds.ref, orphan=True)
    assert [type(each) for each in decided(ds, end, drivers=(), role=ROLE)] == [SetOwner, DeleteObject]
    free = msgspec.structs.replace(ds, policies=())
    assert decided(free, end, drivers=(), role=ROLE) == [end]


def test_that_drivers_are_to_go_is_noted_once() -> None:
    ds = driver_set(owner=None, policies=(POLICY.uid,), upgrade_policy="{}")
    (note,) = decided(ds, drivers=())
    assert isinstance(note, PatchAnnotations)
    assert (note.ref, note.annotations) == (ds.ref, {names.DRIVERS_GO: "true"})
    assert decided(msgspec.structs.replace(ds, drivers_go=True), drivers=()) == []
    assert decided(ds, drivers=(), role=msgspec.structs.replace(ROLE, owner_uid="u")) == []


def test_what_it_said_last_is_noted_with_that() -> None:
    ds = driver_set(owner=None, policies=(POLICY.uid,), upgrade_policy=note_on(driver_set()))
    only = {names.DRIVERS_GO: "true"}
    for last in (nvidia_driver(), nvidia_driver(version="", upgradePolicy={"autoUpgrade": False})):
        (note,) = decided(ds, drivers=(), departed=(last,))
        assert isinstance(note, PatchAnnotations)
        assert note.annotations == only, "it is noted already, or cannot be followed"
    (note,) = decided(ds, drivers=(), departed=(nvidia_driver(upgradePolicy={"autoUpgrade": False}),))
    assert isinstance(note, PatchAnnotations)
    assert not kept({"metadata": {"annotations": note.annotations}}).upgrades.auto_upgrade


def test_what_another_nvidiadriver_of_the_name_finds_is_nobodys() -> None:
    ds = driver_set(owner=None, policies=(POLICY.uid,), upgrade_policy="{}")
    (change,) = decided(ds, drivers=(nvidia_driver("another"),))
    assert isinstance(change, SetOwner)
    assert (change.controller, change.policy, change.annotations) == ("", None, {})
