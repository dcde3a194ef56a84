"""Which nodes a driver DaemonSet waits for before it is given another driver."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import PodView, RevisionView
from gpuward.operands.driver.withholding import withholding
from tests.build import NAMESPACE, driver_pod, node, record

REVISIONS = (RevisionView(NAMESPACE, "ds-old", owner_uid="uid-daemonset", revision=1, hash="old", pod_digest="x"),
             RevisionView(NAMESPACE, "ds-new", owner_uid="uid-daemonset", revision=2, hash="new", pod_digest="y"))
ANOTHER = {"metadata": {"name": names.DRIVER_APP}, "spec": {"template": {"spec": {
    "nodeSelector": {names.DEPLOY_DRIVER: "true"},
    "containers": [{"env": [{"name": names.DRIVER_CONFIG_DIGEST, "value": "another"}]}]}}}}


def waits_for(pod: PodView, **remembers: Any) -> tuple[str, ...]:
    """Return the nodes that a DaemonSet with another driver waits for, where only a driver pod is to be restarted."""
    memory = record(State.POD_RESTART_REQUIRED, restart="same", loaded="same", **remembers)
    view = node("n0", State.POD_RESTART_REQUIRED, remembers=memory, labels={names.DEPLOY_DRIVER: "true"})
    snapshot = Snapshot(NAMESPACE, nodes={"n0": view}, pods={"n0": (pod,)}, revisions=REVISIONS)
    return withholding(ANOTHER, snapshot, is_new=False).nodes


@pytest.mark.parametrize(("revision", "forced", "waits"), [
    ("old", False, True),
    ("new", False, False),
    ("new", True, True),
], ids=["about to be replaced", "of the newest template already", "replaced all the same, as somebody asked for it"])
def test_a_driver_pod_that_is_about_to_be_restarted_only_holds_the_next_driver_back(
        revision: str, forced: bool, waits: bool) -> None:
    pod = driver_pod(driver=revision, ready=False)
    assert waits_for(pod, pods=(pod.uid,), forced=forced) == ("n0",) * waits


def test_the_pod_that_came_in_its_place_holds_nothing_back() -> None:
    assert waits_for(driver_pod(driver="new", ready=False), pods=("uid-of-the-former-one",)) == ()
