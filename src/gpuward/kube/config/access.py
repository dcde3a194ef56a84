"""What a transport needs to know to reach one API server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpuward.errors import KubeconfigError

if TYPE_CHECKING:
    from gpuward.kube.config.credentials import Credentials
    from gpuward.kube.config.proxy import Proxy
    from gpuward.kube.config.tls import Trust


@dataclass(frozen=True, slots=True)
class Access:
    """Hold all that a transport needs to reach one API server."""

    server: str
    """Its URL, without a trailing slash."""
    trust: Trust
    credentials: Credentials
    namespace: str = "default"
    """The namespace that the context or the service account belongs to."""
    origin: str = ""
    """Where this comes from, in words, for messages."""
    proxy: Proxy | None = None
    """What to go through, or None to connect directly."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers that ask the API server to take us for somebody else."""

    def apart(self) -> Access:
        """Return the same access for another event loop: it shares nothing that changes with this one."""
        return replace(self, trust=self.trust.apart(), credentials=self.credentials.apart())


def checked_server(server: str, origin: str) -> str:
    """Return a server's URL without trailing slash. Raises errors.KubeconfigError for what is no http or https URL."""
    try:
        split = urlsplit(server)
        _ = split.port
    except ValueError as error:
        raise KubeconfigError(f"{origin}: server {server!r} is not a URL ({error}): write https://host:port") from None
    if split.scheme not in ("http", "https") or not split.hostname or not split.hostname.isprintable() or " " in split.hostname:
        raise KubeconfigError(f"{origin}: server {server!r} is not the URL of an API server: write https://host:port")
    return server.rstrip("/")
