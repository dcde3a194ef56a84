"""The gates of admission: each looks at one node that wants to start, and holds it or lets it pass.

They are asked in this order, and the first one that holds is the reason that people read. A new rule is a new file here.
"""

from __future__ import annotations

from gpuward.upgrade.gates.driver_pod_missing import driver_pod_missing
from gpuward.upgrade.gates.eviction_budget import eviction_budget
from gpuward.upgrade.gates.failure_budget import failure_budget
from gpuward.upgrade.gates.fleet import NOBODY, Candidate, Fleet, Gate
from gpuward.upgrade.gates.held_devices import held_devices
from gpuward.upgrade.gates.invalid_policy import invalid_policy
from gpuward.upgrade.gates.max_parallel import max_parallel
from gpuward.upgrade.gates.max_unavailable import max_unavailable
from gpuward.upgrade.gates.new_driver_fails import new_driver_fails
from gpuward.upgrade.gates.node_gone import node_gone
from gpuward.upgrade.gates.not_ready import not_ready
from gpuward.upgrade.gates.protected_pods import protected_pods
from gpuward.upgrade.gates.skipped import skipped
from gpuward.upgrade.gates.template_settling import template_settling
from gpuward.upgrade.gates.two_driver_pods import two_driver_pods

NODE_GATES: tuple[Gate, ...] = (
    skipped,
    invalid_policy,
    node_gone,
    not_ready,
    driver_pod_missing,
    two_driver_pods,
    template_settling,
    held_devices,
    protected_pods,
)
"""These look at the node and the policy alone."""

FLEET_GATES: tuple[Gate, ...] = (
    failure_budget,
    new_driver_fails,
    eviction_budget,
    max_unavailable,
    max_parallel,
)
"""These look at what the rest of the fleet does as well."""

GATES = NODE_GATES + FLEET_GATES

__all__ = ["FLEET_GATES", "GATES", "NOBODY", "NODE_GATES", "Candidate", "Fleet", "Gate"]
