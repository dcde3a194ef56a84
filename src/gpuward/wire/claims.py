"""ResourceClaims to ClaimView, and what they make of the pods that use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gpuward import names
from gpuward.model.claims import ClaimView
from gpuward.model.gangs import of_compute_domain
from gpuward.model.views import PodView
from gpuward.wire.meta import WireMeta


class _Result(msgspec.Struct, rename="camel"):
    driver: str = ""
    admin_access: bool | None = None


class _Devices(msgspec.Struct):
    results: list[_Result] | None = None


class _Allocation(msgspec.Struct):
    devices: _Devices = msgspec.field(default_factory=_Devices)


class _Opaque(msgspec.Struct):
    driver: str = ""
    parameters: object = None


class _Config(msgspec.Struct):
    opaque: _Opaque | None = None


class _Wanted(msgspec.Struct):
    config: list[_Config] | None = None


class _Spec(msgspec.Struct):
    devices: _Wanted = msgspec.field(default_factory=_Wanted)


class _Status(msgspec.Struct):
    allocation: _Allocation | None = None


class _Claim(msgspec.Struct):
    metadata: WireMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Claim)


def claim_view(raw: bytes | msgspec.Raw) -> ClaimView:
    """Decode a ResourceClaim. Raises msgspec.DecodeError for bytes that are not one."""
    claim = _decoder.decode(raw)
    meta, allocation = claim.metadata, claim.status.allocation
    results = (allocation.devices.results if allocation else None) or ()
    return ClaimView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        gpu=any(result.driver == names.DRA_DRIVER and not result.admin_access for result in results),
        compute_domain=_compute_domain(claim.spec.devices.config or ()),
    )


def _compute_domain(configs: Iterable[_Config]) -> str:
    """Return the ComputeDomain that a claim of one of its channels names."""
    found = (config.opaque.parameters for config in configs
             if config.opaque is not None and config.opaque.driver == names.COMPUTE_DOMAIN_DRIVER)
    for parameters in found:
        uid = parameters.get("domainID") if isinstance(parameters, dict) else None
        if isinstance(uid, str):
            return uid
    return ""


def with_claims(pod: PodView, find: Callable[[tuple[str, str]], ClaimView | None]) -> PodView:
    """Return the pod as a user of GPUs if one of its claims is for GPUs, or is not known, and as one of a gang by them.

    Not known counts as a GPU, as in NVIDIA's operator: a pod too many that has to leave is less harm than a driver that is
    pulled from under one. But it proves no driver, as little as a claim that no container is given the devices of.
    """
    if not pod.claims:
        return pod
    claims = {name: find((pod.namespace, name)) for name in pod.claims}
    domain = next((claim.compute_domain for claim in claims.values() if claim is not None and claim.compute_domain), "")
    if domain and not pod.gang:
        pod = msgspec.structs.replace(pod, gang=of_compute_domain(pod.namespace, domain))
    if pod.uses_gpu and not pod.idle_claim:
        return pod
    if any(claim is None or claim.gpu for claim in claims.values()):
        given = any(claim.gpu for name in pod.consumed if (claim := claims[name]) is not None)
        return msgspec.structs.replace(pod, uses_gpu=True, idle_claim=not given, holds="")
    return pod
