"""TLS towards an API server: whom we trust, and the certificate that we show."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from gpuward.errors import KubeconfigError

if TYPE_CHECKING:
    from gpuward.kube.config.files import Source


class Certificate(NamedTuple):
    """Hold a client certificate chain and its key, both PEM."""

    chain: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Trust:
    """Say how to tell the right API server from a wrong one. Without an authority, the system's are trusted."""

    authority: Source | None = None
    verify: bool = True
    server_name: str = ""
    """The name that the server's certificate must carry, where it is not the host in the URL."""
    field: str = "certificate-authority"
    """Where the authority was written, for messages."""

    def read_authority(self) -> bytes:
        """Return the PEM text of the authority, empty when there is none of its own."""
        return self.authority.read() if self.verify and self.authority is not None else b""

    def apart(self) -> Trust:
        """Return the same trust, with an authority that is read for itself."""
        return replace(self, authority=self.authority.apart()) if self.authority is not None else self

    def context(self, authority: bytes, certificate: Certificate | None) -> ssl.SSLContext:
        """Build a TLS context. Raises errors.KubeconfigError naming the field whose PEM text is unusable."""
        try:
            context = ssl.create_default_context(cadata=authority.decode("ascii") or None)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise KubeconfigError(f"{self.field}: no PEM certificate in it ({_short(error)}): give the CA in PEM") from error
        # Python 3.13 turns this on; it refuses the authorities of many existing clusters, which lack a key identifier.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            _show(context, certificate)
        return context


def _show(context: ssl.SSLContext, certificate: Certificate) -> None:
    # OpenSSL takes chain and key from a file only. The file is readable by us alone and gone at once.
    with tempfile.NamedTemporaryFile(prefix="gpuward-") as pem:
        pem.write(certificate.chain.rstrip() + b"\n" + certificate.key)
        pem.flush()
        try:
            # A passphrase prompt would hang a daemon, so an encrypted key is given an empty one and refused.
            context.load_cert_chain(pem.name, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise KubeconfigError(
                f"client-certificate, client-key: unusable ({_short(error)}): give a PEM certificate and its unencrypted key"
            ) from error


def _short(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)
