"""What the operator says of a rollout, read back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward.cli.operators_word import remembered
from gpuward.model.denials import EvictionForbidden, RefusedElsewhere
from gpuward.model.edits import TemplateEdited
from gpuward.model.explain import sentence
from gpuward.model.plan import Hold
from gpuward.model.snapshot import Edit, Snapshot
from gpuward.model.views import Ref
from gpuward.model.waits import WaitsFor
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.sandbox.samples import sample_policy
from gpuward.wire.policies import policy_view
from tests.build import daemonset, driver_pod, gpu_pod

DRIVER, TRAIN, WEB = driver_pod("n1"), gpu_pod("n1", "train"), gpu_pod("n1", "web", namespace="other")
SERVER = "pods \"train\" is forbidden: User \"x; y\" cannot: do {this}"


def known(what: WaitsFor, *, status: str = "False", generation: int = 3, kind: str = "DriverUpgrade") -> Snapshot:
    """Return what is known once the operator has said this in the condition."""
    body: dict[str, Any] = sample_policy()
    body["metadata"]["generation"] = 3
    message = f"0 of 2 nodes up to date; held: 1 {what.reason}; {sentence(Hold(what))}"
    body["status"] = {"conditions": [
        {"type": kind, "status": status, "reason": "x", "message": message, "observedGeneration": generation}]}
    view = policy_view(msgspec.Raw(msgspec.json.encode(body)))
    pods = {"n1": (DRIVER, TRAIN, WEB), "n2": (gpu_pod("n2", "other"),)}
    snapshot = Snapshot("gpu-operator", pods=pods, policies=(view,), daemonsets=(daemonset(),))
    return remembered(snapshot, PolicyReader().read(snapshot), 9.0)


def test_a_driver_pod_that_may_not_be_replaced_is_known() -> None:
    found = known(RefusedElsewhere(DRIVER.ref, "n1", SERVER))
    assert {uid: refusal.message for uid, refusal in found.refusals.items()} == {DRIVER.uid: SERVER}


def test_pods_that_may_not_be_evicted_are_known() -> None:
    found = known(EvictionForbidden(TRAIN.namespace, "n1", SERVER))
    assert TRAIN.uid in found.refusals
    assert WEB.uid not in found.refusals
    assert found.refusals[TRAIN.uid].message == SERVER


def test_who_edits_a_daemonset_is_known() -> None:
    found = known(TemplateEdited(daemonset().name, "kubectl edit"))
    assert found.edits == {daemonset().uid: Edit(9.0, 3, "kubectl edit", stands=True)}


@pytest.mark.parametrize("rest", [{"status": "True"}, {"generation": 2}, {"kind": "Ready"}])
def test_what_an_edit_overtook_and_what_is_over_is_not_gone_by(rest: dict[str, Any]) -> None:
    assert not known(RefusedElsewhere(DRIVER.ref, "n1", SERVER), **rest).refusals


def test_what_is_about_no_pod_that_is_there_is_not_gone_by() -> None:
    assert not known(RefusedElsewhere(Ref("gpu-operator", "gone"), "n1", SERVER)).refusals
