"""The validator's workload pod where it cannot succeed any more."""

from __future__ import annotations

import io
from typing import Any

import pytest

from gpuward.agents.telling import Teller
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.agents.validator.workload import ValidationError, Workload
from gpuward.agents.waiting import Patience
from tests.agents.test_driver_manager_evict import Server

KILLED = {"name": "cuda-validation", "state": {"terminated": {"exitCode": 137}}}


class Refusing(Server):
    """Be a cluster whose kubelet turns the pod away."""

    def __init__(self, status: dict[str, Any]) -> None:
        super().__init__([], pods=[])
        self.status = status

    def get(self, path: str) -> dict[str, Any]:
        return {"metadata": {}, "spec": {"template": {"spec": {}}}} if "daemonsets" in path else {"status": self.status}

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {"name": "nvidia-cuda-validator-x"}}


@pytest.mark.parametrize(("status", "why"), [
    ({"reason": "UnexpectedAdmissionError", "message": "no healthy\ndevices present"},
     "UnexpectedAdmissionError no healthy devices present"),
    ({"reason": "Evicted", "message": "low on memory", "initContainerStatuses": [KILLED]}, "Evicted low on memory")])
def test_a_pod_that_the_kubelet_has_turned_away_is_not_waited_for(status: dict[str, Any], why: str) -> None:
    now = [0.0]
    patience = Patience(Teller(io.StringIO()), lambda: now[0], lambda seconds: now.append(now.pop() + seconds))
    with pytest.raises(ValidationError) as error:
        Workload(ValidatorSettings("cuda", node="n", namespace="g", every=1.0), Refusing({"phase": "Failed", **status}),
                 patience).run()
    assert str(error.value) == f"pod nvidia-cuda-validator-x is Failed: {why}"
    assert now == [0.0]
