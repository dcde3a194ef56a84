"""What is said, after a ClusterPolicy was deleted, of the drivers that nodes still have, and of what brings the same back."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from tests.cli.test_check import checked
from tests.journeys.looking import explanation_of, status_of
from tests.journeys.stage import OLD, POLICY, Stage, on_stage, policy
from tests.journeys.test_node_workload import PASSTHROUGH, is_host
from tests.journeys.test_removed import COMPILED, NVIDIADRIVER, PRECOMPILED, installed

ASKED = {COMPILED: f"driver.version: {OLD}", PRECOMPILED: "driver.usePrecompiled: true and driver.version: 580",
         NVIDIADRIVER: "driver.useNvidiaDriverCRD: true"}
VERSIONS = {COMPILED: OLD, PRECOMPILED: "580", NVIDIADRIVER: OLD}


@pytest.mark.parametrize("mode", [COMPILED, PRECOMPILED, NVIDIADRIVER])
def test_the_policy_that_leaves_drivers_as_they_are_is_advised_and_not_the_one_of_the_examples(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.deploy("train", node="gpu-1")
        await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
        await stage.rest(120)
        (found,) = [one for one in await checked(stage.sandbox) if one.check == "policy"]
        assert found.found == f"there is no ClusterPolicy: nothing is managed; {VERSIONS[mode]} on gpu-1, gpu-2"
        assert found.fix.startswith(f"bring back the ClusterPolicy that was there, or write one with {ASKED[mode]}: another")
        assert "kubectl apply" not in found.fix
        warnings = (await status_of(stage))["warnings"]
        notes = (await explanation_of(stage, "gpu-1")).notes
        if mode == NVIDIADRIVER:
            assert warnings == [], "their driver pods run on"
            return
        assert [told for told in warnings if told.startswith("gpu-1, gpu-2 have no driver pod any more")
                and f"driver {VERSIONS[mode]}, which the operator brought, may stay loaded" in told and ASKED[mode] in told]
        assert any(note.startswith("this node has no driver pod any more") and ASKED[mode] in note for note in notes)
        body = policy()
        body["spec"]["driver"] |= {"usePrecompiled": True, "version": "580"} if mode == PRECOMPILED else {"version": OLD}
        await stage.user.create(resources.CLUSTER_POLICIES, body)
        await stage.until(lambda: stage.policy_status().get("state") == "ready", within=3600)
        assert stage.drivers() == [VERSIONS[mode]]
        assert (await status_of(stage))["warnings"] == []

    story()


@on_stage(gpu_nodes=2)
async def test_a_host_of_virtual_machines_is_not_said_to_have_the_driver_that_it_had_for_containers(stage: Stage) -> None:
    await stage.installed()
    await stage.label("gpu-1", names.WORKLOAD_CONFIG, PASSTHROUGH)
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.until(lambda: is_host(stage, "gpu-1"))
    await stage.rest(60)
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(60)
    (found,) = [one for one in await checked(stage.sandbox) if one.check == "policy"]
    assert found.found.endswith(f"{OLD} on gpu-2")
    assert (await explanation_of(stage, "gpu-1")).notes == ()
    assert [told.partition(" has ")[0] for told in (await status_of(stage))["warnings"]] == ["gpu-2"]
