"""Read kubeconfig files: their types, how several merge, and what a context of theirs means.

Facts: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/ and, for merging,
https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files.
"""

from __future__ import annotations

import base64
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import quote

import msgspec
import yaml

from gpuward.errors import KubeconfigError
from gpuward.kube.config.access import Access, checked_server
from gpuward.kube.config.credentials import Credentials, KeptCredentials, bearer
from gpuward.kube.config.files import InFile, Inline, Source
from gpuward.kube.config.plugin import Plugin, PluginCredentials
from gpuward.kube.config.proxy import parse_proxy
from gpuward.kube.config.tls import Trust

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

T = TypeVar("T")

_HEADER_KEY: Final = "!#$&'*+^`|"
"""What may stand in a header's name, letters, digits and `-._~` aside; the rest of an extra's key is percent-encoded."""
PLUGIN_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class KubeconfigCluster(msgspec.Struct, rename="kebab"):
    """Read the `cluster` of a named cluster."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] = []


class Variable(msgspec.Struct):
    """Read one environment variable of a plugin."""

    name: str
    value: str = ""


class Exec(msgspec.Struct, rename="camel"):
    """Read the `exec` of a user."""

    command: str = ""
    api_version: str = ""
    args: list[str] = []
    env: list[Variable] = []
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"


class User(msgspec.Struct, rename="kebab"):
    """Read the `user` of a named user."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec_: Exec | None = msgspec.field(default=None, name="exec")
    auth_provider: dict[str, Any] | None = None
    as_: str = msgspec.field(default="", name="as")
    as_groups: list[str] = []
    as_uid: str = ""
    as_user_extra: dict[str, list[str]] = {}


class KubeconfigContext(msgspec.Struct):
    """Read the `context` of a named context."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(msgspec.Struct):
    """Read one entry of `clusters`."""

    name: str
    cluster: KubeconfigCluster


class NamedUser(msgspec.Struct):
    """Read one entry of `users`."""

    name: str
    user: User = msgspec.field(default_factory=User)


class NamedContext(msgspec.Struct):
    """Read one entry of `contexts`."""

    name: str
    context: KubeconfigContext


class File(msgspec.Struct, rename="kebab"):
    """Read one kubeconfig file."""

    clusters: list[NamedCluster] = []
    users: list[NamedUser] = []
    contexts: list[NamedContext] = []
    current_context: str = ""


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """Say in which file an entry stands, and under which name."""

    file: Path
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"

    def resolve(self, path: str) -> Path:
        """Return a path as the file means it: relative to its own folder."""
        return self.file.parent / path


class Kubeconfig:
    """Hold several kubeconfig files as one: of entries with the same name, and of the current context, the first counts."""

    def __init__(self) -> None:
        self.clusters: dict[str, tuple[EntryPlace, KubeconfigCluster]] = {}
        self.users: dict[str, tuple[EntryPlace, User]] = {}
        self.contexts: dict[str, tuple[EntryPlace, KubeconfigContext]] = {}
        self.current = ""
        self.files: list[Path] = []

    @classmethod
    def load(cls, paths: Iterable[Path], *, skip_missing: bool) -> Kubeconfig:
        """Read files and merge them. Raises errors.KubeconfigError naming the file, and the field, that is wrong.

        `skip_missing` passes over files that do not exist, as kubectl does for those in $KUBECONFIG.
        """
        merged = cls()
        wanted = list(paths)
        for path in wanted:
            if not (skip_missing and not path.exists()):
                merged._add(path.absolute(), read_file(path))
        if not merged.files:
            names = ", ".join(map(str, wanted))
            raise KubeconfigError(f"{names}: no such file: KUBECONFIG must name an existing kubeconfig")
        return merged

    def _add(self, path: Path, file: File) -> None:
        self.files.append(path)
        self.current = self.current or file.current_context
        for cluster in file.clusters:
            self.clusters.setdefault(cluster.name, (EntryPlace(path, f"cluster {cluster.name!r}"), cluster.cluster))
        for user in file.users:
            self.users.setdefault(user.name, (EntryPlace(path, f"user {user.name!r}"), user.user))
        for context in file.contexts:
            self.contexts.setdefault(context.name, (EntryPlace(path, f"context {context.name!r}"), context.context))

    def access(self, context: str | None = None) -> Access:
        """Return what a context, or the current one, stands for. Raises errors.KubeconfigError."""
        files = ", ".join(map(str, self.files))
        name = context or self.current
        if not name:
            raise KubeconfigError(f"{files}: current-context is not set: run `kubectl config use-context NAME`")
        place, chosen = _entry(self.contexts, name, "context", files)
        at, cluster = _entry(self.clusters, chosen.cluster, "cluster", str(place))
        user_at, user = EntryPlace(place.file, "no user"), User()
        if chosen.user:
            user_at, user = _entry(self.users, chosen.user, "user", str(place))
        return Access(
            server=checked_server(cluster.server, str(at)),
            trust=_trust(at, cluster),
            credentials=_credentials(user_at, user, at, cluster),
            namespace=chosen.namespace or "default",
            origin=str(place),
            proxy=parse_proxy(cluster.proxy_url, f"{at}: proxy-url") if cluster.proxy_url else None,
            impersonation=_impersonation(user_at, user),
        )


def read_file(path: Path) -> File:
    """Read one kubeconfig file. Raises errors.KubeconfigError naming the file and what is wrong in it."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot be read: {error.strerror or error}: name a kubeconfig that exists") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        raise KubeconfigError(f"{path}: not valid YAML{line} ({problem}): correct it, or name another file") from None
    except RecursionError:
        raise KubeconfigError(f"{path}: not a kubeconfig: it is nested too deeply: correct it, or name another file") from None
    try:
        return msgspec.convert(_without_nulls(data) or {}, File)
    except RecursionError:  # an alias may be within what it stands for
        raise KubeconfigError(f"{path}: not a kubeconfig: it is within itself: correct it, or name another file") from None
    except msgspec.ValidationError as error:
        fix = "correct that field" if "`$" in str(error) else "name another file"
        raise KubeconfigError(f"{path}: not a kubeconfig: {error}: {fix}") from None


