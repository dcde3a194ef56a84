"""Where a node's driver comes from, and when that may change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.owners import Claim
from gpuward.model.placement import Placement, Placements, Placing, placed_nodes, wanted_placement
from gpuward.model.snapshot import Snapshot
from gpuward.model.systems import kernel_of, tag_of
from gpuward.model.views import DaemonSetView, NodeView, Owner, PodView

NAMESPACE = "gpu-operator"
SEEN = {names.GPU_PRESENT: "true", names.NFD_OS_ID: "rhel", names.NFD_OS_VERSION: "9.4", names.NFD_KERNEL: "5.14"}
A, B = Claim("a", {"pool": "a"}), Claim("b", {"pool": "b"})
PLACED = {**SEEN, **Placement("a", "rhel9").labels, "pool": "a"}


def labels(found: dict[str, str], **changed: str | None) -> dict[str, str]:
    return {key: value for key, value in {**found, **changed}.items() if value is not None}


IN_A = labels({key: value for key, value in PLACED.items() if value is not None})


def driver_pod(uid: str = "ds-a", *, ready: bool = True, deleting: bool = False, phase: str = "Running") -> PodView:
    return PodView(NAMESPACE, "driver", owner=Owner("DaemonSet", uid, uid), ready=ready, deleting=deleting, phase=phase,
                   labels={names.COMPONENT_LABEL: names.DRIVER_COMPONENT})


def cluster(node: NodeView, *pods: PodView, deleting: bool = False, **selector: str) -> Snapshot:
    """Return a cluster whose DaemonSet `ds-a` selects as NVIDIADriver a's does, and in which b's waits for nodes."""
    wanted = {names.DRIVER_OWNER: "a", names.DRIVER_OS: "rhel9", **selector}
    ds = DaemonSetView(NAMESPACE, "ds-a", uid="ds-a", node_selector=wanted, deleting=deleting)
    other = DaemonSetView(NAMESPACE, "ds-b", uid="ds-b", node_selector={names.DRIVER_OWNER: "b", names.DRIVER_OS: "rhel9"})
    return Snapshot(NAMESPACE, {node.name: node}, {node.name: pods}, (ds, other))


def free(node: NodeView, snapshot: Snapshot, placing: Placing) -> dict[str, str | None]:
    return Placements(snapshot, placing).free(node, node.labels, snapshot.pods[node.name])


def moving(node: NodeView, snapshot: Snapshot, placing: Placing) -> Placement | None:
    return Placements(snapshot, placing).moving(node, snapshot.pods[node.name])


BOTH = Placing((A, B))
TO_B = NodeView("n0", labels={**IN_A, "pool": "b"})


def test_what_discovery_says_is_spelled_as_images_are() -> None:
    assert [tag_of(system) for system in ("ubuntu22.04", "rhel9.4", "ol8.9", "sl-micro6.0", "rhel9")] == [
        "ubuntu22.04", "rhel9", "ol8", "sl-micro6.0", "rhel9"]
    assert wanted_placement("n0", {**SEEN, "pool": "a"}, BOTH) == Placement("a", "rhel9")
    precompiled = Placing((Claim("a", {"pool": "a"}, precompiled=True),))
    assert wanted_placement("n0", {**SEEN, "pool": "a"}, precompiled) == Placement("a", "rhel9", "5.14")
    assert wanted_placement("n0", SEEN, Placing(precompiled=True)) == Placement("", "rhel9.4", "5.14")
    assert wanted_placement("n0", SEEN, Placing()) == Placement()


@pytest.mark.parametrize("lost", [names.NFD_OS_ID, names.NFD_OS_VERSION])
def test_what_discovery_does_not_say_stays_as_it_is(lost: str) -> None:
    silent = {key: value for key, value in IN_A.items() if key != lost}
    assert wanted_placement("n0", silent, BOTH) == Placement("a", "rhel9")


@pytest.mark.parametrize("mistyped", ["Rhel", "rhel 9", "rhel/", "räl", "rhel" * 20])
def test_an_operating_system_that_cannot_be_counts_as_not_said(mistyped: str) -> None:
    assert wanted_placement("n0", {**IN_A, names.NFD_OS_ID: mistyped}, BOTH) == Placement("a", "rhel9")


@pytest.mark.parametrize(("key", "mistyped"), [
    (names.NFD_OS_VERSION, "9_4"), (names.NFD_OS_VERSION, "9..4"), (names.NFD_KERNEL, "5.14..0"), (names.NFD_KERNEL, "5.14.-1"),
])
def test_a_version_that_cannot_be_counts_as_not_said(key: str, mistyped: str) -> None:
    placed = {**SEEN, names.DRIVER_OS: "rhel9.4", names.DRIVER_KERNEL: "5.14", key: mistyped}
    assert wanted_placement("n0", placed, Placing(precompiled=True)) == Placement("", "rhel9.4", "5.14")


@pytest.mark.parametrize("kernel", [
    "6.8.0-45-generic", "5.14.0-427.13.1.el9_4.x86_64", "5.14.21-150400.22-default", "6.9.0-rc1", "6.4.0-Default_1",
    "5.14.0-427.el9.aarch64_64k",
])
def test_kernels_that_there_are_are_believed(kernel: str) -> None:
    assert kernel_of({names.NFD_KERNEL: kernel}) == kernel


def test_an_nvidia_driver_that_cannot_be_followed_keeps_its_nodes_where_they_are() -> None:
    broken = Placing((Claim("a", valid=False),))
    edited = {**IN_A, names.NFD_OS_VERSION: "8.1", names.DRIVER_KERNEL: "5.14"}
    assert wanted_placement("n0", edited, broken) == Placement("a", "rhel9", "5.14")


def test_a_node_under_a_driver_is_moved_and_any_other_is_placed_at_once() -> None:
    living = cluster(TO_B, driver_pod())
    assert moving(TO_B, living, BOTH) == Placement("b", "rhel9")
    assert free(TO_B, living, BOTH) == {}
    orphan = PodView(NAMESPACE, "driver", orphan=True, phase="Running", labels={names.COMPONENT_LABEL: names.DRIVER_COMPONENT})
    for pods in ((), (driver_pod(deleting=True),), (driver_pod(phase="Failed"),), (orphan,)):
        bare = cluster(TO_B, *pods)
        assert moving(TO_B, bare, BOTH) is None
        assert free(TO_B, bare, BOTH) == {names.DRIVER_OWNER: "b"}


def test_a_driver_whose_daemon_set_is_made_again_stays_where_that_will_adopt_it() -> None:
    orphan = PodView(NAMESPACE, "driver", orphan=True, phase="Running", labels={names.COMPONENT_LABEL: names.DRIVER_COMPONENT},
                     placed_by={names.DRIVER_OWNER: "a", names.DRIVER_OS: "rhel9"})
    left = msgspec.structs.replace(orphan, labels={**orphan.labels, "app": names.LEFT_DRIVER_APP})
    going = cluster(TO_B, driver_pod(), deleting=True)
    for snapshot in (cluster(TO_B, orphan), going):
        assert free(TO_B, snapshot, BOTH) == {}
        assert moving(TO_B, snapshot, BOTH) == Placement("b", "rhel9")
        assert free(TO_B, snapshot, Placing((B,))) == {names.DRIVER_OWNER: "b"}, "nobody makes a's again"
    assert free(TO_B, cluster(TO_B, left), BOTH) == {names.DRIVER_OWNER: "b"}, "nobody adopts it"


def test_nothing_is_said_of_a_daemon_set_that_is_not_known_yet() -> None:
    assert moving(TO_B, cluster(TO_B, driver_pod("unseen")), BOTH) == Placement("b", "rhel9")


def test_a_change_that_the_daemon_set_does_not_look_at_is_made_at_once() -> None:
    node = NodeView("n0", labels={key: value for key, value in IN_A.items() if key != names.DRIVER_OS})
    nvidias = cluster(node, driver_pod())
    selector = {names.DRIVER_OWNER: "a", names.NFD_OS_VERSION: "9.4"}
    ds = DaemonSetView(NAMESPACE, "ds-a", uid="ds-a", node_selector=selector)
    taken_over = Snapshot(NAMESPACE, nvidias.nodes, nvidias.pods, (ds,))
    assert free(node, taken_over, BOTH) == {names.DRIVER_OS: "rhel9"}


def test_a_driver_whose_nvidia_driver_is_gone_is_not_torn_away_as_long_as_its_daemon_set_is_there() -> None:
    left = cluster(TO_B, driver_pod())
    assert free(TO_B, left, Placing((B,))) == {}
    orphan = msgspec.structs.replace(driver_pod(), owner=None, orphan=True)
    gone = msgspec.structs.replace(left, daemonsets=(), pods={"n0": (orphan,)})
    assert free(TO_B, gone, Placing((B,))) == {names.DRIVER_OWNER: "b"}


def test_no_node_is_moved_to_where_no_daemon_set_waits_for_it() -> None:
    served = cluster(TO_B, driver_pod())
    assert moving(TO_B, served, BOTH) == Placement("b", "rhel9")
    unserved = tuple(ds for ds in served.daemonsets if ds.node_selector.get(names.DRIVER_OWNER) != "b")
    assert moving(TO_B, msgspec.structs.replace(served, daemonsets=unserved), BOTH) is None


def test_a_label_that_somebody_overwrote_is_put_back_and_nothing_else_is_changed_under_the_driver() -> None:
    """The driver pod is lost unless its node is selected again before the DaemonSet's controller looks."""
    there = {**IN_A, names.DRIVER_KERNEL: "5.13"}
    selects: Any = {names.DRIVER_KERNEL: "5.13"}
    placing = Placing((msgspec.structs.replace(A, precompiled=True), B))
    overwritten = NodeView("n0", labels={**there, names.DRIVER_OWNER: "other"})
    assert free(overwritten, cluster(overwritten, driver_pod(), **selects), placing) == {names.DRIVER_OWNER: "a"}
    untouched = NodeView("n0", labels=there)
    assert free(untouched, cluster(untouched, driver_pod(), **selects), placing) == {}


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_no_label_is_put_back_for_an_earlier_driver_pod_under_the_one_that_the_node_runs(phase: str) -> None:
    """The node was b's once: a pod of that has no DaemonSet any more, and says that b's selected it."""
    left = PodView(NAMESPACE, "former", orphan=True, phase=phase, labels={names.COMPONENT_LABEL: names.DRIVER_COMPONENT},
                   placed_by={names.DRIVER_OWNER: "b", names.DRIVER_OS: "rhel9"})
    snapshot = cluster(TO_B, left, driver_pod())
    assert free(TO_B, snapshot, BOTH) == {}
    assert moving(TO_B, snapshot, BOTH) == Placement("b", "rhel9")


