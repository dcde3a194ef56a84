"""Where the API server is and how to be let in: kubeconfig files and the service account of a pod.

The order is that of NVIDIA's operator (controller-runtime): a file named on the command line, $KUBECONFIG, the pod's
service account, ~/.kube/config.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpuward.errors import KubeconfigError
from gpuward.kube.config.access import Access
from gpuward.kube.config.credentials import KeptCredentials
from gpuward.kube.config.files import InFile
from gpuward.kube.config.kubeconfig import Kubeconfig
from gpuward.kube.config.proxy import environment_proxy
from gpuward.kube.config.tls import Trust

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_access(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Find the API server to talk to, and the proxy in front of it: a kubeconfig's `proxy-url`, else the environment's.

    `kubeconfig` and `context` are what the command line said, if anything. Raises errors.KubeconfigError, one line
    with file, field and fix, when nothing usable is configured.
    """
    environ = os.environ if environ is None else environ
    access = _find(kubeconfig, context, environ, service_account)
    return access if access.proxy is not None else replace(access, proxy=environment_proxy(access.server, environ))


def _find(kubeconfig: str | None, context: str | None, environ: Mapping[str, str], service_account: Path) -> Access:
    if kubeconfig:
        return from_files([Path(kubeconfig)], context, skip_missing=False)
    listed = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    if listed:
        return from_files(listed, context, skip_missing=True)
    if context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ, service_account)
    home = environ.get("HOME") or os.path.expanduser("~")  # Path.expanduser raises for a user without a home
    default = Path(home) / ".kube" / "config"
    if not default.exists():
        raise KubeconfigError(
            f"no kubeconfig: KUBECONFIG is not set, {default} does not exist and this is not a pod:"
            " set KUBECONFIG or give --kubeconfig"
        )
    return from_files([default], context, skip_missing=False)


def from_files(paths: list[Path], context: str | None, *, skip_missing: bool) -> Access:
    """Read a context from kubeconfig files, merged as kubectl does. Raises errors.KubeconfigError."""
    access = Kubeconfig.load(paths, skip_missing=skip_missing).access(context)
    if access.server.startswith("https:"):  # a bad authority is to be told at the start, not at the first request
        access.trust.context(access.trust.read_authority(), None)
    return access


def in_cluster(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """Use the service account that Kubernetes mounts into a pod. Raises errors.KubeconfigError when it is not there."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubeconfigError("KUBERNETES_SERVICE_HOST is not set: this is not a pod")
    token = InFile(folder / "token", "service account token")
    trust = Trust(authority=InFile(folder / "ca.crt", "service account ca.crt"), field=str(folder / "ca.crt"))
    token.read()
    trust.context(trust.read_authority(), None)
    try:
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        namespace = ""
    bracketed = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{bracketed}:{port}",
        trust=trust,
        credentials=KeptCredentials(token=token),
        namespace=namespace or "default",
        origin="the pod's service account",
    )
