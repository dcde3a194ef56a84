"""A node whose GPUs have not got their MIG layout: the MIG manager says so by labels, and all pods that are wanted are ready."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpuward import names
from kubesandbox.messages import Answer, Request
from kubesandbox.writing import APPLY_PATCH
from tests.journeys.looking import condition_of, explanation_of, status_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_operand_fails import explained
from tests.journeys.test_status_screen import shown

LAYOUT, MIG_MANAGER = "all-1g.10gb", "nvidia-mig-manager"
TAKEN_OFF = ("device-plugin", "gpu-feature-discovery", "dcgm-exporter")


def begin(stage: Stage, state: str = "pending", taken_off: tuple[str, ...] = TAKEN_OFF) -> None:
    """Leave on a node what the MIG manager leaves while it applies a layout."""
    label(stage, {names.MIG_CONFIG: LAYOUT, names.MIG_STATE: state},
          {names.DEPLOY_PREFIX + name: "paused-for-mig-change" for name in taken_off})


def end(stage: Stage) -> None:
    """Do what it does at the end."""
    given_back = {names.DEPLOY_PREFIX + name: "true" for name in TAKEN_OFF}
    label(stage, {names.MIG_CONFIG: LAYOUT, names.MIG_STATE: "success"}, given_back)


def label(stage: Stage, *labels: Mapping[str, str]) -> None:
    """Label the node by a server-side apply, from which on the sandbox tracks who wrote what, and when."""
    found = {key: value for each in labels for key, value in each.items()}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1", "labels": found}}
    answer = stage.sandbox.api.handle(Request("PATCH", "/api/v1/nodes/gpu-1", {"fieldManager": MIG_MANAGER, "force": "true"},
                                              json.dumps(body).encode(), APPLY_PATCH))
    assert isinstance(answer, Answer)
    assert answer.status == 200, answer.body


def row(lines: list[str]) -> str:
    return next(line for line in lines if line.startswith("gpu-1"))


@on_stage(gpu_nodes=2)
async def test_a_mig_manager_that_does_not_come_to_an_end_is_told_of(stage: Stage) -> None:
    """Its device plugin would stay away for ever while two of two nodes are up to date and all operands ready."""
    await stage.installed()
    begin(stage)
    await stage.rest(800)
    note = ("the MIG manager keeps device-plugin, dcgm-exporter, gpu-feature-discovery off this node "
            "(nvidia.com/mig.config.state=pending): what validates a driver waits for the device plugin meanwhile")
    assert note in (await explanation_of(stage, "gpu-1")).notes
    assert (await shown(stage))[0] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date"
    await stage.rest(200)
    lines = await shown(stage)
    assert lines[0] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date, 1 with a failing operand"
    assert row(lines).endswith("the MIG layout all-1g.10gb is not applied yet (nvidia.com/mig.config.state=pending); the MIG "
                               "manager keeps device-plugin, dcgm-exporter, gpu-feature-discovery off this node meanwhile")
    assert [each for each in stage.events("gpu-1", "Warning") if "MigNotApplied" in each]
    assert "held: 1 MigNotApplied (gpu-1)" in condition_of(stage)[2]
    (pod,) = [pod["metadata"]["name"] for pod in stage.pods(MIG_MANAGER, "gpu-1")]
    told = await explained(stage)
    assert f"$ kubectl logs {pod} -n gpu-operator --tail=50" in told["HELP"]
    assert f"$ kubectl delete pod {pod} -n gpu-operator" in told["HELP"]
    assert "nothing is wrong with this node then" in told["HELP"]
    end(stage)
    await stage.rest(60)
    assert (await shown(stage))[0] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date"


@on_stage(gpu_nodes=2)
async def test_a_layout_that_could_not_be_applied_is_told_of_at_once_and_holds_no_upgrade(stage: Stage) -> None:
    """As one whose name is mistyped: the MIG manager's pod stays ready."""
    await stage.installed()
    begin(stage, "failed", ())
    await stage.until(lambda: "MigNotApplied" in condition_of(stage)[2], within=60)
    told = "the MIG layout all-1g.10gb could not be applied (nvidia.com/mig.config.state=failed)"
    assert row(await shown(stage)).endswith(told)
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    assert (await shown(stage))[0] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date, 1 with a failing operand"
    end(stage)
    await stage.rest(60)
    assert (await shown(stage))[0] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date"


@on_stage(gpu_nodes=2)
async def test_a_mig_manager_that_ended_in_between_and_finds_its_layout_applied_leaves_operands_away(stage: Stage) -> None:
    """NVIDIA's looks at the layout first, and at what it took off the node only where that is another one."""
    await stage.installed()
    begin(stage)
    await stage.rest(20)
    begin(stage, "success")
    await stage.rest(300)
    assert (await shown(stage))[0] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date"
    await stage.rest(700)
    assert row(await shown(stage)).endswith(
        "the MIG layout all-1g.10gb is applied (nvidia.com/mig.config.state=success), but the MIG manager has not given "
        "device-plugin, dcgm-exporter, gpu-feature-discovery back to this node")
    told = await explained(stage)
    assert "operand failing for 17m" in told["STATE"]
    assert "$ kubectl label node gpu-1 nvidia.com/gpu.deploy.dcgm-exporter=true nvidia.com/gpu.deploy.device-plug" in told["HELP"]
    assert "kubectl delete pod" not in told["HELP"], "the next one would find the layout applied, too"
    end(stage)
    await stage.rest(60)
    assert (await shown(stage))[0] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date"


@pytest.mark.parametrize("gone", [False, True])
def test_of_a_node_with_a_driver_of_its_own_a_line_says_so(gone: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        stage.sandbox.machine("gpu-1").host_driver = "580.1"
        await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")
        if gone:
            await stage.label("gpu-1", names.DEPLOY_MIG_MANAGER, "false")
        await stage.rest(300)
        begin(stage)
        await stage.rest(600)
        assert (await status_of(stage))["warnings"] == [], "that takes its time"
        await stage.rest(400)
        (warning,) = (await status_of(stage))["warnings"]
        assert warning == "gpu-1 has not got the MIG layout that the label nvidia.com/mig.config asks for: gpuward explain gpu-1"
        told: dict[str, Any] = await explained(stage)
        assert told["REASON"].split(maxsplit=1)[1].startswith("MigNotApplied: the MIG layout all-1g.10gb is not applied yet")
        labels = " ".join(f"{names.DEPLOY_PREFIX}{name}=true" for name in sorted(TAKEN_OFF))
        wanted = f"kubectl label node gpu-1 {labels} --overwrite" if gone else "kubectl delete pod"
        assert wanted in told["HELP"]

    story()