def test_no_node_that_has_a_daemon_set_goes_to_where_none_is_made_yet() -> None:
    idle = cluster(TO_B)
    assert free(TO_B, idle, BOTH) == {names.DRIVER_OWNER: "b"}
    unserved = tuple(ds for ds in idle.daemonsets if ds.node_selector.get(names.DRIVER_OWNER) != "b")
    assert free(TO_B, msgspec.structs.replace(idle, daemonsets=unserved), BOTH) == {}
    kept, moved = placed_nodes(msgspec.structs.replace(idle, daemonsets=unserved), BOTH)
    assert (kept, moved.labels[names.DRIVER_OWNER]) == (TO_B, "b"), "it is made, and goes there then"
    assert free(TO_B, msgspec.structs.replace(idle, daemonsets=()), BOTH) == {names.DRIVER_OWNER: "b"}


def test_a_machine_that_booted_another_kernel_gets_its_driver_at_once() -> None:
    known = {**SEEN, names.DRIVER_OS: "rhel9.4", names.DRIVER_KERNEL: "5.13"}
    placing = Placing(precompiled=True)
    selector = {names.DRIVER_OS: "rhel9.4", names.DRIVER_KERNEL: "5.13"}

    def at_once(kernel: str, *, ready: bool) -> bool:
        node = NodeView("n0", labels=known, kernel=kernel)
        ds = DaemonSetView(NAMESPACE, "ds-a", uid="ds-a", node_selector=selector)
        new = DaemonSetView(NAMESPACE, "ds-b", uid="ds-b", node_selector={**selector, names.DRIVER_KERNEL: "5.14"})
        snapshot = Snapshot(NAMESPACE, {"n0": node}, {"n0": (driver_pod(ready=ready),)}, (ds, new))
        return free(node, snapshot, placing) == {names.DRIVER_KERNEL: "5.14"}

    assert at_once("5.14", ready=False)
    assert not at_once("5.14", ready=True), "a driver that is ready is loaded, whatever the kubelet says"
    assert not at_once("5.13", ready=False), "the label alone was edited"


