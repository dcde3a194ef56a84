"""Ages as kubectl writes them: `45s`, `3m5s`, `7h20m`, `2d3h`."""

from __future__ import annotations

from datetime import datetime

UNKNOWN = "<unknown>"


def human(seconds: float) -> str:
    """Write a duration as Kubernetes' duration.HumanDuration does."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    minutes, hours = whole // 60, whole // 3600
    days = hours // 24
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def since(moment: str | None, now: float) -> str:
    """Write how long ago an RFC 3339 moment was; `now` is in unix seconds."""
    if not moment:
        return UNKNOWN
    try:
        return human(now - datetime.fromisoformat(moment).timestamp())
    except ValueError:
        return "<invalid>"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
