"""Whether an operator acts: while it holds the Lease, so that no other one acts beside it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import structlog

from gpuward.errors import ApiError, GpuwardError
from gpuward.kube.config.access import Access
from gpuward.kube.http.aiohttp_transport import AiohttpTransport
from gpuward.kube.http.client import Client
from gpuward.kube.lease.election import Candidate, ElectionListeners
from gpuward.kube.lease.election_thread import ElectionThread
from gpuward.kube.lease.others import Holder


class Candidacy:
    """Say in the log how this operator stands to others, and tell it when that changes.

    One that does not elect is thought to be alone. It holds the Lease all the same, for others to see, waits while another
    operator renews it, and acts without it where the server does not let it be used.
    """

    def __init__(self, client: Client, candidate: Candidate, turned: Callable[[], None], *, elects: bool,
                 blind: Callable[[bool], None] = lambda is_blind: None) -> None:
        self._client = client
        self._candidate = candidate
        self._turned = turned
        self._blind = blind
        self._elects = elects
        self._is_first = True
        """Whether nobody can have acted since the cluster was listed."""
        self.failure: Callable[[], GpuwardError | None] = lambda: None
        """Return why the last attempt at the Lease failed; None where it did not."""
        self._log = structlog.get_logger(source="leaderelection")

    def elector(self, access: Access) -> ElectionThread:
        """Return what holds the Lease; it has a connection of its own."""
        elector = ElectionThread(lambda: AiohttpTransport(access), self._candidate, random=Random(), changed=self.changed,
                                 told=ElectionListeners(self._silent, self.blocked, self.refused, self._blind,
                                                        lambda date, asked: self._client.heard(date, asked)))
        self.failure = lambda: elector.failure
        return elector

    def acts(self, elector: ElectionThread) -> bool:
        """Tell whether to act now."""
        return elector.valid() or (elector.unusable and not self._elects)

    def changed(self, leading: bool) -> None:
        """Take it that the Lease is ours, or no longer."""
        lease, failure = self._lease(self._candidate.namespace), self.failure()
        if leading:
            self._log.info("Leading", lease=lease)
        elif failure is None:  # it is stopped, say
            self._log.info("No longer leading", lease=lease)
        else:
            self._log.warning("No longer leading: the Lease could not be renewed in time", lease=lease, error=str(failure))
        if self._elects or not self._is_first:
            self._turned()
        self._is_first = False

    def blocked(self, holder: Holder | None) -> None:
        """Take it that another operator runs, or none any more."""
        if holder is None:
            return
        self._is_first = False
        told = {"holder": holder.identity, "since": holder.since, "lease": self._lease(holder.namespace),
                "counts_unrenewed_for": f"{holder.lasts:g}s"}
        here = holder.namespace == self._candidate.namespace
        if here and self._elects:
            self._log.info("Standing by: another operator leads", **told)
            return
        fix = "stop one of the two: this one goes on by itself when the other is gone"
        if here:
            fix += "; replicas that are to take turns have --leader-elect"
        self._log.warning("Another operator runs: waiting until it is gone", **told, fix=fix)

    def refused(self, error: GpuwardError) -> None:
        """Take it that the Lease cannot be used."""
        lease = self._lease(self._candidate.namespace)
        if isinstance(error, ApiError) and error.is_of_a_missing_namespace:
            self._log.error("The namespace of the Lease does not exist: waiting for it", lease=lease,
                            fix="write --leader-elect-namespace or OPERATOR_NAMESPACE right, or make the namespace")
        elif self._elects:
            self._log.error("The Lease cannot be used: waiting for it", lease=lease, error=str(error))
        else:
            self._log.warning("The Lease cannot be used, so it is not known whether another operator runs: acting without it",
                              lease=lease, error=str(error))

    def _silent(self, since: float) -> None:
        if isinstance(self._client.transport, AiohttpTransport):
            self._client.transport.expire_watches(since)

    def _lease(self, namespace: str) -> str:
        return f"{namespace}/{self._candidate.lease}"
