"""TLS contexts; handshakes are in test_aiohttp_transport.py."""

from __future__ import annotations

import ssl

import pytest

from gpuward.errors import KubeconfigError
from gpuward.kube.config.files import InFile, Inline
from gpuward.kube.config.tls import Certificate, Trust
from tests.kube.serving import DATA


def test_only_the_clusters_authority_is_trusted() -> None:
    trust = Trust(authority=InFile(DATA / "ca.pem", "x"))
    context = trust.context(trust.read_authority(), None)
    subjects = [authority["subject"] for authority in context.get_ca_certs()]
    assert subjects == [((("commonName", "gpuward test authority"),),)]
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def test_verification_can_be_skipped() -> None:
    trust = Trust(authority=Inline(b"not even PEM"), verify=False)
    context = trust.context(trust.read_authority(), None)
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname


@pytest.mark.parametrize("text", [b"abc", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n"])
def test_an_authority_that_is_no_certificate(text: bytes) -> None:
    with pytest.raises(KubeconfigError, match=r"^ca: no PEM certificate in it \(.*\): give the CA in PEM$"):
        Trust(field="ca").context(text, None)


@pytest.mark.parametrize("key", ["server.pem", "ca.pem"])
def test_a_key_that_does_not_fit_its_certificate(key: str) -> None:
    certificate = Certificate((DATA / "client.pem").read_bytes(), (DATA / key).read_bytes())
    with pytest.raises(KubeconfigError, match="client-certificate, client-key: unusable"):
        Trust().context(b"", certificate)
