"""Everything that can go wrong or be meddled with, one small function for each kind.

A kind is played at its moment and returns, if it lasts, the function that ends it.
"""

from __future__ import annotations

from tools.simulate.faults import api, fuzz, humans, machines, objects, operators, policies, switches, verbs, waiting, workloads
from tools.simulate.faults.kinds import KINDS

__all__ = [
    "KINDS", "api", "fuzz", "humans", "machines", "objects", "operators", "policies", "switches", "verbs", "waiting", "workloads",
]
