"""Which objects make each operand: pure functions from the policy and a few facts of the cluster."""

from gpuward.operands.digest import driver_config_digest
from gpuward.operands.facts import ClusterFacts, referenced_config_maps, referenced_secrets
from gpuward.operands.readiness import daemonset_ready, waits_for
from gpuward.operands.render import render
from gpuward.operands.state import ObjectRef, OperandState, applied_hash, ref_of, with_applied_hash, with_owner

__all__ = [
    "ClusterFacts",
    "ObjectRef",
    "OperandState",
    "applied_hash",
    "daemonset_ready",
    "driver_config_digest",
    "ref_of",
    "referenced_config_maps",
    "referenced_secrets",
    "render",
    "waits_for",
    "with_applied_hash",
    "with_owner",
]
