"""Ask a registry whether it has an image: the manifest, by the HTTP API V2 of Docker and OCI registries."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from gpuward.ports import ImageFound, Login
from gpuward.registry.reference import Reference, parse

TIMEOUT: Final = 10.0
LONGEST: Final = 64 * 1024
"""Bytes of an answer that are read."""
MANIFESTS: Final = ", ".join((
    "application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json"))
FOREIGN: Final = (aiohttp.ClientError, HttpProcessingError, OSError, asyncio.TimeoutError, EOFError, ValueError)
UNKNOWN_MANIFEST: Final = "MANIFEST_UNKNOWN"
OF_HARBOR: Final = ("NOT_FOUND", "artifact ")
"""The code, and the beginning of the message, by which Harbor says so; of a repository that is not there it has the same code."""
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


class RegistryClient:
    """Implement `gpuward.ports.Registry` with aiohttp. A connection is made for each question: there are few.

    `authorities` is a file of certificate authorities that are trusted besides those of the system.
    """

    def __init__(self, authorities: str = "") -> None:
        self._authorities = authorities

    async def find(self, image: str, logins: Mapping[str, Login]) -> ImageFound:
        """Say whether an image is there; what is in the way of knowing it is `why`, without anything secret in it."""
        reference = parse(image)
        login = next((logins[name] for name in reference.logins if name in logins), None)
        try:
            trust = await asyncio.to_thread(_trust, self._authorities)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            return ImageFound(None, f"--trusted-ca={self._authorities}: {_unread(error)}")
        made = aiohttp.TCPConnector(ssl=trust)
        jar = aiohttp.DummyCookieJar()
        try:
            async with asyncio.timeout(TIMEOUT), aiohttp.ClientSession(connector=made, trust_env=True, cookie_jar=jar) as session:
                return await _ask(session, reference, login)
        except FOREIGN as error:
            return ImageFound(None, f"{reference.server}: {_named(error)}")


def _trust(authorities: str) -> ssl.SSLContext:
    """Return whom to trust; the file is read anew each time, since a ConfigMap's changes."""
    trust = ssl.create_default_context()
    if authorities:
        trust.load_verify_locations(authorities)
    return trust


def _unread(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
        return "it has no certificate authority that can be read"
    return error.strerror or type(error).__name__


async def _ask(session: aiohttp.ClientSession, reference: Reference, login: Login | None) -> ImageFound:
    scheme = "http" if reference.is_local else "https"
    url = URL(f"{scheme}://{reference.server}/v2/{reference.name}/manifests/{reference.tag}")
    headers = {"Accept": MANIFESTS}
    status, challenge, told = await _get(session, url, headers)
    if status == 401 and (found := await _authorization(session, challenge, login, reference)):
        status, challenge, told = await _get(session, url, {**headers, "Authorization": found})
    if status == 200:
        return ImageFound(True)
    if status == 404 and any(map(_is_of_manifest, told)):
        return ImageFound(False, f"{reference.server} has no manifest {reference.tag} of {reference.name}")
    # A repository that may not be read may be answered for as one that is not there.
    return ImageFound(None, f"{reference.server} answered {status}{f' {told[0][0]}' if told else ''}")


async def _get(session: aiohttp.ClientSession, url: URL, headers: Mapping[str, str]) -> tuple[int, str, list[tuple[str, str]]]:
    """Return the status of an answer, how it asks for credentials, and its errors, each with its code and its message."""
    async with session.get(url, headers=headers, max_redirects=3) as answer:
        body = await answer.content.read(LONGEST) if answer.status >= 400 else b""
        return answer.status, answer.headers.get("WWW-Authenticate", ""), _errors(body)


def _errors(body: bytes) -> list[tuple[str, str]]:
    try:
        errors = json.loads(body).get("errors") or []
    except (ValueError, AttributeError):
        return []
    return [(str(one["code"])[:60], str(one.get("message", ""))) for one in errors if isinstance(one, Mapping) and "code" in one]


def _is_of_manifest(error: tuple[str, str]) -> bool:
    """Tell whether an error says that a repository has no such manifest."""
    code, message = error
    return code == UNKNOWN_MANIFEST or (code == OF_HARBOR[0] and message.startswith(OF_HARBOR[1]))


async def _authorization(session: aiohttp.ClientSession, challenge: str, login: Login | None, reference: Reference) -> str:
    """Return what a registry wants to be shown: the login, or a token that its authority gives for it; empty without either."""
    kind, _, rest = challenge.partition(" ")
    if kind.lower() == "basic":
        return _basic(login) if login is not None else ""
    parameters = dict(_PARAMETER.findall(rest))
    realm = URL(parameters.get("realm", ""))
    if kind.lower() != "bearer" or not (realm.scheme == "https" or (realm.scheme == "http" and reference.is_local)):
        return ""
    service = {"service": parameters["service"]} if "service" in parameters else {}
    query = {"scope": f"repository:{reference.name}:pull", **service}
    headers = {"Authorization": _basic(login)} if login is not None else {}
    async with session.get(realm.update_query(query), headers=headers, allow_redirects=False) as answer:
        if answer.status != 200:
            return ""
        told: Any = json.loads(await answer.content.read(LONGEST))
    token = told.get("token") or told.get("access_token") if isinstance(told, Mapping) else None
    return f"Bearer {token}" if isinstance(token, str) and token else ""


def _basic(login: Login) -> str:
    return f"Basic {base64.b64encode(f'{login.user}:{login.password}'.encode()).decode()}"


def _named(error: BaseException) -> str:
    """Say what failed in a word: the text of an error may quote what was sent."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "")
        return f"its certificate is not trusted{f' ({why})' if why else ''}"
    if isinstance(error, aiohttp.ClientSSLError):
        return "it does not speak TLS as we do"
    return "no answer in time" if isinstance(error, asyncio.TimeoutError) else type(error).__name__
