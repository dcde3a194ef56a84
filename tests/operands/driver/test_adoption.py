"""A driver DaemonSet that is about to be made, and driver pods of none that it would take: it deletes those on other nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import ReleasePod
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.views import Owner, PodView
from gpuward.operands.driver.adoption import Adoption, adoption
from tests import build
from tests.build import NOW, driver_pod

DAEMON_SET: dict[str, Any] = {
    "metadata": {"name": "nvidia-driver-daemonset"},
    "spec": {"selector": {"matchLabels": {"app": names.DRIVER_APP}},
             "template": {"spec": {"nodeSelector": {names.DEPLOY_DRIVER: "true"}}}},
}
SEEN = {names.NFD_GPU_LABELS[0]: "true"}
ORPHAN = driver_pod(orphan=True)


def with_node(**labels: str) -> Snapshot:
    """Return a cluster without driver DaemonSets, whose one node has a driver pod that nobody owns."""
    node = msgspec.structs.replace(build.node(), labels=labels)
    return msgspec.structs.replace(build.cluster([node], [ORPHAN]), daemonsets=())


@pytest.mark.parametrize("pool", [{}, {names.GPU_PRESENT: "true"}], ids=["bare", "of a pool with GPUs"])
def test_it_waits_for_the_labels_of_a_node_that_was_made_again(pool: dict[str, str]) -> None:
    """Its driver pod came back with its machine, and would be taken and deleted."""
    found = adoption(DAEMON_SET, with_node(**SEEN, **pool))
    assert (found.pods, found.actions) == ((ORPHAN,), ())


def test_a_node_that_may_not_be_labelled_keeps_it_not_from_the_others() -> None:
    snapshot = with_node(**SEEN)
    refused = msgspec.structs.replace(snapshot, refused_writes={snapshot.nodes["n0"].uid: Refusal(NOW, 1, "no")})
    action, = adoption(DAEMON_SET, refused).actions
    assert isinstance(action, ReleasePod)
    assert (action.pod, action.node) == (ORPHAN.ref, "n0")


@pytest.mark.parametrize("pool", [{}, {names.GPU_PRESENT: "true"}], ids=["bare", "of a pool with GPUs"])
def test_a_pod_on_a_node_whose_gpu_discovery_has_yet_to_see_runs_on_as_nobodys(pool: dict[str, str]) -> None:
    action, = adoption(DAEMON_SET, with_node(**pool)).actions
    assert isinstance(action, ReleasePod)


def test_a_pod_on_a_node_that_is_not_known_runs_on_as_nobodys() -> None:
    """As one that was deleted and made again, which is not seen yet."""
    action, = adoption(DAEMON_SET, msgspec.structs.replace(with_node(), nodes={})).actions
    assert isinstance(action, ReleasePod)


@pytest.mark.parametrize("pod", [
    msgspec.structs.replace(ORPHAN, node=""), msgspec.structs.replace(driver_pod(), owner=Owner("DaemonSet", "gone", "uid-gone")),
], ids=["without a node", "of a DaemonSet that is gone"])
def test_one_without_a_node_or_that_the_garbage_collector_is_to_take_holds_nothing_up(pod: PodView) -> None:
    lost = msgspec.structs.replace(with_node(), nodes={}, pods={pod.node: (pod,)})
    assert adoption(DAEMON_SET, lost) == Adoption()


@pytest.mark.parametrize("labels", [
    {**SEEN, names.GPU_PRESENT: "true", names.DEPLOY_DRIVER: "true"}, {**SEEN, names.DEPLOY_DRIVER: "false"},
    {**SEEN, names.DEPLOY_OPERANDS: "false"}, {**SEEN, names.GPU_PRESENT: "true", names.DEPLOY_DRIVER: "false"},
], ids=["labelled", "no driver", "no operands", "labelled, no driver"])
def test_it_waits_for_no_other_node(labels: dict[str, str]) -> None:
    found = adoption(DAEMON_SET, with_node(**labels))
    assert (found.pods, found.actions) == ((), ())
