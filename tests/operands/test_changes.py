"""The fewest writes from what is there to what was rendered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.errors import PolicyError
from gpuward.model.actions import Action, ApplyObject, DeleteObject
from gpuward.model.owned import OwnedView
from gpuward.model.snapshot import Applied, Snapshot
from gpuward.model.views import DaemonSetView, NodeView, Owner, PodView, Ref
from gpuward.operands import changes as module
from gpuward.operands.changes import prepare
from gpuward.operands.state import ObjectRef, OperandState

OWNER = Ref("", "cluster-policy", "cp-uid")


def obj(kind: str = "ConfigMap", name: str = "a", **rest: Any) -> dict[str, Any]:
    """Build a rendered object."""
    version = "apps/v1" if kind == "DaemonSet" else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "ns"}, **rest}


def changes(states: list[OperandState], owner: Ref, snapshot: Snapshot) -> tuple[Action, ...]:
    """Return what states that were just rendered change."""
    return module.changes(prepare(states, owner), snapshot)


def state(*objects: dict[str, Any], absent: tuple[ObjectRef, ...] = (), error: PolicyError | None = None) -> OperandState:
    """Build a state."""
    return OperandState("state-x", True, objects, absent, error)


def applied(kind: str = "ConfigMap", name: str = "a", **rest: Any) -> tuple[Snapshot, str]:
    """Return a cluster in which the object was applied at version 5, and its hash."""
    (action,) = changes([state(obj(kind, name))], OWNER, Snapshot("ns"))
    assert isinstance(action, ApplyObject)
    owned = OwnedView(kind, "ns", name, "uid", "5", 1, "cp-uid", action.hash)
    return _with(owned, Applied(action.hash, "5", 1), **rest), action.hash


def _with(owned: OwnedView, last: Applied | None, **change: Any) -> Snapshot:
    view = msgspec.structs.replace(owned, **change)
    key = (view.kind, view.namespace, view.name)
    return Snapshot("ns", owned={key: view}, applied={key: last} if last else {})


def test_what_is_not_there_is_created_with_its_owner() -> None:
    (action,) = changes([state(obj())], OWNER, Snapshot("ns"))
    assert isinstance(action, ApplyObject)
    assert (action.version, action.verify) == ("", False)
    assert action.body["metadata"]["ownerReferences"][0]["uid"] == "cp-uid"


def test_what_is_as_applied_is_left_alone() -> None:
    for kind in ("ConfigMap", "DaemonSet", "ServiceAccount"):
        assert changes([state(obj(kind))], OWNER, applied(kind)[0]) == ()


def test_a_status_update_of_a_daemonset_is_no_difference_but_a_hand_edit_is() -> None:
    assert changes([state(obj("DaemonSet"))], OWNER, applied("DaemonSet", version="9")[0]) == ()
    (action,) = changes([state(obj("DaemonSet"))], OWNER, applied("DaemonSet", version="9", generation=2)[0])
    assert isinstance(action, ApplyObject)
    assert (action.version, action.verify) == ("9", True)


def test_a_hand_edit_of_another_object_is_looked_at() -> None:
    (action,) = changes([state(obj())], OWNER, applied(version="6")[0])
    assert isinstance(action, ApplyObject)
    assert action.verify


def test_a_new_rendering_replaces_without_a_look() -> None:
    (action,) = changes([state(obj(data={"x": "1"}))], OWNER, applied()[0])
    assert isinstance(action, ApplyObject)
    assert (action.version, action.verify) == ("5", False)


@pytest.mark.parametrize("kind", ["ConfigMap", "DaemonSet"])
def test_after_a_restart_what_is_there_is_looked_at_once(kind: str) -> None:
    snapshot = msgspec.structs.replace(applied(kind)[0], applied={})
    (action,) = changes([state(obj(kind))], OWNER, snapshot)
    assert isinstance(action, ApplyObject)
    assert action.verify, "somebody may have edited it while nobody watched"


@pytest.mark.parametrize("known", [True, False])
def test_an_account_of_somebody_else_is_left_alone(known: bool) -> None:
    theirs = applied("ServiceAccount", owner_uid="")[0]
    snapshot = theirs if known else msgspec.structs.replace(theirs, applied={})
    assert changes([state(obj("ServiceAccount"))], OWNER, snapshot) == ()


@pytest.mark.parametrize("kind", ["ConfigMap", "DaemonSet", "ServiceAccount"])
def test_what_was_made_and_is_gone_is_made_again(kind: str) -> None:
    snapshot = msgspec.structs.replace(applied(kind)[0], owned={})
    (action,) = changes([state(obj(kind))], OWNER, snapshot)
    assert isinstance(action, ApplyObject)
    assert action.version == ""


@pytest.mark.parametrize("kind", ["ConfigMap", "DaemonSet", "ServiceAccount"])
@pytest.mark.parametrize("known", [True, False])
def test_what_has_an_owner_that_is_gone_gets_its_new_one(kind: str, known: bool) -> None:
    snapshot = applied(kind)[0]
    (action,) = changes([state(obj(kind))], Ref("", "cluster-policy", "new-uid"),
                        snapshot if known else msgspec.structs.replace(snapshot, applied={}))
    assert isinstance(action, ApplyObject)
    assert (action.version, action.ref.uid) == ("5", "uid")
    assert action.body["metadata"]["ownerReferences"][0]["uid"] == "new-uid"


@pytest.mark.parametrize("kind", ["ConfigMap", "DaemonSet", "ServiceAccount"])
def test_what_is_on_its_way_out_is_left_alone_and_waited_for(kind: str) -> None:
    going = applied(kind, deleting=True)[0]
    assert changes([state(obj(kind, data={"x": "1"}))], OWNER, going) == ()
    assert changes([state(absent=(ObjectRef("v1", kind, "ns", "a"),))], OWNER, going) == ()
    user = obj("DaemonSet", "user", spec={"template": {"spec": {"serviceAccountName": "a"}}})
    made = changes([state(obj("ServiceAccount"), user)], OWNER, applied("ServiceAccount", deleting=True)[0])
    assert made == (), "its pods would not be let in"


def test_a_daemonset_without_an_owner_that_is_on_its_way_out_is_waited_for() -> None:
    """As one of a ClusterPolicy that was deleted with `--cascade=orphan`, and is deleted while a pod does not end."""
    going = msgspec.structs.replace(Snapshot("ns"), daemonsets=(DaemonSetView("ns", "a", uid="uid", deleting=True),))
    assert changes([state(obj("DaemonSet"))], OWNER, going) == ()


def test_only_what_is_there_is_deleted() -> None:
    gone = (ObjectRef("v1", "ConfigMap", "ns", "a"), ObjectRef("v1", "ConfigMap", "ns", "never-was"))
    assert changes([state(absent=gone)], OWNER, applied()[0]) == (
        DeleteObject("ConfigMap", Ref("ns", "a", "uid"), why="state-x no longer needs it"),
    )


def test_a_state_with_an_error_changes_nothing() -> None:
    broken = state(obj(), error=PolicyError("spec.x", 1, "mend it"))
    assert changes([broken, state(obj(name="b"))], OWNER, Snapshot("ns"))[0].lane == "ConfigMap/ns/b"


def test_a_binding_waits_for_its_role() -> None:
    role = obj("Role", "r")
    binding = obj("RoleBinding", "b", roleRef={"kind": "Role", "name": "r"})
    (first,) = changes([state(binding, role)], OWNER, Snapshot("ns"))
    assert isinstance(first, ApplyObject)
    assert first.kind == "Role"
    (second,) = changes([state(binding, role)], OWNER, _made(first))
    assert isinstance(second, ApplyObject)
    assert second.kind == "RoleBinding"


def test_a_binding_to_a_role_of_somebody_else_waits_for_nothing() -> None:
    (action,) = changes([state(obj("RoleBinding", "b", roleRef={"kind": "ClusterRole", "name": "view"}))], OWNER, Snapshot("ns"))
    assert isinstance(action, ApplyObject)


@pytest.mark.parametrize(("kind", "field"), [("ServiceAccount", "serviceAccountName"), ("RuntimeClass", "runtimeClassName")])
def test_a_daemonset_waits_for_what_its_pods_are_refused_without(kind: str, field: str) -> None:
    needed = obj(kind, "x")
    if kind == "RuntimeClass":
        del needed["metadata"]["namespace"]
    daemonset = obj("DaemonSet", "d", spec={"template": {"spec": {field: "x"}}})
    (first,) = changes([state(needed), state(daemonset)], OWNER, Snapshot("ns"))
    assert isinstance(first, ApplyObject)
    assert first.kind == kind
    (second,) = changes([state(needed), state(daemonset)], OWNER, _made(first))
    assert isinstance(second, ApplyObject)
    assert second.kind == "DaemonSet"


def _made(action: ApplyObject) -> Snapshot:
    """Return the cluster in which one action was carried out."""
    ref = action.ref
    view = OwnedView(action.kind, ref.namespace, ref.name, "uid", "5", 1, "cp-uid", action.hash)
    key = (action.kind, ref.namespace, ref.name)
    return Snapshot("ns", owned={key: view}, applied={key: Applied(action.hash, "5", 1)})


def driver_set(**node_selector: str) -> dict[str, Any]:
    return obj("DaemonSet", spec={"selector": {"matchLabels": {"app": "driver", "kernel": "k"}},
                                  "template": {"spec": {"nodeSelector": node_selector}}})


def with_driver(labels: dict[str, str], *, deleting: bool = False, ready: bool = True) -> Snapshot:
    """Return a cluster with a DaemonSet that selects nodes by `seen=k`, and a node on which a pod of it is."""
    owned = OwnedView("DaemonSet", "ns", "a", "uid", "5", 1, "cp-uid", "other")
    ds = DaemonSetView("ns", "a", uid="uid", selector={"app": "driver"}, node_selector={"seen": "k"})
    pod = PodView("ns", "driver", owner=Owner("DaemonSet", "a", "uid"), deleting=deleting, ready=ready)
    return msgspec.structs.replace(_with(owned, None), daemonsets=(ds,), nodes={"n0": NodeView("n0", labels=labels)},
                                   pods={"n0": (pod,)})


def test_a_daemonset_selects_other_nodes_once_those_of_its_pods_are_labelled() -> None:
    wanted = [state(driver_set(placed="k"))]
    assert changes(wanted, OWNER, with_driver({"seen": "k"})) == ()
    assert changes(wanted, OWNER, with_driver({"seen": "k", names.GPU_PRESENT: "true"}, ready=False)) == ()
    free = (with_driver({"seen": "k", "placed": "k"}), with_driver({"seen": "k"}, deleting=True), with_driver({}),
            with_driver({"seen": "k"}, ready=False))
    for seen in free:
        (action,) = changes(wanted, OWNER, seen)
        assert isinstance(action, ApplyObject)


def test_a_daemonset_keeps_the_selector_that_it_was_made_with() -> None:
    (action,) = changes([state(driver_set(seen="k"))], OWNER, with_driver({"seen": "k"}))
    assert isinstance(action, ApplyObject)
    assert action.body["spec"]["selector"] == {"matchLabels": {"app": "driver"}}
    (fresh,) = changes([state(driver_set(seen="k"))], OWNER, Snapshot("ns"))
    assert isinstance(fresh, ApplyObject)
    assert fresh.body["spec"]["selector"] == {"matchLabels": {"app": "driver", "kernel": "k"}}
