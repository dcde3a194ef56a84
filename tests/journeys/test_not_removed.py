"""A driver DaemonSet that is to go, and may not be deleted or does not go, is told wherever people look: no node is called up to
date by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuward import errors, names
from gpuward.kube import resources
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.looking import condition_of, explanation_of, headline_of
from tests.journeys.stage import NEW, OLD, POLICY, Proceed, Stage, on_stage
from tests.journeys.test_moves import with_one_owner, with_workloads
from tests.journeys.test_nvidiadriver import make, nvidia_driver
from tests.journeys.test_withheld import set_driver

DENIED = 'admission webhook "keep.example.com" denied the request: no'
EDITS: Mapping[str, Mapping[str, Any]] = {
    "left": {"useNvidiaDriverCRD": True}, "off": {"enabled": False},
    "precompiled": {"usePrecompiled": True, "version": "580"}, "taken-back": {"useNvidiaDriverCRD": False},
}
KEPT = "x.example.com/keep"


def keep_daemonsets(request: Request, proceed: Proceed) -> Answer | Stream:
    if request.method != "DELETE" or "/daemonsets/nvidia-" not in request.path:
        return proceed()
    error = errors.Forbidden(DENIED)
    return messages.answer(messages.status_object(error), error.status)


async def begun(stage: Stage, edit: str) -> None:
    if edit == "taken-back":
        await with_one_owner(stage)
    else:
        await stage.installed()
        await with_workloads(stage)
    await stage.until(lambda: condition_of(stage)[0] == "True")


class Conditions:
    """Note what the condition DriverUpgrade says of one generation of the ClusterPolicy and later ones."""

    def __init__(self, stage: Stage) -> None:
        generation = stage.get("clusterpolicies.nvidia.com", POLICY, "")["metadata"]["generation"]
        self.told: list[tuple[str, str, str]] = []
        self._of = generation
        stage.sandbox.store.subscribe(lambda event: self._saw(event.obj), "clusterpolicies.nvidia.com")

    def _saw(self, policy: Mapping[str, Any]) -> None:
        for one in policy.get("status", {}).get("conditions", ()):
            if one["type"] == "DriverUpgrade" and one.get("observedGeneration", 0) > self._of:
                told = one["status"], one["reason"], one["message"]
                self.told += [] if self.told[-1:] == [told] else [told]


@pytest.mark.parametrize("edit", EDITS)
def test_what_the_server_says_of_a_driver_daemonset_that_may_not_be_deleted_is_quoted(edit: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await begun(stage, edit)
        stage.transport.interfere = keep_daemonsets
        seen = Conditions(stage)
        await set_driver(stage, EDITS[edit])
        await stage.rest(300)
        assert "True" not in [status for status, _, _ in seen.told]
        status, reason, message = condition_of(stage)
        assert (status, DENIED in message) == ("False", True), (reason, message)
        assert DENIED in condition_of(stage, "Error")[2]
        assert condition_of(stage, "Ready")[0] == "False"
        assert DENIED in await headline_of(stage)
        assert DENIED in (await explanation_of(stage, "gpu-1")).policy
        told = [event for event in stage.sandbox.store.list("events") if DENIED in event["message"]]
        assert [event["involvedObject"]["kind"] for event in told] == ["ClusterPolicy"]
        assert [stage.driver(node) for node in ("gpu-1", "gpu-2")] == [OLD, OLD]
        stage.transport.interfere = lambda request, proceed: proceed()
        await stage.until(lambda: DENIED not in str(stage.policy_status()["conditions"]))
        if edit in ("precompiled", "taken-back"):
            await stage.until(lambda: condition_of(stage)[0] == "True", 3600)

    story()


@pytest.mark.parametrize("edit", ["left", "off", "precompiled"])
def test_no_pass_calls_nodes_up_to_date_whose_driver_is_to_go(edit: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await begun(stage, edit)
        seen = Conditions(stage)
        await set_driver(stage, EDITS[edit])
        await stage.until(lambda: seen.told)
        await stage.rest(30)
        assert not [one for one in seen.told if one[0] == "True" or "paused" in one[2]]

    story()


@on_stage(gpu_nodes=2)
async def test_a_daemonset_that_a_finalizer_keeps_is_named_and_holds_nothing_up(stage: Stage) -> None:
    await begun(stage, "left")
    kept = {"metadata": {"finalizers": [KEPT]}}
    await stage.user.patch_merge(resources.DAEMON_SETS, names.DRIVER_APP, kept, names.DEFAULT_NAMESPACE)
    await set_driver(stage, EDITS["left"])
    await stage.until(lambda: KEPT in condition_of(stage)[2])
    assert condition_of(stage)[0] == "False"
    assert "taken up" not in condition_of(stage)[2]
    assert KEPT in await headline_of(stage)
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.until(lambda: condition_of(stage)[0] == "True", 3600)
    assert stage.drivers() == [NEW]
    assert KEPT in condition_of(stage)[2]
    await stage.user.patch_merge(resources.DAEMON_SETS, names.DRIVER_APP, {"metadata": {"finalizers": None}},
                                 names.DEFAULT_NAMESPACE)
    await stage.until(lambda: KEPT not in condition_of(stage)[2])
    assert KEPT not in await headline_of(stage)
