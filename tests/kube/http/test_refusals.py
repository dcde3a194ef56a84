"""Which exception each refusal becomes, and what it keeps of the answer."""

from __future__ import annotations

import asyncio

import pytest

from gpuward import errors
from gpuward.kube.http.client import Client
from gpuward.kube.http.refusals import refusal, watch_error
from gpuward.kube.http.transport import Response
from gpuward.kube.resources import NODES
from tests.kube.scripted import ScriptedTransport, refused

DATE = "Sun, 22 Nov 2026 10:00:07 GMT"


@pytest.mark.parametrize(("status", "reason", "kind"), [
    (400, "BadRequest", errors.BadRequest),
    (401, "Unauthorized", errors.Unauthorized),
    (403, "Forbidden", errors.Forbidden),
    (404, "NotFound", errors.NotFound),
    (405, "MethodNotAllowed", errors.MethodNotAllowed),
    (409, "Conflict", errors.Conflict),
    (409, "AlreadyExists", errors.AlreadyExists),
    (410, "Expired", errors.Gone),
    (413, "RequestEntityTooLarge", errors.ApiError),
    (415, "UnsupportedMediaType", errors.UnsupportedMediaType),
    (422, "Invalid", errors.Invalid),
    (429, "TooManyRequests", errors.TooManyRequests),
    (500, "InternalError", errors.ServerError),
    (503, "ServiceUnavailable", errors.ServerError),
    (504, "Timeout", errors.ServerError),
])
def test_each_refusal_has_its_exception(status: int, reason: str, kind: type[errors.ApiError]) -> None:
    causes = [{"field": "spec.x", "message": "bad"}]
    client = Client(ScriptedTransport(lambda asked: refused(status, reason, "not so", causes=causes)))
    with pytest.raises(errors.ApiError, match="not so") as caught:
        asyncio.run(client.get(NODES, "n1"))
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert caught.value.details == {"causes": causes}


@pytest.mark.parametrize(("body", "headers", "message", "seconds"), [
    (b'{"kind":"Status","message":"slow","details":{"retryAfterSeconds":7}}', {"Retry-After": "1"}, "slow", 7.0),
    (b"<html>\n  Bad  Gateway</html>", {"retry-after": "3"}, "<html> Bad Gateway</html>", 3.0),
    (b'{"code": "x"}', {}, '{"code": "x"}', None),
    (b'{"items": []}', {}, '{"items": []}', None),
    (b"", {"Retry-After": "soon"}, "HTTP status 429 without a message", None),
    (b"", {"Retry-After": "9" * 5000}, "HTTP status 429 without a message", 30.0),
    (b"", {"Retry-After": "\u0663"}, "HTTP status 429 without a message", None),
    (b"", {"Retry-After": "-5"}, "HTTP status 429 without a message", None),
    (b"", {"Retry-After": "3600"}, "HTTP status 429 without a message", 30.0),
    (b"", {"Retry-After": DATE, "Date": "Sun, 22 Nov 2026 10:00:00 GMT"}, "HTTP status 429 without a message", 7.0),
    (b"", {"Retry-After": DATE, "Date": "Sun, 22 Nov 2026 09:00:00 GMT"}, "HTTP status 429 without a message", 30.0),
    (b"", {"Retry-After": DATE, "Date": "Sun, 22 Nov 2026 11:00:00 GMT"}, "HTTP status 429 without a message", None),
    (b"", {"Retry-After": DATE}, "HTTP status 429 without a message", None),
    (b"", {"Retry-After": "Sun, 99 Nov 2026 10:00:00 GMT", "Date": DATE}, "HTTP status 429 without a message", None),
    (b'{"kind":"Status","details":' + b'{"x":' * 5000 + b"1" + b"}" * 5001, {},
     ('{"kind":"Status","details":' + '{"x":' * 5000)[:256], None),
    (b"\xff" + b"x" * 9999, {}, "\ufffd" + "x" * 255, None),
])
def test_a_refusal_in_any_words(body: bytes, headers: dict[str, str], message: str, seconds: float | None) -> None:
    client = Client(ScriptedTransport(lambda asked: Response(429, headers, body)))
    with pytest.raises(errors.TooManyRequests) as caught:
        asyncio.run(client.evict("p", "ns"))
    assert caught.value.message == message
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(("body", "kind", "status"), [
    (b'{"kind":"Status","code":410,"reason":"Expired"}', errors.Gone, 410),
    (b'{"kind":"Status","message":"no code"}', errors.ServerError, 500),
    (b"[]", errors.ServerError, 500),
])
def test_the_error_of_a_watch(body: bytes, kind: type[errors.ApiError], status: int) -> None:
    error = watch_error(body)
    assert type(error) is kind
    assert error.status == status
    assert error.message


@pytest.mark.parametrize(("location", "message"), [
    ({}, "HTTP status 302 without a message"),
    ({"location": "https://login.example.com/start?ticket=s3cret"},
     "HTTP status 302 without a message, sent on to login.example.com"),
    ({"Location": "http://[broken"}, "HTTP status 302 without a message"), ({"Location": "/login"},
     "HTTP status 302 without a message")])
def test_an_answer_that_sends_elsewhere_says_so_and_no_secret(location: dict[str, str], message: str) -> None:
    """Such as of a proxy that wants a login, in front of the API server."""
    assert str(refusal(Response(302, location, b""))) == message
