"""State `state-operator-metrics`: the Service in front of the operator's own metrics."""

from __future__ import annotations

from gpuward import names
from gpuward.operands import monitors
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, metadata, service, service_monitor, service_port
from gpuward.operands.state import ObjectRef

NAME = "state-operator-metrics"
PORT = 8080
PORT_NAME = "gpu-operator-metrics"


def enabled(_ctx: Context) -> bool:
    """Tell whether the operator serves metrics: always."""
    return True


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return (
        ObjectRef("v1", "Service", ctx.namespace, names.OPERATOR_NAME),
        monitors.ref(ctx.namespace, names.OPERATOR_NAME),
    )


def objects(ctx: Context) -> list[Json]:
    """Return the Service, and a ServiceMonitor where the cluster knows the kind.

    `operator.metrics.serviceMonitor` edits the monitor and cannot turn it off, as in NVIDIA's operator.
    """
    meta = metadata(names.OPERATOR_NAME, ctx.namespace, {"app": names.OPERATOR_NAME}, {"prometheus.io/scrape": "true"})
    made = [service(meta, service_port(PORT_NAME, PORT))]
    if ctx.facts.has_service_monitor_crd:
        monitor = service_monitor(ctx.namespace, names.OPERATOR_NAME, PORT_NAME, "operator")
        made.append(monitors.edited(monitor, ctx.spec.operator.metrics.service_monitor))
    return made
