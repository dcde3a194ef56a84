"""Durations as people read them."""

from __future__ import annotations


def age(seconds: float) -> str:
    """Return a duration as kubectl shows ages: 12s, 3m5s, 2h10m, 4d."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60}s"
    if whole < 172800:
        return f"{whole // 3600}h{whole % 3600 // 60}m"
    return f"{whole // 86400}d"
