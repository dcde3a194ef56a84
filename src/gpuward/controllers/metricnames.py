"""The names, labels and meanings of all metrics, each once: what is exported, and what docs/metrics.md tells."""

from __future__ import annotations

from typing import Final, NamedTuple

PREFIX: Final = "gpu_operator_"
OWN_PREFIX: Final = "gpuward_"
"""Of metrics that NVIDIA's operator does not have."""
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Help(NamedTuple):
    """Say what a metric is."""

    kind: str
    means: str
    labels: tuple[str, ...] = ()


FLEET: Final = {
    "driver_auto_upgrade_enabled": "Whether automatic driver upgrades are on",
    "auto_upgrade_enabled": "The same, under the name in NVIDIA's documentation",
    "nodes_upgrades_in_progress": "Nodes whose driver is being upgraded",
    "nodes_upgrades_done": "Nodes whose driver is up to date",
    "nodes_upgrades_failed": "Nodes whose driver upgrade failed",
    "nodes_upgrades_available": "Upgrades that could start now",
    "nodes_upgrades_pending": "Nodes that wait for their upgrade to start",
    "gpu_nodes_total": "Nodes with GPUs",
    "reconciliation_has_nfd_labels": "Whether node feature discovery labelled nodes",
    "reconciliation_status": "1: all is well, 0: operands are not ready, -1: no usable policy",
    "reconciliation_last_success_ts_seconds": "When all was well last, Unix seconds",
}
"""NVIDIA's gauges of the fleet, without their prefix."""
COUNTED: Final = {
    "reconciliation": "Passes over the ClusterPolicy",
    "reconciliation_failed": "Passes that failed: the policy cannot be followed, a write was refused, or a bug; waiting is none",
}
"""NVIDIA's counters, without prefix and `_total`."""
OWN_FLEET: Final = {
    "nodes_by_state": Help(GAUGE, "Managed nodes by the state label of their upgrade; `none` without one, `unknown` for a value "
                           "that is not NVIDIA's", ("state",)),
    "nodes_by_group": Help(GAUGE, "Managed nodes by the groups of `gpuward status`; they add up to all", ("group",)),
    "driver_upgrade_held_nodes": Help(GAUGE, "Nodes whose driver upgrade waits, by the reason", ("reason",)),
    "driver_upgrade_held_since_timestamp_seconds": Help(
        GAUGE, "Since when the node that has waited longest for a reason has waited for it, as this leader has seen it, Unix "
        "seconds; absent while no node does", ("reason",)),
    "driver_upgrade_finish_timestamp_seconds": Help(
        GAUGE, "When the rollout will be done, by how long nodes took, as `gpuward status` says it, Unix seconds; absent while "
        "that is not known, and while no rollout goes on"),
    "policies_not_followed": Help(GAUGE, "Policies that cannot be followed as people wrote them, by their kind", ("kind",)),
    "operand_pods_desired": Help(GAUGE, "Pods that an operand should have", ("operand",)),
    "operand_pods_ready": Help(GAUGE, "Pods of an operand that are ready", ("operand",)),
    "operand_troubled": Help(GAUGE, "Whether an operand is not ready for more than nodes that are upgraded now", ("operand",)),
}
"""Our gauges of the fleet, without their prefix."""
OWN: Final = {
    "driver_upgrade_failures": Help(COUNTER, "Driver upgrades of nodes that failed"),
    "driver_upgrade_state_seconds": Help(HISTOGRAM, "How long nodes were in a state of their upgrade, when they left it",
                                         ("state",)),
    "evictions": Help(COUNTER, "Evictions that were asked for, by whether the API server granted them", ("result",)),
    "pass_seconds": Help(HISTOGRAM, "How long the passes of a controller took, requests included", ("controller",)),
    "pass_last_timestamp_seconds": Help(
        GAUGE, "When a controller's last pass ended, Unix seconds; there is none while nothing changes", ("controller",)),
    "pass_crashes": Help(COUNTER, "Passes that ended in an error of gpuward itself", ("controller",)),
    "api_requests": Help(COUNTER, "Requests to the API server, by HTTP status; `none` where no answer came. Those of the leader "
                         "election are not among them", ("verb", "resource", "code")),
    "api_request_seconds": Help(HISTOGRAM, "How long requests took, watches aside", ("verb", "resource")),
    "leader": Help(GAUGE, "Whether this process leads: who does not only looks on"),
    "build_info": Help(GAUGE, "1, with the version that runs", ("version",)),
}
"""Our metrics of one process, without their prefix and, for counters, `_total`."""


def full_name(name: str, told: Help) -> str:
    """Return the name of a metric of ours as Prometheus has it."""
    return OWN_PREFIX + name + ("_total" if told.kind == COUNTER else "")
