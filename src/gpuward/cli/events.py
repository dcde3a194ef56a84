"""What was said in events: more than the objects show."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from gpuward.errors import ApiError, Forbidden, Unreachable
from gpuward.kube.http.client import Client, Selection

UNREAD: Final = "its events would say why, and who looks may not list them"
_BEFORE: Final = re.compile(r'^(\(combined from similar events\): )?(Error creating: )?(pods "[^"]*" is forbidden: )?')
"""What controllers put before the reason in the events of pods that they could not make; the pod named has never been."""


class ToldEvent(NamedTuple):
    """Hold an event: when it was said last, in Unix seconds, what, and the name of the object that it is about."""

    at: float
    message: str
    about: str


async def said_in(client: Client, selection: Selection) -> list[ToldEvent]:
    """Return events; nothing where they may not be read."""
    return await said_or_unread(client, selection) or []


async def said_or_unread(client: Client, selection: Selection) -> list[ToldEvent] | None:
    """Return events; nothing where they cannot be read, and None where that takes further rights."""
    said: list[ToldEvent] = []
    try:
        async for raw in client.list(selection):
            event = msgspec.json.decode(raw)
            at = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
            about = str((event.get("involvedObject") or {}).get("name") or "")
            said.append(ToldEvent(datetime.fromisoformat(at).timestamp(), str(event.get("message") or ""), about))
    except Forbidden:
        return None
    except (ApiError, Unreachable):
        return []
    return said


def why_refused(message: str) -> str:
    """Return why a pod could not be made: the reason alone, as lines of a table end early."""
    return _BEFORE.sub("", message) or message
