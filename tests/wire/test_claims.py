"""ResourceClaims, and the pods that they make users of GPUs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward.model.claims import ClaimView
from gpuward.model.views import PodView
from gpuward.wire.claims import claim_view, with_claims
from gpuward.wire.pods import pod_view


def allocated(*results: dict[str, Any]) -> dict[str, Any]:
    return {"allocation": {"devices": {"results": list(results)}}}


def claim(status: dict[str, Any]) -> ClaimView:
    metadata = {"name": "c", "namespace": "ml", "uid": "u", "resourceVersion": "7"}
    return claim_view(msgspec.json.encode({"metadata": metadata, "spec": {}, "status": status}))


GPU = {"driver": "gpu.nvidia.com", "pool": "n0", "device": "gpu-0", "request": "r"}
NIC = {**GPU, "driver": "net.example.com"}


@pytest.mark.parametrize(("status", "gpu"), [
    ({}, False),
    ({"allocation": {}}, False),
    (allocated(NIC), False),
    (allocated(NIC, GPU), True),
    (allocated({**GPU, "adminAccess": False}), True),
    (allocated({**GPU, "adminAccess": True}), False),
    (allocated({**GPU, "driver": "compute-domain.nvidia.com"}), False),
])
def test_which_claims_are_for_gpus(status: dict[str, Any], gpu: bool) -> None:
    assert claim(status) == ClaimView("ml", "c", "u", "7", gpu)


@pytest.mark.parametrize(("known", "uses"), [
    ({"a": True, "b": False}, True),
    ({"a": False, "b": True}, True),
    ({"a": False, "b": False}, False),
    ({"a": False}, True),
])
def test_a_pod_uses_a_gpu_if_one_of_its_claims_does_or_is_not_known(known: dict[str, bool], uses: bool) -> None:
    claims = {("ml", name): ClaimView("ml", name, gpu=gpu) for name, gpu in known.items()}
    pod = PodView("ml", "p", claims=("a", "b"))
    assert with_claims(pod, claims.get).uses_gpu is uses


@pytest.mark.parametrize(("known", "consumed", "idle"), [
    ({"a": True, "b": False}, ("a",), False),
    ({"a": True, "b": False}, ("b",), True),
    ({"a": True, "b": False}, (), True),
    ({"a": False}, ("a", "b"), True),
])
def test_a_claim_that_no_container_is_known_to_have_gpus_of_is_idle(
    known: dict[str, bool], consumed: tuple[str, ...], idle: bool
) -> None:
    claims = {("ml", name): ClaimView("ml", name, gpu=gpu) for name, gpu in known.items()}
    pod = with_claims(PodView("ml", "p", claims=("a", "b"), consumed=consumed), claims.get)
    assert (pod.uses_gpu, pod.idle_claim) == (True, idle)


def test_a_pod_without_claims_stays_as_it_is() -> None:
    pod = PodView("ml", "p", holds="runtimeClass nvidia")
    assert with_claims(pod, lambda place: None) is pod


@pytest.mark.parametrize(("limits", "idle"), [
    ({"nvidia.com/gpu": "1"}, False), ({"nvidia.com/gpu": 2}, False), ({"cpu": "1"}, False),
    ({"nvidia.com/gpu": "0"}, True), ({"nvidia.com/gpu": 0}, True), ({"nvidia.com/gpu": "0k"}, True),
    ({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "1"}, False),
])
def test_a_pod_that_asks_for_no_gpus_in_numbers_is_idle(limits: dict[str, Any], idle: bool) -> None:
    raw = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}
    pod = pod_view(msgspec.json.encode(raw))
    assert (pod.uses_gpu, pod.idle_claim) == ("cpu" not in limits, idle)


def test_a_pod_that_asks_for_0_and_has_a_claim_is_what_its_claim_is() -> None:
    pod = PodView("ml", "p", uses_gpu=True, idle_claim=True, claims=("a",), consumed=("a",))
    seen = [with_claims(pod, {("ml", "a"): ClaimView("ml", "a", gpu=gpu)}.get) for gpu in (True, False)]
    assert [(one.uses_gpu, one.idle_claim) for one in seen] == [(True, False), (True, True)]


CHANNEL = {"kind": "ComputeDomainChannelConfig", "domainID": "cd-1"}


@pytest.mark.parametrize(("opaque", "domain"), [
    (None, ""),
    ({"driver": "compute-domain.nvidia.com", "parameters": CHANNEL}, "cd-1"),
    ({"driver": "compute-domain.nvidia.com", "parameters": {"kind": "Other"}}, ""),
    ({"driver": "compute-domain.nvidia.com", "parameters": {"domainID": 7}}, ""),
    ({"driver": "compute-domain.nvidia.com", "parameters": ["cd-1"]}, ""),
    ({"driver": "gpu.nvidia.com", "parameters": CHANNEL}, ""),
])
def test_a_claim_names_the_compute_domain_whose_channel_it_is(opaque: dict[str, Any] | None, domain: str) -> None:
    spec = {"devices": {"config": [{"opaque": opaque} if opaque else {}]}}
    view = claim_view(msgspec.json.encode({"metadata": {"name": "c", "namespace": "ml"}, "spec": spec}))
    assert view.compute_domain == domain


@pytest.mark.parametrize(("gang", "wanted"), [("", "ComputeDomain ml/cd-1"), ("JobSet ml/llm", "JobSet ml/llm")])
def test_a_pod_with_such_a_claim_is_one_of_a_gang_unless_it_says_of_another(gang: str, wanted: str) -> None:
    channel = ClaimView("ml", "c", compute_domain="cd-1")
    pod = with_claims(PodView("ml", "p", uses_gpu=True, gang=gang, claims=("c",)), {("ml", "c"): channel}.get)
    assert pod.gang == wanted
    assert with_claims(PodView("ml", "p", uses_gpu=True, claims=("c",)), lambda claim: None).gang == ""
