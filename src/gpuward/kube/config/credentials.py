"""What we show an API server to be let in, kept fresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gpuward.kube.config.tls import Certificate

if TYPE_CHECKING:
    from gpuward.kube.config.files import Source


@dataclass(frozen=True, slots=True)
class Credential:
    """Hold what goes with a request: an Authorization header, a client certificate, both or neither."""

    authorization: str = ""
    certificate: Certificate | None = None

    def __repr__(self) -> str:
        return "Credential(...)"  # a token must not end in a log or a traceback


class Credentials(Protocol):
    """Give the credential of the moment."""

    async def current(self) -> Credential:
        """Return a credential that is, as far as we know, still good.

        Raises errors.KubeconfigError when there never was one, errors.Unreachable when one could not be renewed now.
        """
        ...

    async def renew(self, refused: Credential) -> Credential | None:
        """Return another credential after the server refused one with 401, or None when there is no other.

        Raises as `current` does.
        """
        ...

    def apart(self) -> Credentials:
        """Return credentials of the same origin that share nothing that changes with these: for another event loop."""
        ...


class KeptCredentials:
    """Use a token and a client certificate from the kubeconfig or from files; files are read again when they change."""

    def __init__(
        self,
        *,
        authorization: str = "",
        token: Source | None = None,
        chain: Source | None = None,
        key: Source | None = None,
    ) -> None:
        self._authorization = authorization
        self._token = token
        self._chain = chain
        self._key = key

    async def current(self) -> Credential:
        """Return what the files hold now."""
        return self._read(again=False)

    async def renew(self, refused: Credential) -> Credential | None:
        """Return what the files hold if it differs from what was refused."""
        fresh = self._read(again=True)
        return fresh if fresh != refused else None

    def apart(self) -> KeptCredentials:
        """Return credentials that read the same files for themselves."""
        token, chain, key = (source and source.apart() for source in (self._token, self._chain, self._key))
        return KeptCredentials(authorization=self._authorization, token=token, chain=chain, key=key)

    def _read(self, *, again: bool) -> Credential:
        def content(source: Source) -> bytes:
            return source.read_again() if again else source.read()

        authorization = self._authorization
        if self._token is not None:
            authorization = bearer(content(self._token).decode("utf-8", "replace"))
        certificate = None
        if self._chain is not None and self._key is not None:
            certificate = Certificate(content(self._chain), content(self._key))
        return Credential(authorization, certificate)


def bearer(token: str) -> str:
    """Return the Authorization header of a bearer token, empty for an empty one."""
    token = token.strip()
    return f"Bearer {token}" if token else ""
