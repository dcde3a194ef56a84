"""Pod logs: from a registered source, such as the operator's own log, or else from the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors
from kubesandbox.messages import Answer, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubesandbox.catalog import Target
    from kubesandbox.messages import Request
    from kubesandbox.store import Store

Object = dict[str, Any]
Source = Callable[[], str]
"""Returns a pod's whole log so far."""

FOLLOW_SECONDS: Final = 0.2
"""How often a followed source is looked at again."""
PLAIN: Final = "text/plain"


class PodLogs:
    """Answer requests for pod logs.

    `sources` has the log of single pods by (namespace, name); `otherwise` makes that of the rest from the pod and the
    container's name.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.sources: dict[tuple[str, str], Source] = {}
        self.otherwise: Callable[[Object, str], str] = _nothing
        self.previous: Callable[[Object, str], str] = _nothing
        """The same, of what a container wrote before it was started again."""

    def answer(self, target: Target, request: Request) -> Answer | Stream:
        """Return a log, or follow it; raise `errors.BadRequest` when the container is unclear or has not started."""
        pod = self._store.get("pods", target.namespace, target.name or "")
        container = _container(pod, request.query.get("container"))
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        source = self.sources.get(key)
        if source is None:
            earlier = _check_started(pod, container, previous=request.flag("previous"))
            source = partial(self.previous if earlier else self.otherwise, pod, container)
        shown = _tail(source(), request.seconds("tailLines"))
        if not request.flag("follow"):
            return Answer(200, shown.encode(), content_type=PLAIN)
        return Stream(lambda: self._follow(key, source, shown), lambda: None, PLAIN)

    async def _follow(self, key: tuple[str, str], source: Source, shown: str) -> AsyncIterator[bytes]:
        sent = len(source())
        if shown:
            yield shown.encode()
        while self._store.find("pods", *key) is not None:
            text = source()
            if len(text) > sent:
                yield text[sent:].encode()
                sent = len(text)
            await asyncio.sleep(FOLLOW_SECONDS)


def _nothing(pod: Object, container: str) -> str:
    del pod, container
    return ""


def _container(pod: Object, wanted: str | None) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    main = [one["name"] for one in spec["containers"]]
    every = [*main, *(one["name"] for one in spec.get("initContainers") or ())]
    if wanted:
        if wanted not in every:
            raise errors.BadRequest(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(main) > 1:
        raise errors.BadRequest(f"a container name must be specified for pod {name}, choose one of: [{' '.join(main)}]")
    return str(main[0])


def _check_started(pod: Object, container: str, *, previous: bool) -> bool:
    """Refuse the log of a container that has none; tell whether that of an earlier run than its last one is wanted.

    One that waits for its restart has that of its last run, as with a kubelet.
    """
    status = pod.get("status", {})
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    found: Object = next((one for one in every if one["name"] == container), {})
    ran_before = "terminated" in (found.get("lastState") or {})
    if previous and not ran_before:
        raise errors.BadRequest(f'previous terminated container "{container}" in pod "{pod["metadata"]["name"]}" not found')
    waiting = (found.get("state") or {}).get("waiting")
    if waiting is not None and not ran_before:
        raise errors.BadRequest(f'container "{container}" in pod "{pod["metadata"]["name"]}" is waiting to start: '
                                f"{waiting.get('reason', 'ContainerCreating')}")
    return previous and waiting is None


def _tail(text: str, lines: int | None) -> str:
    if lines is None:
        return text
    return "".join(text.splitlines(keepends=True)[-lines:]) if lines > 0 else ""
