"""What the status of a policy says could not be made, and whether drivers want for it."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.policy.unmade import why_unmade
from gpuward.wire.policies import policy_view

NAME = "nvidia-driver"


def why(message: str) -> str:
    conditions = [{"type": "Error", "status": "True", "reason": "ReconcileFailed", "message": message}]
    return why_unmade(policy_view(msgspec.json.encode({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "status": {"conditions": conditions},
        "metadata": {"name": "cluster-policy", "uid": "1", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"},
    })))


@pytest.mark.parametrize("told", [
    f"ServiceAccount {NAME} cannot be written: denied", f"Role {NAME} cannot be written: denied",
    f"DaemonSet {NAME} cannot be written: denied", f"DaemonSet {NAME} cannot be deleted: denied", "Secret a is not there"])
def test_drivers_want_for_what_cannot_be_written(told: str) -> None:
    assert why(f"Failed to reconcile state-driver: {told}") == told


@pytest.mark.parametrize("message", [
    f"Failed to reconcile state-driver: Role {NAME} cannot be deleted: roles is forbidden",
    "Failed to reconcile state-device-plugin: ServiceAccount a cannot be written: denied"])
def test_they_want_for_nothing_that_stays_or_is_of_another_state(message: str) -> None:
    assert why(message) == ""