def test_the_operating_system_of_a_kernel_stays_until_the_kernel_is_another_one() -> None:
    placed = {**SEEN, names.DRIVER_OS: "rhel9.3", names.DRIVER_KERNEL: "5.14"}
    assert wanted_placement("n0", placed, Placing(precompiled=True)) == Placement("", "rhel9.3", "5.14")
    booted = {**placed, names.NFD_KERNEL: "5.15"}
    assert wanted_placement("n0", booted, Placing(precompiled=True)) == Placement("", "rhel9.4", "5.15")


def test_the_operating_system_of_a_kernel_is_followed_where_its_driver_does_not_work() -> None:
    there = NodeView("n0", labels={**IN_A, names.DRIVER_OS: "rhel9.3", names.DRIVER_KERNEL: "5.14"})
    selects: Any = {names.DRIVER_OS: "rhel9.3"}
    precompiled = Placing(precompiled=True)

    def change(*pods: PodView) -> dict[str, str | None]:
        seen = cluster(there, *pods, **selects)
        new = DaemonSetView(NAMESPACE, "ds-c", uid="ds-c", node_selector={names.DRIVER_OWNER: "a", names.DRIVER_OS: "rhel9.4"})
        return free(there, msgspec.structs.replace(seen, daemonsets=(*seen.daemonsets, new)), precompiled)

    assert change(driver_pod()) == {}
    assert change() == change(driver_pod(deleting=True)) == {names.DRIVER_OS: "rhel9.4"}
    assert change(driver_pod(ready=False)) == {}, "whatever is loaded beside it goes node by node"


def test_no_driver_goes_for_one_that_cannot_be_made() -> None:
    unable = Placing((A, msgspec.structs.replace(B, able=False)))
    assert moving(TO_B, cluster(TO_B, driver_pod()), unable) is None
    assert free(TO_B, cluster(TO_B, driver_pod()), unable) == {}
    assert free(TO_B, cluster(TO_B), unable) == {names.DRIVER_OWNER: "b"}, "a node without a driver has none to lose"


def test_what_is_made_is_made_for_nodes_as_they_will_be() -> None:
    fresh = NodeView("n0", labels={**SEEN, "pool": "a"})
    (seen,) = placed_nodes(cluster(fresh), BOTH)
    assert seen.labels[names.DRIVER_OWNER] == "a"
    busy, moved = placed_nodes(cluster(TO_B, driver_pod()), BOTH)
    assert (busy, moved.labels[names.DRIVER_OWNER]) == (TO_B, "b"), "where it is to go has to be made before it goes there"
    assert placed_nodes(cluster(fresh), None) == [fresh]
