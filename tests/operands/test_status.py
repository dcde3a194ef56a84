"""The status of a ClusterPolicy."""

from __future__ import annotations

from typing import Any

from gpuward.errors import PolicyError
from gpuward.operands.status import UPGRADING_MESSAGE, Verdict, failed, invalid, judged, status_of

NOW = 1_700_000_000.0
STAMP = "2023-11-14T22:13:20Z"


def conditions(status: dict[str, Any] | None) -> dict[str, tuple[str, str, str]]:
    """Return status, reason and message by type."""
    assert status is not None
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in status["conditions"]}


def test_all_is_well() -> None:
    verdict = judged({}, has_nfd_labels=True, has_gpu_nodes=True)
    status = status_of(verdict, {}, "gpu-operator", NOW)
    assert status is not None
    assert (status["state"], status["namespace"]) == ("ready", "gpu-operator")
    assert conditions(status) == {
        "Ready": ("True", "Reconciled", "ClusterPolicy is ready as all resources have been successfully reconciled"),
        "Error": ("False", "Ready", ""),
    }


def test_operands_that_are_not_ready_are_named() -> None:
    waiting = {"state-driver": "nvidia-driver-daemonset: 20 of 20 pods have an older template", "state-dcgm": ""}
    verdict = judged(waiting, has_nfd_labels=True, has_gpu_nodes=True)
    message = ("ClusterPolicy is not ready; states not ready: [state-driver state-dcgm]; "
               "state-driver: nvidia-driver-daemonset: 20 of 20 pods have an older template")
    assert conditions(status_of(verdict, {}, "ns", NOW)) == {
        "Ready": ("False", "Error", message),
        "Error": ("True", "OperandNotReady", message),
    }


def test_what_waits_for_a_node_is_told_before_what_only_follows_from_that() -> None:
    held = "d: 3 of 4 pods have an older template, and wait for the one that is not ready (n1: its driver is being upgraded)"
    waiting = {f"state-{name}": f"{name}: 1 of 4 pods are unavailable" for name in "abc"} | {"state-d": held}
    message = judged(waiting, has_nfd_labels=True, has_gpu_nodes=True).message
    assert message.startswith(
        "ClusterPolicy is not ready; states not ready: [state-a state-b state-c state-d]; "
        f"state-d: {held}; state-a: a: 1 of 4 pods are unavailable; state-b: ")
    assert "; state-c: " not in message


def test_no_states_are_named_where_only_drivers_are_upgraded() -> None:
    verdict = judged({}, has_nfd_labels=True, has_gpu_nodes=True, upgrading=True)
    assert verdict.message == f"ClusterPolicy is not ready; {UPGRADING_MESSAGE}"


def test_a_cluster_without_gpus_or_without_discovery_is_ready_for_them() -> None:
    assert judged({}, has_nfd_labels=False, has_gpu_nodes=False).reason == "NFDLabelsMissing"
    assert judged({}, has_nfd_labels=True, has_gpu_nodes=False).reason == "NoGPUNodes"
    assert judged({}, has_nfd_labels=True, has_gpu_nodes=False).state == "ready"


def test_an_invalid_policy_is_told_field_value_and_fix() -> None:
    verdict = invalid([PolicyError("spec.a", "abc", "write a number"), PolicyError("spec.b", 1, "leave it out")])
    (error,) = [one for kind, one in conditions(status_of(verdict, {}, "ns", NOW)).items() if kind == "Error"]
    assert error[:2] == ("True", "ReconcileFailed")
    assert "spec.a: 'abc' cannot be used: write a number; spec.b: 1" in error[2]
    assert failed("state-driver", PolicyError("x", 1, "y")).message.startswith("Failed to reconcile state-driver: x: 1")


def test_nothing_is_written_twice_and_times_move_only_with_the_status() -> None:
    ready = judged({}, has_nfd_labels=True, has_gpu_nodes=True)
    first = status_of(ready, {}, "ns", NOW)
    assert first is not None
    assert {one["lastTransitionTime"] for one in first["conditions"]} == {STAMP}
    assert status_of(ready, first, "ns", NOW + 60) is None
    no_gpus = status_of(judged({}, has_nfd_labels=True, has_gpu_nodes=False), first, "ns", NOW + 60)
    assert no_gpus is not None
    assert {one["lastTransitionTime"] for one in no_gpus["conditions"]} == {STAMP}
    unready = status_of(judged({"x": ""}, has_nfd_labels=True, has_gpu_nodes=True), first, "ns", NOW + 60)
    assert unready is not None
    assert STAMP not in {one["lastTransitionTime"] for one in unready["conditions"]}


def test_a_message_without_end_is_cut_where_the_api_server_would_refuse_the_status() -> None:
    verdict = Verdict("notReady", "Many", "x" * 100_000, ready=False)
    status = status_of(verdict, {}, "gpu-operator", 0.0)
    assert status is not None
    assert [len(one["message"]) for one in status["conditions"]] == [32_768, 32_768]
    assert status_of(verdict, status, "gpu-operator", 9.0) is None
