"""Listen as Go's net.Listen does, which is how operands of NVIDIA's are reached."""

from __future__ import annotations

import errno
import socket
from typing import Final

NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""What a kernel answers whose IPv6 is switched off."""


def on_all_addresses(port: int) -> socket.socket:
    """Return a socket that is bound on all addresses, of both families where there are two. Raises OSError."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in NO_IPV6:
                raise
    return socket.create_server(("", port))
