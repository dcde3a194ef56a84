"""Ask an instant query of a Prometheus, or of what speaks its HTTP API, within a time and for so many bytes at most."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import aiohttp
import msgspec
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from gpuward.model.measuring import Answer, Sample
from gpuward.ports import Access

TIMEOUT: Final = 10.0
LONGEST: Final = 1024 * 1024
"""Bytes of an answer that are read."""
SHOWN: Final = 120
"""Characters of what a server says that are shown."""
FOREIGN: Final = (aiohttp.ClientError, HttpProcessingError, OSError, asyncio.TimeoutError, EOFError, ValueError)
Text = Annotated[str, msgspec.Meta(max_length=1024)]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, Text]


class _Data(msgspec.Struct, rename="camel"):
    result_type: Literal["vector", "scalar", "matrix", "string"]
    result: msgspec.Raw


class _Told(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error: str = ""
    error_type: str = ""
    warnings: list[str] | None = None


class PrometheusClient:
    """Implement `gpuward.ports.Prometheus` with aiohttp. A connection is made for each question: there are few."""

    async def ask(self, server: str, query: str, access: Access) -> Answer:
        """Return the samples of an instant query; what is in the way is `why`, without anything secret in it."""
        try:
            trust = await asyncio.to_thread(_trust, access.authorities)
        except (OSError, ValueError):  # an SSLError is an OSError
            return Answer(None, "ca.crt of its Secret has no certificate authority that can be read")
        made = aiohttp.TCPConnector(ssl=trust)
        jar = aiohttp.DummyCookieJar()
        try:
            async with asyncio.timeout(TIMEOUT), aiohttp.ClientSession(connector=made, trust_env=True, cookie_jar=jar) as session:
                return await _ask(session, server, query, access.token)
        except FOREIGN as error:
            return Answer(None, _named(error))


def _trust(authorities: str) -> ssl.SSLContext:
    trust = ssl.create_default_context()
    if authorities:
        trust.load_verify_locations(cadata=authorities)
    return trust


async def _ask(session: aiohttp.ClientSession, server: str, query: str, token: str) -> Answer:
    headers: Mapping[str, str] = {"Authorization": f"Bearer {token}"} if token else {}
    url = URL(f"{server.rstrip('/')}/api/v1/query")
    # A query with many nodes in it may be longer than an address may be.
    async with session.post(url, data={"query": query}, headers=headers, allow_redirects=False) as answer:
        body = await _read(answer)
        if body is None:
            return Answer(None, f"its answer has more than {LONGEST // 1024} KiB: aggregate in the query")
        if 300 <= answer.status < 400:
            return Answer(None, f"it answers {answer.status} and sends elsewhere, which is not followed")
        return _answer(answer.status, body)


async def _read(answer: aiohttp.ClientResponse) -> bytes | None:
    """Return the body, None for one that is too long."""
    found = bytearray()
    async for part in answer.content.iter_chunked(64 * 1024):
        found += part
        if len(found) > LONGEST:
            return None
    return bytes(found)


def _answer(status: int, body: bytes) -> Answer:
    try:
        told = msgspec.json.decode(body, type=_Told)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return Answer(None, f"it answers {status}" + ("" if status != 200 else " with what is no answer of a Prometheus"))
    if status != 200 or told.status != "success" or told.data is None:
        said = _shown(": ".join(filter(None, (told.error_type, told.error))))
        return Answer(None, f"it answers {status}" + (f" {said}" if said else ""))
    return _samples(told.data, _shown("; ".join(told.warnings or ())))


def _samples(data: _Data, warning: str) -> Answer:
    if data.result_type not in ("vector", "scalar"):
        return Answer(None, f"the query gives a {data.result_type}: write one that gives an instant vector or a scalar")
    try:
        if data.result_type == "scalar":
            _, value = msgspec.json.decode(data.result, type=tuple[float, Text])
            return Answer((Sample({}, float(value)),), warning)
        found = msgspec.json.decode(data.result, type=list[_Series])
        return Answer(tuple(Sample(each.metric, float(each.value[1])) for each in found), warning)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return Answer(None, "it answers with what are no samples, as those of native histograms are none")


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


def _cause(error: OSError) -> str:
    """Say why there is no connection, without the address: it may be another one each time."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else type(error).__name__


def _named(error: BaseException) -> str:
    """Say what failed in a few words: the text of an error may quote what was sent."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why: Any = getattr(error.certificate_error, "verify_message", "")
        return f"its certificate is not trusted{f' ({why})' if why else ''}"
    if isinstance(error, aiohttp.ClientSSLError):
        return "it does not speak TLS as we do"
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"it cannot be reached ({_cause(error.os_error)})"
    return type(error).__name__
