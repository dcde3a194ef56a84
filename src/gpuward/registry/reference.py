"""Names of images, as container runtimes read them."""

from __future__ import annotations

from typing import Final, NamedTuple

HUB: Final = "docker.io"
HUB_HOST: Final = "registry-1.docker.io"
HUB_LOGINS: Final = ("docker.io", "index.docker.io", "registry-1.docker.io")
"""What pull secrets call the registry of images that name none."""


class Reference(NamedTuple):
    """Say where an image is."""

    host: str
    """The registry, with its port if it has one."""
    name: str
    tag: str
    """Or a digest."""

    @property
    def server(self) -> str:
        """Return the host that is asked."""
        return HUB_HOST if self.host == HUB else self.host

    @property
    def is_local(self) -> bool:
        """Tell whether it is a registry on this machine, which runtimes ask without TLS."""
        host = self.host.rpartition(":")[0] or self.host
        return host in ("localhost", "[::1]") or host.startswith("127.")

    @property
    def logins(self) -> tuple[str, ...]:
        """Return what pull secrets may call the registry."""
        return HUB_LOGINS if self.host == HUB else (self.host,)


def parse(image: str) -> Reference:
    """Read an image's name: the registry is its first part if that looks like a host."""
    first, slash, rest = image.partition("/")
    has_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    host, path = (first, rest) if has_host else (HUB, image)
    name, at, digest = path.partition("@")
    folder, _, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    name = f"{folder}/{last}" if folder else last
    if host == HUB and "/" not in name:
        name = f"library/{name}"
    return Reference(host, name, digest if at else tag or "latest")
