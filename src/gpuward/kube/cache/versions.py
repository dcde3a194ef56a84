"""Compare resource versions."""

from __future__ import annotations


def newer(version: str, than: str) -> bool | None:
    """Tell whether one resource version of a resource is newer than another, None when that cannot be told.

    Versions that are decimal numbers may be compared as such, all others only for equality
    (KEP-5504, comparable resource versions). An empty version is older than any.
    """
    if version == than:
        return False
    if not version or not than:
        return bool(version)
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return None
