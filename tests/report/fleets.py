"""Fleets in the middle of a rollout, with nodes in every group that a rollout has, as large as one likes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gpuward import names
from gpuward.controllers.planning import Planner
from gpuward.model.containers import ContainerProgress
from gpuward.model.plan import Plan
from gpuward.model.record import Failure
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import DaemonSetView, NodeView, Owner, PodView, PolicyView
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from gpuward.sandbox.samples import sample_policy
from tests import build

PRODUCTS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB", "NVIDIA-L40S", "Tesla-T4")
IMAGE = "nvcr.io/nvidia/driver:{}-ubuntu22.04"
OLD, NEW = "595.91.07", "595.91.08"
VERSIONS = {"550": OLD, "560": NEW}


class Fleet(NamedTuple):
    """Hold a fleet and what was decided about it."""

    plan: Plan
    snapshot: Snapshot
    policies: PoliciesInForce


OPERANDS = ("nvidia-container-toolkit-daemonset", "nvidia-dcgm-exporter", "gpu-feature-discovery",
            "nvidia-device-plugin-daemonset", "nvidia-operator-validator", "nvidia-mig-manager")
NOWHERE = "nvidia-device-plugin-mps-control-daemon"
"""The operand that no node wants."""
STUCK = "nvidia-dcgm-exporter"
"""The operand of which one pod does not start."""


def rollout(nodes: int, *, name: str = "gpu-{:04}", policy: str = "cluster-policy") -> Fleet:
    """Build a fleet of which a third is done, some nodes are under way, failed, held or skipped, and the others wait."""
    views: list[NodeView] = []
    pods: list[PodView] = []
    for number in range(nodes):
        view, driver = _node(name.format(number), number, nodes)
        views.append(view)
        starts = view.state is State.POD_RESTART_REQUIRED
        pods += [build.driver_pod(view.name, driver, ready=not starts, driver_image=IMAGE.format(VERSIONS[driver]),
                                  progress=ContainerProgress("nvidia-driver-ctr") if starts else None),
                 *_operands(view.name, stuck=number == 1)]
    snapshot = build.cluster(views, pods)
    driver_daemonsets = (msgspec.structs.replace(ds, image=IMAGE.format(VERSIONS["560"]), desired=nodes)
                         for ds in snapshot.daemonsets if ds.on_delete)
    others = (_daemonset(each, nodes) for each in OPERANDS)
    body = sample_policy()
    body["metadata"]["name"] = policy
    body["spec"]["driver"]["upgradePolicy"] |= {"maxParallelUpgrades": max(2, nodes // 100), "maxUnavailable": "25%"}
    snapshot = msgspec.structs.replace(snapshot, daemonsets=(*driver_daemonsets, *others, _daemonset(NOWHERE, 0)),
                                       policies=(PolicyView(policy, uid="uid-policy", body=body),))
    policies = PolicyReader().read(snapshot)
    return Fleet(Planner().decide(snapshot, policies.upgrades, build.NOW), snapshot, policies)


def _daemonset(name: str, nodes: int) -> DaemonSetView:
    return DaemonSetView(build.NAMESPACE, name, uid=f"uid-{name}", desired=nodes, updated=nodes, available=nodes)


def _operands(node: str, *, stuck: bool) -> list[PodView]:
    """Return the pods of a node that are not the driver's."""
    found = []
    for name in OPERANDS:
        ready = not (stuck and name == STUCK)
        app = name if name == names.VALIDATOR_APP else "operand"
        pod = PodView(build.NAMESPACE, f"{name}-{node}", f"uid-{name}-{node}", node=node, labels={"app": app}, phase="Running",
                      owner=Owner("DaemonSet", name, f"uid-{name}"), ready=ready, created=build.LONG_AGO)
        crash = ContainerProgress("nvidia-dcgm-exporter", "CrashLoopBackOff", 7, exit_code=1)
        found.append(pod if ready else msgspec.structs.replace(pod, progress=crash))
    return found


def _node(name: str, number: int, nodes: int) -> tuple[NodeView, str]:
    """Return a node and its driver."""
    labels = {names.GPU_PRODUCT: PRODUCTS[number * len(PRODUCTS) // nodes]}
    odd = number % 100 if nodes >= 100 else number
    if odd == 4:
        return build.under_way(State.POD_RESTART_REQUIRED, name=name, labels=labels), "560"
    if odd == 5:
        failure = Failure(State.DRAIN_REQUIRED, "pod train/llama-7b-0 was not evicted in 300 s", build.NOW - 600, attempts=9)
        memory = msgspec.structs.replace(build.record(State.FAILED, ours=True, since=build.NOW - 600), failure=failure)
        return build.node(name, State.FAILED, remembers=memory, cordoned=True, labels=labels), "550"
    if odd == 7:
        return build.node(name, State.UPGRADE_REQUIRED, labels={**labels, names.UPGRADE_SKIP: "true"}), "550"
    if odd == 8:
        return build.node(name, State.UPGRADE_REQUIRED, labels=labels, ready=False), "550"
    done = odd % 3 == 0
    return build.node(name, State.DONE if done else State.UPGRADE_REQUIRED, labels=labels), "560" if done else "550"

