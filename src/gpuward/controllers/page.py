"""The operator's page: what it shows is made from the last passes, when somebody asks for it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from socket import gethostname
from typing import Final

import msgspec
from aiohttp import web

from gpuward.controllers.metrics import fails
from gpuward.controllers.operator import Operator
from gpuward.kube.lease.rules import process_name
from gpuward.model.actions import PatchNode
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.operands.decide import Reconciliation
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.report.page import Ended, Leading, RolloutHistory, page_document, waiting_document

PATH: Final = "/ui"
MOST_ENDED: Final = 50
"""Nodes whose end is remembered."""
SHORTEST: Final = 1.0
"""Seconds between two documents at least, however many browsers ask."""
SHARE: Final = 20.0
"""Seconds between two documents for each second that it took to make one: a large fleet costs 5 % of the processor at most."""

TIME: Final = "Gpuward-Time"
"""The time of the answer, by the API server's clock, in Unix seconds: no browser's clock need be right."""
SEEN_AT: Final = "Gpuward-Seen-At"
"""When the cluster was looked at."""
_HEADERS: Final = {
    "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
}


class Data(msgspec.Struct, frozen=True):
    """Hold one document as it is sent."""

    body: bytes
    zipped: bytes
    tag: str
    """The same for the same content, whenever and by whichever process it was made."""
    seen_at: float | None = None
    """When the cluster was looked at that it tells of, in Unix seconds."""


class Board:
    """Keep the last passes of a process that leads, and make the page's document of them when it is asked for."""

    def __init__(self, leading: Callable[[], Leading], now: Callable[[], float], namespace: str,
                 ticks: Callable[[], float] = time.monotonic) -> None:
        self._leading = leading
        self.now = now
        """The time by the API server's clock; `ticks` is what no clock that is set disturbs."""
        self._namespace = namespace
        self._ticks = ticks
        self.forget()

    def forget(self) -> None:
        """Let go of what is known: who leads has changed."""
        self._plan: Plan | None = None
        self._latest: tuple[float, Snapshot, PoliciesInForce] | None = None
        """The last look at the cluster, of the upgrade or of the operands, which look more often."""
        self._failing = 0.0
        """Since when no upgrade could be decided, by a bug; 0 while all is well."""
        self._held = ("", "")
        """Why nodes are not even upgraded to the driver that people ask for."""
        self._ended: deque[Ended] = deque(maxlen=MOST_ENDED)
        self._history = RolloutHistory(0.0)
        self._news = True
        self._data: Data | None = None
        self._not_before = 0.0

    def planned(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass of the upgrade. One that failed leaves what the last one decided."""
        self._news = True
        if seen.decision is None:
            self._failing = self._failing or seen.at
            return
        if self._plan is None:
            self._history = RolloutHistory(seen.at)
        self._plan, self._failing = seen.decision, 0.0
        self._latest = seen.at, seen.snapshot, seen.policies
        for outcome in seen.outcomes:
            if isinstance(outcome.action, PatchNode) and outcome.written:
                self._note(outcome.action, seen, seen.decision)

    def applied(self, seen: Pass[PoliciesInForce, Reconciliation]) -> None:
        """Take a pass over the ClusterPolicy."""
        self._news = True
        self._latest = seen.at, seen.snapshot, seen.policies
        self._held = seen.decision.held if seen.decision is not None else self._held

    def _note(self, patch: PatchNode, seen: Pass[PoliciesInForce, Plan], plan: Plan) -> None:
        name, failed = patch.node.name, fails(patch)
        status, node = plan.nodes.get(name), seen.snapshot.nodes.get(name)
        finished = State.DONE in patch.entered and status is not None and status.before in IN_PROGRESS
        if not failed and not finished:
            return
        started = node.record.started if node is not None and node.record is not None else 0.0
        self._ended.appendleft(Ended(name, seen.at, failed, max(0.0, seen.at - started) if started else None))
        counts = self._history
        self._history = RolloutHistory(counts.since, counts.finished + (not failed), counts.failed + failed)

    def data(self) -> Data:
        """Return the document, made anew if there is news, and not too often."""
        leading = self._leading()
        if self._plan is None or self._latest is None or not leading.leads:
            return _data(waiting_document(leading, self._namespace))
        now = self._ticks()
        if self._data is None or (self._news and now >= self._not_before):
            begun = time.thread_time()
            at, snapshot, policies = self._latest
            history = msgspec.structs.replace(self._history, last=tuple(self._ended), held=self._held)
            self._data = _data(page_document(self._plan, snapshot, policies, leading, history, self._failing), at)
            self._news, self._not_before = False, now + max(SHORTEST, SHARE * (time.thread_time() - begun))
        return self._data


def _data(told: Mapping[str, object], seen_at: float | None = None) -> Data:
    body = msgspec.json.encode(told)
    tag = hashlib.blake2b(body, digest_size=16).hexdigest()
    return Data(body, gzip.compress(body, compresslevel=3, mtime=0), f'"{tag}"', seen_at)


def board_of(operator: Operator, namespace: str, holder: Callable[[], str] = lambda: "", identity: str = "",
             ticks: Callable[[], float] = time.monotonic) -> Board:
    """Return a board that takes the passes of an operator; `holder` tells who holds the election's Lease, as far as is known, and
    `identity` is this process's there.
    """
    def leading() -> Leading:
        leads, here, held = operator.leads(), gethostname(), holder()
        return Leading(here, leads, here if leads else process_name(held), leads or (held == identity != ""))

    board = Board(leading, operator.clock.now, namespace, ticks)
    operator.upgrades.listeners.append(board.planned)
    operator.operands.listeners.append(board.applied)
    return board


def page_routes(board: Board) -> list[web.RouteDef]:
    """Return the routes of the page and its data, both to be read only."""
    page, policy = _page()

    async def show(_: web.Request) -> web.Response:
        headers = {**_HEADERS, "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy}
        return web.Response(body=page, headers=headers)

    async def tell(request: web.Request) -> web.Response:
        data = board.data()
        headers = {**_HEADERS, "ETag": data.tag, "Vary": "Accept-Encoding", TIME: f"{board.now():.3f}"}
        if data.seen_at is not None:
            headers[SEEN_AT] = f"{data.seen_at:.3f}"
        if request.headers.get("If-None-Match", "").removeprefix("W/") == data.tag:
            return web.Response(status=304, headers=headers)
        zips = "gzip" in request.headers.get("Accept-Encoding", "")
        headers |= {"Content-Type": "application/json", **({"Content-Encoding": "gzip"} if zips else {})}
        return web.Response(body=data.zipped if zips else data.body, headers=headers)

    return [web.get(PATH, show), web.get(f"{PATH}/", show), web.get(f"{PATH}/data.json", tell)]


def _page() -> tuple[bytes, str]:
    """Return the page, and the content security policy that lets its own script and style run and nothing else."""
    text = files("gpuward.controllers").joinpath("page.html").read_text(encoding="utf-8")
    hashes = {kind: _hash(re.findall(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL)) for kind in ("script", "style")}
    policy = (f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; connect-src 'self'; "
              "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
              "require-trusted-types-for 'script'; trusted-types 'none'")
    return text.encode(), policy


def _hash(parts: Sequence[str]) -> str:
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" for part in parts)
