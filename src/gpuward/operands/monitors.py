"""ServiceMonitors: how the Prometheus operator is told to scrape an operand."""

from __future__ import annotations

from gpuward.crd.shapes import ServiceMonitor
from gpuward.operands.objects import Json
from gpuward.operands.state import ObjectRef

VERSION = "monitoring.coreos.com/v1"


def ref(namespace: str, name: str) -> ObjectRef:
    """Return the reference of a ServiceMonitor."""
    return ObjectRef(VERSION, "ServiceMonitor", namespace, name)


def edited(monitor: Json, wanted: ServiceMonitor) -> Json:
    """Return the monitor with the policy's labels, and its timing and relabelling for the first endpoint."""
    endpoint, *others = monitor["spec"]["endpoints"]
    edits = {
        "interval": wanted.interval,
        "scrapeTimeout": wanted.scrape_timeout,
        "honorLabels": bool(wanted.honor_labels),
        "relabelings": [dict(relabeling) for relabeling in wanted.relabelings],
    }
    endpoint = {**endpoint, **{field: value for field, value in edits.items() if value}}
    meta = monitor["metadata"]
    return {
        **monitor,
        "metadata": {**meta, "labels": {**meta["labels"], **wanted.additional_labels}},
        "spec": {**monitor["spec"], "endpoints": [endpoint, *others]},
    }
