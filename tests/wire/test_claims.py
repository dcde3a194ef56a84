"""ResourceClaims, and the pods that they make users of GPUs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward.model.claims import ClaimView
from gpuward.model.views import PodView
from gpuward.wire.claims import claim_view, with_claims


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
