"""Credential plugins: programs, named in a kubeconfig, that print a token or a client certificate.

The protocol is client.authentication.k8s.io/v1 and v1beta1
(https://kubernetes.io/docs/reference/config-api/client-authentication.v1/).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuward.errors import KubeconfigError, Unreachable
from gpuward.kube.config.credentials import Credential, bearer
from gpuward.kube.config.tls import Certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LEEWAY: Final = 10.0
"""Seconds before its expiry at which a credential is fetched anew."""


class PluginStatus(msgspec.Struct, rename="camel"):
    """Read the status of an ExecCredential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class ExecCredential(msgspec.Struct, rename="camel"):
    """Read what a plugin prints."""

    api_version: str = ""
    kind: str = ""
    status: PluginStatus | None = None


@dataclass(frozen=True, slots=True)
class Plugin:
    """Say which program gives the credential, as the kubeconfig's `exec` section does."""

    command: str
    api_version: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path = Path()
    """The kubeconfig's folder: a command with a slash in it is relative to this."""
    install_hint: str = ""
    interactive: bool = False
    cluster: Mapping[str, Any] | None = None
    """The cluster section that the plugin is told, when it asked for it."""
    origin: str = "exec"
    """Where the section stands, for messages."""

    def executable(self) -> str:
        """Return the program's path. Raises errors.KubeconfigError when there is none."""
        wanted = str(self.directory / self.command) if "/" in self.command else self.command
        found = shutil.which(wanted, path=self.environment.get("PATH", os.environ.get("PATH")))
        if found is None:
            hint = " ".join(self.install_hint.split()) or "install it, or put it on the PATH"
            raise KubeconfigError(f"{self.origin}: command {self.command!r} was not found: {hint}")
        return found

    def information(self) -> str:
        """Return the KUBERNETES_EXEC_INFO that the plugin is given."""
        spec: dict[str, Any] = {"interactive": self.interactive}
        if self.cluster is not None:
            spec["cluster"] = dict(self.cluster)
        return json.dumps({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})


class PluginCredentials:
    """Run a credential plugin, keep its answer until it expires, and run it again when the server refuses it."""

    def __init__(self, plugin: Plugin, *, now: Callable[[], float] = time.time, timeout: float = 60.0) -> None:
        """Take `now` in Unix seconds, to be compared with the expiry that the plugin prints; `timeout` in seconds."""
        self._plugin = plugin
        self._now = now
        self._timeout = timeout
        self._kept: Credential | None = None
        self._expiry: float | None = None
        self._turn = asyncio.Lock()

    async def current(self) -> Credential:
        """Return the kept credential, or run the plugin when it has expired."""
        async with self._turn:
            if self._kept is None or (self._expiry is not None and self._now() >= self._expiry - LEEWAY):
                return await self._run()
            return self._kept

    async def renew(self, refused: Credential) -> Credential | None:
        """Run the plugin, unless another request that was refused has done so already."""
        async with self._turn:
            fresh = self._kept if self._kept not in (None, refused) else await self._run()
            return fresh if fresh != refused else None

    def apart(self) -> PluginCredentials:
        """Return credentials that run the plugin for themselves: an asyncio.Lock serves one event loop only."""
        return PluginCredentials(self._plugin, now=self._now, timeout=self._timeout)

    async def _run(self) -> Credential:
        try:
            status = read_answer(await asyncio.to_thread(run, self._plugin, self._timeout), self._plugin)
        except KubeconfigError as error:
            if self._kept is None:
                raise
            raise Unreachable(f"the credential could not be renewed: {error}") from error
        certificate = None
        if status.client_certificate_data:
            certificate = Certificate(status.client_certificate_data.encode(), status.client_key_data.encode())
        self._kept = Credential(bearer(status.token), certificate)
        self._expiry = status.expiration_timestamp.timestamp() if status.expiration_timestamp else None
        return self._kept


def run(plugin: Plugin, timeout: float) -> bytes:
    """Run a plugin and return what it prints. Raises errors.KubeconfigError with its last words when it fails."""
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": plugin.information()}
    try:
        done = subprocess.run(
            [plugin.executable(), *plugin.arguments],
            env=environment,
            stdin=sys.stdin if plugin.interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if plugin.interactive else subprocess.PIPE,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KubeconfigError(f"{plugin.origin}: {plugin.command} did not end within {timeout:g} s: run it by hand") from None
    except OSError as error:
        raise KubeconfigError(f"{plugin.origin}: cannot run {plugin.command}: {error.strerror}") from error
    if done.returncode != 0:
        lines = (done.stderr or b"").decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise KubeconfigError(f"{plugin.origin}: {plugin.command} ended with {done.returncode}: {lines[-1]}")
    return done.stdout


def read_answer(printed: bytes, plugin: Plugin) -> PluginStatus:
    """Return the status that a plugin printed. Raises errors.KubeconfigError saying what is wrong with it."""
    try:
        answer = msgspec.json.decode(printed, type=ExecCredential)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{plugin.origin}: {plugin.command} printed no ExecCredential: {error}") from None
    if answer.kind != "ExecCredential" or answer.api_version != plugin.api_version:
        raise KubeconfigError(
            f"{plugin.origin}: {plugin.command} printed {answer.kind or 'no kind'} of {answer.api_version or 'no apiVersion'}"
            f" where the kubeconfig asks for ExecCredential of {plugin.api_version}: make both the same"
        )
    status = answer.status
    if status is None or not (status.token or (status.client_certificate_data and status.client_key_data)):
        raise KubeconfigError(f"{plugin.origin}: {plugin.command} printed neither a token nor a certificate with its key")
    return status
