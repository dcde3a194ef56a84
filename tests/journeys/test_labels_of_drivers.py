"""Labels that `daemonsets.labels` asks for do not make a driver pod one that shares its node with another driver."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.driver import has_driver_labels
from gpuward.model.states import State
from kubesandbox.timeloop import run_virtual
from tests.journeys.stage import OLD, Stage, on_stage, playing

SPACE = names.DEFAULT_NAMESPACE
THEIRS = {names.COMPONENT_LABEL: "gpu"}
DAEMON_SETS = {"nvidia-driver-daemonset-5.15.0-101-generic-ubuntu22.04", "nvidia-driver-daemonset-6.8.0-45-generic-ubuntu24.04"}


def most_on_a_node(stage: Stage) -> int:
    """Return how many driver pods the node with most of them has."""
    placed = (pod["spec"].get("nodeName") for pod in stage.pods() if has_driver_labels(pod["metadata"]["labels"]))
    return max(Counter(filter(None, placed)).values(), default=0)


async def goes_precompiled(stage: Stage) -> None:
    """Switch to precompiled drivers under GPU pods; no node has two drivers meanwhile, and all have the new one in the end."""
    await stage.deploy("inference", node="gpu-1")
    await stage.patch_policy("driver/version", "580")
    await stage.patch_policy("driver/usePrecompiled", True)
    for _ in range(120):
        await stage.rest(5)
        assert most_on_a_node(stage) <= 1
    assert (stage.all_are(State.DONE), stage.drivers()) == (True, ["580"])
    assert {ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps")
            if names.DRIVER_APP in ds["metadata"]["name"]} == DAEMON_SETS


@pytest.mark.parametrize("labels", [THEIRS, {names.PRECOMPILED: "perhaps"}, {"app": "mine"}], ids=lambda labels: min(labels))
def test_labels_for_all_daemonsets_are_in_no_switchs_way(labels: dict[str, str]) -> None:
    async def main() -> None:
        async with playing(Stage(3)) as stage:
            await stage.patch_policy("daemonsets/labels", {"team": "ml", **labels})
            await stage.installed()
            pod = stage.driver_pod("gpu-1")["metadata"]["labels"]
            assert (pod["team"], pod["app"], pod[names.COMPONENT_LABEL]) == ("ml", names.DRIVER_APP, names.DRIVER_COMPONENT)
            await goes_precompiled(stage)

    run_virtual(main)


@on_stage(gpu_nodes=3)
async def test_driver_pods_that_nvidias_operator_labelled_as_the_policy_asks_share_no_node(stage: Stage) -> None:
    await stage.installed()
    await stage.kill_operator()
    await stage.patch_policy("daemonsets/labels", THEIRS)
    for pod in stage.pods(names.DRIVER_APP):
        await stage.user.patch_merge(resources.PODS, pod["metadata"]["name"], {"metadata": {"labels": THEIRS}}, SPACE)
    await stage.restart_operator()
    await stage.rest(30)
    assert stage.drivers() == [OLD]
    await goes_precompiled(stage)
