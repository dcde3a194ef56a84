"""The validator's workload pod where it cannot succeed any more."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from gpuward import errors
from gpuward.agents.telling import Teller
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.agents.validator.workload import ValidationError, Workload, pod
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
    assert re.sub("-[0-9a-f]{8} ", "-x ", str(error.value)) == f"pod nvidia-cuda-validator-x is Failed: {why}"
    assert now == [0.0]


class Forgetful(Refusing):
    """Be a cluster whose answer to the first request for a pod is lost, so that it is asked for again."""

    def __init__(self) -> None:
        super().__init__({"phase": "Succeeded"})
        self.made: list[str] = []

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        for _ in range(2):
            name = body["metadata"].get("name") or f"generated-{len(self.made)}"
            if name in self.made:
                raise errors.AlreadyExists(f"pods {name} exists")
            self.made.append(name)
        return body


def test_a_pod_whose_making_was_not_heard_of_is_no_reason_for_a_second_one() -> None:
    cluster = Forgetful()
    Workload(ValidatorSettings("cuda", node="n", namespace="g", every=1.0), cluster, Patience(Teller(io.StringIO()))).run()
    assert len(cluster.made) == 1


def is_given_gpus(made: dict[str, Any], *, nri: bool) -> bool:
    """Tell whether a runtime that is strict gives the check of a pod GPUs: by a resource, or as NVIDIA's toolkit does without."""
    check = made["spec"]["initContainers"][0]
    if check.get("resources"):
        return True
    if nri:  # there the variable is heeded by nobody
        asked = made["metadata"].get("annotations", {}).get(f"nvidia.cdi.k8s.io/container.{check['name']}")
        return bool(asked == "management.nvidia.com/gpu=all")
    visible = {each["name"]: each["value"] for each in check["env"]}.get("NVIDIA_VISIBLE_DEVICES")
    # ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED=false
    return visible == "all" and check["securityContext"].get("privileged", False) is True


@pytest.mark.parametrize("nri", [False, True])
@pytest.mark.parametrize(("component", "resource"), [("cuda", ""), ("plugin", "nvidia.com/gpu")])
def test_the_pod_is_given_gpus_wherever_nvidias_is(component: str, resource: str, nri: bool) -> None:
    daemonset: dict[str, Any] = {"metadata": {}, "spec": {"template": {"spec": {}}}}
    made = pod(ValidatorSettings(component, node="n", namespace="g"), "name", "app", daemonset, resource)
    assert is_given_gpus(made, nri=nri)
    assert not (resource and made["spec"]["initContainers"][0]["securityContext"].get("privileged"))


class Full(Refusing):
    """Be a cluster in which nobody may make one more pod."""

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        raise errors.Forbidden("exceeded quota: few-pods")


def test_a_pod_that_may_not_be_made_is_named() -> None:
    settings = ValidatorSettings("cuda", node="n", namespace="g", every=1.0)
    with pytest.raises(ValidationError, match=r"^pod nvidia-cuda-validator-\w+ cannot be made: exceeded quota: few-pods$"):
        Workload(settings, Full({}), Patience(Teller(io.StringIO()))).run()


@pytest.mark.parametrize(("said", "names"), [("a,b", ["a", "b"]), (" a , b,", ["a", "b"]), (" ", [])])
def test_pull_secrets_may_have_blanks_around_them(said: str, names: list[str]) -> None:
    settings = ValidatorSettings("cuda", workload_pod={"VALIDATOR_IMAGE_PULL_SECRETS": said})
    daemonset: dict[str, Any] = {"metadata": {}, "spec": {"template": {"spec": {}}}}
    assert [each["name"] for each in pod(settings, "x", "x", daemonset, "")["spec"]["imagePullSecrets"]] == names
