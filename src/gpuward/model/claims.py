"""ResourceClaims (DRA), as far as a decision needs to know of them."""

from __future__ import annotations

import msgspec


class ClaimView(msgspec.Struct, frozen=True):
    """See of a ResourceClaim whether GPUs of NVIDIA's are allocated to it, other than to look at them with admin access."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    gpu: bool = False
    compute_domain: str = ""
    """The uid of the ComputeDomain of which it is a channel."""
