"""The digest of the loaded driver, set aside while a module is unloaded: a process that is killed then may leave all of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from gpuward.agents.drivermanager.gather import DIGEST_FILE, MODULES, SAYS_READY
from gpuward.agents.host import Host, HostError

SET_ASIDE: Final = f"{DIGEST_FILE}.unloading"
"""In its first line the modules that were loaded, and after it the digest."""


def set_aside(host: Host) -> None:
    """Take away what says that a driver is there before a module of it goes. Raises HostError.

    Without one of its modules the driver that is left is none that may stay, though the next attempt may be to install what was
    there; and the kernel may go on with a module when we are killed.
    """
    loaded = [name for name in MODULES if name in host.modules()]
    if loaded and (digest := host.read(DIGEST_FILE)):
        with suppress(HostError):  # the disk is full: it is lost where we are killed, and that costs an installation alone
            host.write(SET_ASIDE, f"{' '.join(loaded)}\n{digest}\n")
    for stale in (DIGEST_FILE, *SAYS_READY):
        host.remove(stale)


def put_back(host: Host) -> None:
    """Put a digest back where all modules are there still, and none of them goes; else forget it. Raises HostError."""
    if not host.exists(SET_ASIDE):
        return
    modules, _, digest = (host.read(SET_ASIDE) or "").partition("\n")
    if digest and not host.exists(DIGEST_FILE) and all(_stays(host, each) for each in modules.split()):
        host.write(DIGEST_FILE, f"{digest}\n")
    host.remove(SET_ASIDE)


def forget(host: Host) -> None:
    """Forget the digest of a driver that is no longer whole: another driver manager that began meanwhile may have put it back.

    Raises:
        HostError: it cannot be removed.
    """
    for stale in (SET_ASIDE, DIGEST_FILE):
        host.remove(stale)


def _stays(host: Host, module: str) -> bool:
    return module in host.modules() and host.read(f"/sys/module/{module}/initstate") in (None, "live")
