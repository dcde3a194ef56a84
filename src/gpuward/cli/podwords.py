"""What the containers say in which a node's pods are stuck: how they ended last, and the last lines of their logs.

They are read with the rights of whoever asks; the operator itself reads no logs, and has no right to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.cli.events import ToldEvent, said_in
from gpuward.errors import ApiError, BadRequest, Forbidden, Unreachable
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.model.driver import is_driver_pod
from gpuward.model.snapshot import Snapshot
from gpuward.model.stuck import stuck_pod
from gpuward.model.troubles import trouble_of
from gpuward.model.views import PodView

MOST_PODS: Final = 2
LAST_LINES: Final = 5
MOST_BYTES: Final = 32 * 1024
LONGEST_MESSAGE: Final = 1000
"""Characters of a termination message; a kubelet keeps 4096 bytes."""
_WAITED_FOR: Final = (names.VALIDATOR_APP, names.TOOLKIT_APP)
"""Apps for which others wait."""
_STAMP: Final = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) ?")
"""The time that a kubelet puts before each line."""
PATIENCE: Final = 5.0
"""Seconds until a kubelet that does not hand out a log is left alone."""


class PodWords(msgspec.Struct, frozen=True, rename="camel"):
    """Hold what is known of the container in which a pod is stuck."""

    pod: str
    container: str
    """Such as `init container k8s-driver-manager (1 of 1)`; empty where its kubelet has evicted or refused the whole pod."""
    why: str
    """Such as `CrashLoopBackOff, 5 restarts`."""
    message: str = ""
    """What it left when it ended last, or what the kubelet says of why it waits."""
    log: tuple[str, ...] = ()
    unread: str = ""
    """Why its log could not be read."""


async def words_of(client: Client, snapshot: Snapshot, node: str) -> tuple[PodWords, ...]:
    """Return what the stuck pods of a node say: its driver pod before all others, which need the driver."""
    pods = _stuck(snapshot, node)[:MOST_PODS]
    return tuple(await asyncio.gather(*(_words(client, pod) for pod in pods)))


def _stuck(snapshot: Snapshot, node: str) -> Sequence[PodView]:
    """Return the pods in the order in which they are worth a look. All others wait for the driver, most for the toolkit."""
    ours = [pod for pod in snapshot.pods.get(node, ()) if pod.namespace == snapshot.namespace
            and (pod.progress is not None or pod.turned_away) and not pod.ready and not pod.deleting]
    drivers = [pod for pod in ours if is_driver_pod(pod, snapshot.namespace)]
    return drivers or sorted(ours, key=_rank)


def _rank(pod: PodView) -> tuple[bool, bool, bool, str]:
    silent = pod.progress is not None and pod.progress.reason in ("PodInitializing", "ContainerCreating")
    return silent, trouble_of(pod) is None, pod.labels.get("app") not in _WAITED_FOR, pod.name


async def _words(client: Client, pod: PodView) -> PodWords:
    stuck = stuck_pod([pod])
    assert stuck is not None
    found = PodWords(pod.name, stuck.container, stuck.why)
    container = pod.progress.name if pod.progress is not None and not pod.turned_away else ""
    try:
        async with asyncio.timeout(PATIENCE):
            message = await _message(client, pod, container) or await _last_warning(client, pod)
            found = msgspec.structs.replace(found, message=message)
            log = await _log(client, pod, container) if container else ()
    except Forbidden:
        return msgspec.structs.replace(found, unread="you may not read it (the right to get pods/log is missing)")
    except BadRequest:  # it has not been started yet
        return found
    except (ApiError, Unreachable) as error:
        return msgspec.structs.replace(found, unread=str(error))
    except TimeoutError:
        return msgspec.structs.replace(found, unread=f"there was no answer for {PATIENCE:.0f} s")
    return msgspec.structs.replace(found, log=log)


async def _message(client: Client, pod: PodView, container: str) -> str:
    """Return what a container left when it ended last; of one that never ran, why it waits; without one why its pod was ended."""
    try:
        body = (await client.get(resources.PODS, pod.name, pod.namespace)).object()
    except ApiError:
        return ""
    every = body.get("status") or {}
    if not container:
        return str(every.get("message") or "").strip()[-LONGEST_MESSAGE:]
    statuses: list[Mapping[str, Any]] = [*(every.get("initContainerStatuses") or ()), *(every.get("containerStatuses") or ())]
    status = next((one for one in statuses if one.get("name") == container), {})
    state, last = status.get("state") or {}, status.get("lastState") or {}
    told = state.get("terminated") or last.get("terminated") or state.get("waiting") or {}
    return str(told.get("message") or "").strip()[-LONGEST_MESSAGE:]


async def _last_warning(client: Client, pod: PodView) -> str:
    """Return what was said last against a pod of which no container has begun, such as that a volume is missing."""
    if pod.begun:
        return ""
    chosen = f"involvedObject.name={pod.name},type=Warning"
    said = await said_in(client, Selection(resources.EVENTS, namespace=pod.namespace, fields=chosen))
    return max(said, default=ToldEvent(0.0, "", "")).message[-LONGEST_MESSAGE:]


async def _log(client: Client, pod: PodView, container: str) -> tuple[str, ...]:
    """Return the last lines of a container's log; of one that has just begun anew, those of the run before."""
    assert pod.progress is not None
    for previous in (False, True) if pod.progress.restarts else (False,):
        read = await client.logs(pod.name, pod.namespace, container, lines=LAST_LINES, most=MOST_BYTES, previous=previous)
        lines = (_STAMP.sub("", line).rstrip() for line in read.decode("utf-8", "replace").splitlines())
        if written := [line for line in lines if line]:
            return tuple(written[-LAST_LINES:])
    return ()
