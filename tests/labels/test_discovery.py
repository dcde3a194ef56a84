"""What becomes of a node on which discovery sees no GPU any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from gpuward import names
from gpuward.labels.decide import Labelling, decide_labels
from gpuward.labels.discovery import KeptOperands
from gpuward.labels.policy import LabelPolicy
from gpuward.model.record import format_time
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import DaemonSetView, NodeView, PodView
from tests.build import NAMESPACE, NOW, gpu_pod, pod
from tests.labels.test_decide import CONTAINER, READY

GRACE = LabelPolicy().discovery_grace
OTHER_NFD = {names.NFD_KERNEL: "6.8.0"}
GONE = {names.GPU_PRESENT: "true", **CONTAINER, **OTHER_NFD}
TAKEN_AWAY = {names.GPU_PRESENT: "false", **dict.fromkeys(CONTAINER)}


def since(seconds: float) -> dict[str, str]:
    return {names.DISCOVERY_LOST: format_time(NOW - seconds)}


def decide(*pods: PodView, labels: Mapping[str, str] = GONE, annotations: Mapping[str, str] = {}, others: int = 9,
           lost: Collection[int] = (), now: float = NOW) -> Labelling:
    """Decide about node n0 with these labels among others that are as they should be, or `lost` as well."""
    nodes = {"n0": NodeView("n0", "uid", labels=labels, annotations=annotations)}
    for number in range(1, others + 1):
        nodes[f"n{number}"] = NodeView(f"n{number}", "uid", labels=GONE if number in lost else READY)
    return decide_labels(Snapshot(NAMESPACE, nodes, {"n0": pods}), LabelPolicy(), now)


def changes(labelling: Labelling) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what n0's labels and annotations are changed to."""
    found = [patch for patch in labelling.patches if patch.node.name == "n0"]
    return (dict(found[0].labels), dict(found[0].annotations)) if found else ({}, {})


def test_a_node_whose_gpu_seems_gone_keeps_its_operands_and_remembers_since_when() -> None:
    first = decide()
    assert changes(first) == ({}, since(0))
    assert first.kept == {"n0": KeptOperands.GRACE}
    assert first.wake_at == NOW + GRACE


def test_the_grace_counts_from_what_the_node_remembers_and_writes_nothing_meanwhile() -> None:
    waiting = decide(annotations=since(GRACE - 1))
    assert changes(waiting) == ({}, {})
    assert waiting.wake_at == NOW + 1


def test_after_the_grace_the_operands_go() -> None:
    over = decide(annotations=since(GRACE) | {names.UPGRADE_ENABLED: "true"})
    assert changes(over) == (TAKEN_AWAY, {names.DISCOVERY_LOST: None, names.UPGRADE_ENABLED: None})
    assert (over.kept, over.wake_at) == ({}, None)


def test_operands_go_only_where_no_other_pods_are_than_those_that_are_known() -> None:
    (patch,) = decide(annotations=since(GRACE + 1)).patches
    assert patch.known_pods == {}


def test_labels_that_come_back_end_the_grace() -> None:
    assert changes(decide(labels=READY, annotations=since(5))) == ({}, {names.DISCOVERY_LOST: None})


@pytest.mark.parametrize("text", ["yesterday", "2023-01-01T00:00:00", format_time(NOW + 60)])
def test_a_time_that_cannot_be_is_as_good_as_none(text: str) -> None:
    assert changes(decide(annotations={names.DISCOVERY_LOST: text})) == ({}, since(0))


@pytest.mark.parametrize("user", [
    gpu_pod(),
    pod(holds="runtimeClass nvidia"),
    gpu_pod(namespace=NAMESPACE),
])
def test_nothing_is_taken_away_under_a_pod_that_uses_or_holds_the_driver(user: PodView) -> None:
    held = decide(user, annotations=since(GRACE))
    assert changes(held) == ({}, {})
    assert held.kept == {"n0": KeptOperands.IN_USE}
    assert held.wake_at is None


@pytest.mark.parametrize("other", [
    gpu_pod(phase="Succeeded"),
    pod(holds="hostPath /run/nvidia/driver", namespace=NAMESPACE),
    pod(),
])
def test_pods_that_have_ended_and_operands_themselves_hold_nothing_back(other: PodView) -> None:
    assert changes(decide(other, annotations=since(GRACE)))[0] == TAKEN_AWAY


@pytest.mark.parametrize("spared", [True, False])
def test_a_variable_holds_only_where_the_nodes_runtime_may_heed_it(spared: bool) -> None:
    toolkit = DaemonSetView(NAMESPACE, names.TOOLKIT_APP, spares_default_runtime=spared)
    node = NodeView("n0", "uid", labels=GONE, annotations=since(GRACE))
    snapshot = Snapshot(NAMESPACE, {"n0": node}, {"n0": (pod(holds=f"{names.VISIBLE_DEVICES}=all"),)}, (toolkit,))
    assert bool(decide_labels(snapshot, LabelPolicy(), NOW).kept) is not spared


def test_a_node_in_mid_upgrade_keeps_its_operands_until_it_is_through() -> None:
    under_way = GONE | {names.UPGRADE_STATE: str(State.POD_RESTART_REQUIRED)}
    assert decide(labels=under_way, annotations=since(GRACE)).kept == {"n0": KeptOperands.UPGRADING}
    through = GONE | {names.UPGRADE_STATE: str(State.DONE)}
    assert changes(decide(labels=through, annotations=since(GRACE)))[0] == TAKEN_AWAY


@pytest.mark.parametrize(("others", "lost", "outage"), [
    (0, (), False),
    (1, (1,), True),
    (18, (1,), True),
    (19, (1,), False),
    (19, (1, 2), True),
])
def test_more_than_a_tenth_of_the_nodes_and_more_than_one_is_an_outage(others: int, lost: Collection[int], outage: bool) -> None:
    kept = decide(others=others, lost=lost).kept
    assert set(kept.values()) == {KeptOperands.OUTAGE if outage else KeptOperands.GRACE}
    assert len(kept) == 1 + len(lost)


def test_in_an_outage_nothing_is_taken_away_however_long_it_lasts_and_the_grace_begins_anew_after_it() -> None:
    outage = decide(lost=(1, 2), annotations=since(10 * GRACE))
    assert changes(outage) == ({}, {names.DISCOVERY_LOST: None})
    assert outage.wake_at is None
    assert len(outage.patches) == 1, "of the other nodes nothing is written"
    assert changes(decide()) == ({}, since(0)), "the last node that lacks its labels is given time"


def test_a_node_about_which_discovery_says_nothing_stays_as_it_is() -> None:
    silent = {names.GPU_PRESENT: "true", **CONTAINER}
    held = decide(labels=silent, annotations=since(GRACE))
    assert (held.kept, held.wake_at) == ({"n0": KeptOperands.SILENT}, None)
    assert not changes(held)[0]


def test_a_person_who_says_that_there_is_no_gpu_is_believed_at_once_but_not_under_a_gpu_pod() -> None:
    said = GONE | {names.GPU_PRESENT: "false"}
    assert changes(decide(labels=said)) == (dict.fromkeys(CONTAINER), {})
    assert changes(decide(gpu_pod(), labels=said)) == ({}, {})
