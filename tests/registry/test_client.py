"""What a real registry is asked, Debian's docker-registry, and what is made of its answers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpuward.ports import ImageFound, Login
from gpuward.registry.client import RegistryClient
from gpuward.registry.reference import Reference, parse

PROGRAM = "docker-registry"
OCI = "application/vnd.oci.image.manifest.v1+json"
TAG = "595.91.07-ubuntu22.04"
LOGIN = Login("robot", "hush-hush")


@pytest.fixture(autouse=True)
def program() -> None:
    """Do without the program on a machine that lacks it, but not where everything has to be tried."""
    if shutil.which(PROGRAM) is None:
        assert not os.environ.get("CI"), f"{PROGRAM} is not installed"
        pytest.skip(f"{PROGRAM} is not installed")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextlib.contextmanager
def registry(folder: Path, **auth: Any) -> Iterator[str]:
    """Run a registry for as long as the context lasts; yield its address."""
    address = f"127.0.0.1:{free_port()}"
    folder.mkdir(exist_ok=True)
    config = {"version": 0.1, "log": {"level": "error", "accesslog": {"disabled": True}}, **auth,
              "http": {"addr": address, "secret": "x"}, "storage": {"filesystem": {"rootdirectory": str(folder / "images")}}}
    (folder / "config.yml").write_text(json.dumps(config))
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen([PROGRAM, "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 1):
                break
            assert running.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield address
    finally:
        running.kill()
        running.wait()


def push(address: str, name: str = "nvidia/driver", tag: str = TAG) -> str:
    """Give a registry an image without anything in it; return its digest."""
    base, blob = f"http://{address}/v2/{name}", b"{}"
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    begun = urllib.request.urlopen(urllib.request.Request(f"{base}/blobs/uploads/", method="POST", data=b""))
    where = begun.headers["Location"]
    there = f"{where}{'&' if '?' in where else '?'}digest={digest}"
    upload = urllib.request.Request(there, method="PUT", data=blob, headers={"Content-Type": "application/octet-stream"})
    urllib.request.urlopen(upload)
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": len(blob)}
    manifest = json.dumps({"schemaVersion": 2, "mediaType": OCI, "config": config, "layers": []}).encode()
    put = urllib.request.Request(f"{base}/manifests/{tag}", method="PUT", data=manifest, headers={"Content-Type": OCI})
    return str(urllib.request.urlopen(put).headers["Docker-Content-Digest"])


def asked(image: str) -> ImageFound:
    return asyncio.run(RegistryClient().find(image, {}))


def test_an_image_that_is_there_is_found_by_tag_and_by_digest(tmp_path: Path) -> None:
    with registry(tmp_path / "r") as address:
        digest = push(address)
        assert asked(f"{address}/nvidia/driver:{TAG}") == ImageFound(True)
        assert asked(f"{address}/nvidia/driver@{digest}") == ImageFound(True)


def test_a_tag_that_is_not_there_is_missing_and_a_repository_that_may_be_hidden_is_not(tmp_path: Path) -> None:
    with registry(tmp_path / "r") as address:
        push(address)
        assert asked(f"{address}/nvidia/driver:595.91.7-ubuntu22.04") == ImageFound(
            False, f"{address} has no manifest 595.91.7-ubuntu22.04 of nvidia/driver")
        assert asked(f"{address}/nvidia/driver@sha256:{'0' * 64}").there is False


def test_where_nobody_answers_nothing_is_known() -> None:
    address = f"127.0.0.1:{free_port()}"
    found = asked(f"{address}/nvidia/driver:{TAG}")
    assert found.there is None
    assert found.why.startswith(address)
    assert asked(f"no-such-host.invalid/nvidia/driver:{TAG}").there is None


def test_a_server_that_speaks_no_tls_is_not_asked_without_it(tmp_path: Path) -> None:
    with registry(tmp_path / "r") as address:
        push(address)
        port = address.rpartition(":")[2]
        assert asked(f"{socket.gethostname()}.:{port}/nvidia/driver:{TAG}").there is None


@contextlib.asynccontextmanager
async def authority(seen: list[tuple[str, str, str]]) -> AsyncIterator[str]:
    """Serve tokens to whoever has the login, as a registry's authority does; note what is asked."""

    async def token(request: web.Request) -> web.Response:
        shown = request.headers.get("Authorization", "")
        seen.append((request.query.get("service", ""), request.query.get("scope", ""), shown))
        if shown != f"Basic {base64.b64encode(b'robot:hush-hush').decode()}":
            return web.Response(status=401)
        return web.json_response({"token": "granted"})

    app = web.Application()
    app.add_routes([web.get("/token", token)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("knows", [True, False])
def test_a_registry_that_wants_a_token_is_shown_one_that_the_login_gets(tmp_path: Path, knows: bool) -> None:
    async def story() -> tuple[ImageFound, ImageFound, str]:
        async with authority(seen) as realm:
            silly = {"auth": {"silly": {"realm": realm, "service": "the-registry"}}}
            with registry(tmp_path / "r", **silly) as address:
                logins = {address: LOGIN} if knows else {"nvcr.io": LOGIN}
                client = RegistryClient()
                there = await client.find(f"{address}/nvidia/driver:{TAG}", logins)
                missing = await client.find(f"{address}/nvidia/driver:1.2.3-ubuntu22.04", logins)
                return there, missing, address

    with registry(tmp_path / "r") as open_to_all:
        push(open_to_all)
    seen: list[tuple[str, str, str]] = []
    there, missing, address = asyncio.run(story())
    assert {one[:2] for one in seen} == {("the-registry", "repository:nvidia/driver:pull")}
    if knows:
        assert (there.there, missing.there) == (True, False)
        return
    assert (there.there, missing.there) == (None, None)
    assert there.why == f"{address} answered 401 UNAUTHORIZED"
    assert "hush" not in repr((there, missing, seen))


@pytest.mark.parametrize(("image", "wanted"), [
    ("nvcr.io/nvidia/driver:580-ubuntu22.04", Reference("nvcr.io", "nvidia/driver", "580-ubuntu22.04")),
    ("registry:5000/driver", Reference("registry:5000", "driver", "latest")),
    ("localhost/a/b@sha256:1f", Reference("localhost", "a/b", "sha256:1f")),
    ("busybox:1", Reference("docker.io", "library/busybox", "1")),
    ("nvidia/driver:1@sha256:1f", Reference("docker.io", "nvidia/driver", "sha256:1f")),
])
def test_names_are_read_as_runtimes_read_them(image: str, wanted: Reference) -> None:
    assert parse(image) == wanted
