"""Agents outside a pod: kubeconfig files, as the operator reads them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuward.errors import KubeconfigError
from gpuward.kube.config.loading import find_access

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from gpuward.kube.config.access import Access
    from gpuward.kube.config.proxy import Proxy


@dataclass(frozen=True, slots=True)
class KubeconfigAccess:
    """Use what a kubeconfig says."""

    found_by: Access

    @classmethod
    def found(cls, kubeconfig: str = "") -> KubeconfigAccess:
        """Find a kubeconfig as kubectl does. Raises errors.KubeconfigError, also for a proxy that speaks TLS itself."""
        environ = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
        found = find_access(kubeconfig or None, environ=environ)
        if found.proxy is not None and not found.proxy.url.startswith("http:"):
            raise KubeconfigError(f"{found.origin}: the proxy-url {found.proxy.url} cannot be used here: name one with http://")
        return cls(found)

    @property
    def server(self) -> str:
        return self.found_by.server

    @property
    def server_name(self) -> str:
        """The name that the server's certificate must carry; empty where that is its host's."""
        return self.found_by.trust.server_name

    @property
    def proxy(self) -> Proxy | None:
        """The proxy that the kubeconfig names."""
        return self.found_by.proxy

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
