"""The proxy in front of an API server: the `proxy-url` of a kubeconfig, or what the environment says.

The rules of the environment are those of client-go, which are Go's (https://pkg.go.dev/golang.org/x/net/http/httpproxy).
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from gpuward.errors import KubeconfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORTS: Final = {"http": 80, "https": 443}
_WITH_PORT: Final = re.compile(r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<plain>[^:\[\]]*)):(?P<port>[^:]*)")
_FIX: Final = "name an HTTP proxy, such as http://proxy.example:3128"


@dataclass(frozen=True, slots=True)
class Proxy:
    """Hold the URL of an HTTP proxy, and the header that lets us in."""

    url: str
    """Without name and password."""
    authorization: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """Return what the proxy alone is sent."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}


def parse_proxy(text: str, origin: str) -> Proxy:
    """Return the proxy that a URL names. Raises errors.KubeconfigError, without what may be a password in the URL."""
    try:
        split = urlsplit(text)
        host, port = split.hostname, split.port
    except ValueError:
        raise KubeconfigError(f"{origin}: not a URL: {_FIX}") from None
    if split.scheme not in _PORTS:
        raise KubeconfigError(f"{origin}: proxies of the kind {split.scheme!r} are not supported: {_FIX}")
    if not host:
        raise KubeconfigError(f"{origin}: no host in it: {_FIX}")
    bracketed = f"[{host}]" if ":" in host else host
    url = f"{split.scheme}://{bracketed}:{port or _PORTS[split.scheme]}"
    who = f"{unquote(split.username or '')}:{unquote(split.password or '')}"
    return Proxy(url, "Basic " + b64encode(who.encode()).decode("ascii") if "@" in split.netloc else "")


def environment_proxy(server: str, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that HTTPS_PROXY or HTTP_PROXY name for a server, None where there is none or NO_PROXY exempts it.

    Raises:
        KubeconfigError: the variable names a proxy that cannot be used.
    """
    split = urlsplit(server)
    name = f"{split.scheme.upper()}_PROXY"
    text = _variable(environ, name)
    if not text or _exempt(split.hostname or "", split.port or _PORTS[split.scheme], _variable(environ, "NO_PROXY")):
        return None
    return parse_proxy(text if "://" in text else f"http://{text}", name)


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _exempt(host: str, port: int, exempted: str) -> bool:
    """Tell whether a server is to be reached without a proxy: NO_PROXY says so, or it is on this machine."""
    host = _ascii(host)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry.strip().lower() for entry in exempted.split(",")]
    return "*" in entries or any(_matches(entry, host, address, str(port)) for entry in entries if entry)


def _matches(entry: str, host: str, address: IPv4Address | IPv6Address | None, port: str) -> bool:
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    split = _WITH_PORT.fullmatch(entry)
    name = (split["bracketed"] or split["plain"] or "") if split else entry
    if not name or (split and split["port"] not in ("", port)):
        return False
    exempted = _address(name)
    if exempted is not None:
        return exempted == address
    name = _ascii(name.removeprefix("*") if name.startswith("*.") else name)
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _ascii(host: str) -> str:
    """Return a host's name as DNS has it."""
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return host
