"""Which objects make each operand: pure functions from the policy and a few facts of the cluster."""

from gpuward.operands.cluster import cluster_facts
from gpuward.operands.driver.digest import driver_config_digest
from gpuward.operands.driver.kernels import stale_driver_daemon_sets
from gpuward.operands.facts import ClusterFacts, NodeKernel, referenced_config_maps, referenced_secrets
from gpuward.operands.readiness import daemonset_ready, waits_for
from gpuward.operands.render import render
from gpuward.operands.state import ObjectRef, OperandState, applied_hash, ref_of, with_applied_hash, with_owner

__all__ = [
    "ClusterFacts",
    "NodeKernel",
    "ObjectRef",
    "OperandState",
    "applied_hash",
    "cluster_facts",
    "daemonset_ready",
    "driver_config_digest",
    "ref_of",
    "referenced_config_maps",
    "referenced_secrets",
    "render",
    "stale_driver_daemon_sets",
    "waits_for",
    "with_applied_hash",
    "with_owner",
]
