"""Agents outside a pod: kubeconfig files, as the operator reads them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuward.kube.config.loading import find_access

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from gpuward.kube.config.access import Access


@dataclass(frozen=True, slots=True)
class KubeconfigAccess:
    """Use what a kubeconfig says."""

    found_by: Access

    @classmethod
    def found(cls, kubeconfig: str = "") -> KubeconfigAccess:
        """Find a kubeconfig as kubectl does. Raises errors.KubeconfigError."""
        return cls(find_access(kubeconfig or None))

    @property
    def server(self) -> str:
        return self.found_by.server

    @property
    def server_name(self) -> str:
        """The name that the server's certificate must carry; empty where that is its host's."""
        return self.found_by.trust.server_name

    def headers(self) -> Mapping[str, str]:
        """Return the headers by which the server knows us."""
        # Each time with an event loop of its own, so with credentials of their own.
        credential = asyncio.run(self.found_by.credentials.apart().current())
        known = {"Authorization": credential.authorization} if credential.authorization else {}
        return known | dict(self.found_by.impersonation)

    def context(self) -> ssl.SSLContext:
        """Return whom we trust, with the certificate that we show."""
        trust = self.found_by.trust
        credential = asyncio.run(self.found_by.credentials.apart().current())
        return trust.context(trust.read_authority(), credential.certificate)
