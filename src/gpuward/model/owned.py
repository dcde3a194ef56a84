"""A slim projection of any object that the operator makes."""

from __future__ import annotations

import msgspec


class OwnedView(msgspec.Struct, frozen=True):
    """See of any object that the operator makes that it is there, and which version of it."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    generation: int = 0
    owner_uid: str = ""
    """The ClusterPolicy or NVIDIADriver that controls it; it may be gone. Empty for an object of somebody else's."""
    applied_hash: str = ""
    deleting: bool = False
