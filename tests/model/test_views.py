"""What views say about themselves."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.model.states import State
from gpuward.model.views import DaemonSetView, NodeView, PodView, Ref


@pytest.mark.parametrize(
    ("labels", "state"),
    [({}, State.UNKNOWN), ({names.UPGRADE_STATE: "upgrade-done"}, State.DONE), ({names.UPGRADE_STATE: "nonsense"}, None)],
)
def test_a_node_is_in_the_state_of_its_label(labels: dict[str, str], state: State | None) -> None:
    assert NodeView("n", labels=labels).state is state


@pytest.mark.parametrize(("value", "present"), [("true", True), ("True", False), ("", False)])
def test_only_true_means_that_there_are_gpus(value: str, present: bool) -> None:
    assert NodeView("n", labels={names.GPU_PRESENT: value}).gpu_present is present
    assert not NodeView("n").gpu_present


@pytest.mark.parametrize(("seen", "settled"), [(1, False), (2, True), (3, True)])
def test_a_daemonset_is_settled_once_its_controller_saw_its_generation(seen: int, settled: bool) -> None:
    assert DaemonSetView("ns", "d", generation=2, observed_generation=seen).settled is settled


@pytest.mark.parametrize(
    ("phase", "finished"), [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)]
)
def test_pods_are_finished_when_they_ran_to_an_end(phase: str, finished: bool) -> None:
    assert PodView("ns", "p", phase=phase).finished is finished


def test_references_are_written_as_kubectl_does() -> None:
    assert str(Ref("ns", "pod", "uid")) == "ns/pod"
    assert str(Ref("", "node")) == "node"
    assert PodView("ns", "p", "u", labels={names.REVISION_HASH: "h"}).revision == "h"
