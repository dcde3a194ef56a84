"""The metrics of requests to the API server: what the client counts anyhow."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gpuward.controllers.metricnames import OWN, OWN_PREFIX
from gpuward.kube.http.stats import BOUNDS, RequestStats

NO_ANSWER = "none"


class RequestCollector(Collector):
    """Tell how many requests a client made, and how long they took."""

    def __init__(self, stats: RequestStats) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """Yield the counter and the histogram."""
        counted, timed = OWN["api_requests"], OWN["api_request_seconds"]
        requests = CounterMetricFamily(OWN_PREFIX + "api_requests", counted.means, labels=counted.labels)
        for key, number in self._stats.requests.items():
            requests.add_metric([key.verb, key.resource, str(key.status) if key.status else NO_ANSWER], number)
        yield requests
        seconds = HistogramMetricFamily(OWN_PREFIX + "api_request_seconds", timed.means, labels=timed.labels)
        bounds = [*map(str, BOUNDS), "+Inf"]
        for (verb, resource), durations in self._stats.durations.items():
            seconds.add_metric([verb, resource], [*zip(bounds, accumulate(durations.counts), strict=True)], durations.seconds)
        yield seconds
