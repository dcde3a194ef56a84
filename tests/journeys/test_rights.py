"""An operator under the rights of NVIDIA's chart: it says once what it may not see, and does without it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.cli.leader import Leader
from gpuward.cli.look import Look
from gpuward.cli.status import Choice, screen
from gpuward.errors import Forbidden
from gpuward.kube.http.client import Client
from gpuward.kube.http.stats import RequestKey
from gpuward.kube.resources import POD_DISRUPTION_BUDGETS
from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.looking import looking, status_of
from tests.journeys.stage import NEW, Proceed, Stage, on_stage
from tests.journeys.test_driver_pod_evicted import installed, upgrade

ONE = {"maxUnavailable": "100%", "maxParallelUpgrades": 1, "podDeletion": {"timeoutSeconds": 0}}
COMMAND = "kubectl apply -f deploy/nvidia-chart-rights.yaml"
REFUSED = RequestKey("create", "pods/eviction", 429)
MODES = ["plain", "precompiled", "nvidiadriver"]


class Roles:
    """Refuse to list and watch kinds until the rights are given."""

    def __init__(self, *plurals: str) -> None:
        self.lacking = set(plurals)

    def __call__(self, request: Request, proceed: Proceed) -> Answer | Stream:
        plural = request.path.rsplit("/", 1)[-1]
        if request.method == "GET" and plural in self.lacking:
            return refusal(Forbidden(f"{plural} is forbidden"))
        return proceed()


def about_rights(stage: Stage) -> list[dict[str, Any]]:
    """Return the conditions of the ClusterPolicy about missing rights."""
    return [one for one in stage.policy_status().get("conditions") or () if one["type"] == "RightsMissing"]


def said(stage: Stage) -> list[dict[str, Any]]:
    """Return the lines of the log that speak of rights."""
    return [line for line in stage.log if "right" in line["msg"].lower() or "watch a resource" in line["msg"]]


@pytest.mark.parametrize("mode", MODES)
def test_one_condition_names_them_until_they_are_given(mode: str) -> None:
    roles = Roles("poddisruptionbudgets", "rolloutpolicies")

    @on_stage(gpu_nodes=2, upgrade=ONE, interfere=roles)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        (found,) = about_rights(stage)
        assert (found["status"], found["reason"]) == ("True", "Forbidden")
        assert found["message"] == (
            "the operator may not list poddisruptionbudgets.policy: a disruption budget shows only when an eviction is refused; "
            f"rolloutpolicies.gpuward.io: RolloutPolicies are not followed, but for the last one that was seen. "
            f"To allow it: {COMMAND}")
        assert stage.condition()["type"] == "Ready", "it is no error"
        assert [(line["msg"], line["message"]) for line in said(stage)] == [("Rights are missing", found["message"])]
        assert found["message"] in (await status_of(stage))["problems"]
        async with looking(stage) as picture:
            lines = [str(line) for line in screen(picture, Leader("here", picture.now), Choice(), picture.now)]
        assert f"  to allow it: {COMMAND}" in lines
        assert len([line for line in lines if line.startswith("rights ")]) == 1
        version = await upgrade(stage, mode, ONE)
        await stage.until(lambda: stage.drivers() == [version] and stage.all_are(State.DONE), within=3600)
        roles.lacking.clear()
        await stage.until(lambda: not about_rights(stage), within=60)
        assert [line["msg"] for line in said(stage) if line["level"] == "warning"] == ["Rights are missing"]
        assert (await status_of(stage))["problems"] == []

    story()


@pytest.mark.parametrize("mode", MODES)
def test_a_budget_that_cannot_be_seen_is_not_run_into_and_counts_as_soon_as_it_can(mode: str) -> None:
    roles = Roles("poddisruptionbudgets")

    @on_stage(gpu_nodes=2, upgrade=ONE, interfere=roles)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.deploy("inference", node="gpu-1", max_unavailable=0)
        version = await upgrade(stage, mode, ONE)
        await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused", within=600)
        begun = stage.client.stats.requests[REFUSED]
        await stage.rest(300)
        assert stage.client.stats.requests[REFUSED] - begun <= 14, "every half a minute in the end"
        told = sentence(stage.operator.plan.holds["gpu-1"])
        assert "may not be evicted now" in told
        assert "disruption budget" in told
        roles.lacking.clear()
        await stage.until(lambda: not about_rights(stage), within=60)
        stage.set_budget("inference", 1)
        await stage.until(lambda: stage.drivers() == [version] and stage.all_are(State.DONE), within=3600)
        assert not stage.cordons()

    story()


@on_stage(gpu_nodes=1, upgrade=ONE, interfere=(roles := Roles()))
async def test_a_budget_that_was_seen_before_the_right_was_taken_holds_nothing_for_ever(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "BudgetBlocks")
    roles.lacking.add("poddisruptionbudgets")
    await stage.until(lambda: about_rights(stage), within=600)
    await stage.user.delete(POD_DISRUPTION_BUDGETS, "inference", WORKLOAD_NAMESPACE)
    await stage.upgraded()


@on_stage(gpu_nodes=1)
async def test_nothing_is_said_where_none_is_missing(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(600)
    assert not about_rights(stage)
    assert not said(stage)


@on_stage(gpu_nodes=1, interfere=Roles("rolloutpolicies"))
async def test_one_that_gets_another_version_of_the_policy_keeps_the_time_of_its_condition(stage: Stage) -> None:
    await stage.installed()
    before = about_rights(stage)
    await stage.rest(120)
    await stage.patch_policy("driver/version", NEW)
    await stage.upgraded()
    assert about_rights(stage) == before


@pytest.mark.parametrize("plural", ["daemonsets", "controllerrevisions", "nodes"])
def test_who_may_not_read_what_a_command_needs_is_told_so(plural: str) -> None:
    """It waited for what the API server refused, and said nothing."""
    @on_stage(gpu_nodes=1)
    async def story(stage: Stage) -> None:
        transport = stage.sandbox.transport()
        transport.interfere = Roles(plural)
        with pytest.raises(Forbidden, match=f"{plural} is forbidden"):
            async with Look(Client(transport), names.DEFAULT_NAMESPACE).following():
                pass

    story()