def _without_nulls(data: object) -> object:
    if isinstance(data, dict):
        return {key: _without_nulls(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [_without_nulls(value) for value in data]
    return data


def _entry(entries: dict[str, tuple[EntryPlace, T]], name: str, kind: str, where: str) -> tuple[EntryPlace, T]:
    try:
        return entries[name]
    except KeyError:
        known = ", ".join(sorted(entries)) or "none"
        raise KubeconfigError(f"{where}: {kind} {name!r} does not exist: use one of: {known}") from None


def _source(place: EntryPlace, name: str, path: str, data: str) -> Source | None:
    """Return where a value is: inline data count more than a file, as for kubectl."""
    if data:
        return Inline.from_base64(data, f"{place}: {name}-data")
    return InFile(place.resolve(path), f"{place}: {name}") if path else None


def _trust(place: EntryPlace, cluster: KubeconfigCluster) -> Trust:
    return Trust(
        authority=_source(place, "certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        field=f"{place}: certificate-authority{'-data' if cluster.certificate_authority_data else ''}",
    )


def _credentials(place: EntryPlace, user: User, cluster_at: EntryPlace, cluster: KubeconfigCluster) -> Credentials:
    if user.auth_provider is not None:
        raise KubeconfigError(f"{place}: auth-provider was removed from Kubernetes in 1.26: use an exec plugin instead")
    chain = _source(place, "client-certificate", user.client_certificate, user.client_certificate_data)
    key = _source(place, "client-key", user.client_key, user.client_key_data)
    if (chain is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise KubeconfigError(f"{place}: {missing} is missing: a client certificate and its key go together")
    if user.exec_ is not None and not (user.token or user.token_file or user.username or chain):
        return PluginCredentials(_plugin(place, user.exec_, cluster_at, cluster))
    token = InFile(place.resolve(user.token_file), f"{place}: tokenFile") if user.token_file else None
    return KeptCredentials(authorization=_authorization(user), token=token, chain=chain, key=key)


def _authorization(user: User) -> str:
    if user.token:
        return bearer(user.token)
    if user.username:
        return "Basic " + base64.b64encode(f"{user.username}:{user.password}".encode()).decode("ascii")
    return ""


def _impersonation(place: EntryPlace, user: User) -> tuple[tuple[str, str], ...]:
    """Return the headers that client-go sends for a user who acts as another one."""
    extra = [(f"Impersonate-Extra-{quote(key, safe=_HEADER_KEY)}", value)
             for key, values in user.as_user_extra.items() for value in values]
    headers = [("Impersonate-Uid", user.as_uid), *(("Impersonate-Group", group) for group in user.as_groups), *extra]
    if not user.as_:
        if user.as_uid or user.as_groups or extra:
            raise KubeconfigError(f"{place}: as is missing: as-uid, as-groups and as-user-extra are about the user that it names")
        return ()
    headers = [("Impersonate-User", user.as_), *(header for header in headers if header != ("Impersonate-Uid", ""))]
    for name, value in headers:
        if not value.isprintable():
            raise KubeconfigError(f"{place}: {value!r} cannot be sent as {name}: write one line without control characters")
    return tuple(headers)


def _plugin(place: EntryPlace, section: Exec, cluster_at: EntryPlace, cluster: KubeconfigCluster) -> Plugin:
    where = f"{place}: exec"
    if not section.command:
        raise KubeconfigError(f"{where}: command is missing: name the program that prints the credential")
    if section.api_version not in PLUGIN_VERSIONS:
        raise KubeconfigError(
            f"{where}: apiVersion {section.api_version!r} is not supported: use {' or '.join(PLUGIN_VERSIONS)}"
        )
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if section.interactive_mode == "Always" and not terminal:
        raise KubeconfigError(f"{where}: interactiveMode Always needs a terminal: run in one, or use another user")
    return Plugin(
        command=section.command,
        api_version=section.api_version,
        arguments=tuple(section.args),
        environment={variable.name: variable.value for variable in section.env},
        directory=place.file.parent,
        install_hint=section.install_hint,
        interactive=terminal and section.interactive_mode != "Never",
        cluster=_told(cluster_at, cluster) if section.provide_cluster_info else None,
        origin=where,
    )


def _told(place: EntryPlace, cluster: KubeconfigCluster) -> dict[str, Any]:
    """Return what a plugin with provideClusterInfo is told of the cluster."""
    authority = _source(place, "certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data)
    told: dict[str, Any] = {"server": cluster.server}
    if cluster.proxy_url:
        told["proxy-url"] = cluster.proxy_url
    if cluster.tls_server_name:
        told["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure_skip_tls_verify:
        told["insecure-skip-tls-verify"] = True
    if authority is not None:
        told["certificate-authority-data"] = base64.b64encode(authority.read()).decode("ascii")
    for extension in cluster.extensions:
        if extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told
