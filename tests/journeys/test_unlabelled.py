"""A node with GPUs that may not be labelled gets no driver: it is in the totals, and says why."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gpuward import errors, names
from gpuward.model.explain import sentence
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.looking import condition_of
from tests.journeys.stage import Proceed, Stage, on_stage
from tests.journeys.test_nvidiadriver import make, nvidia_driver
from tests.journeys.test_refused_writes import held
from tests.journeys.test_withheld import set_driver

DENIED = 'admission webhook "keep.example.com" denied the request: no'


def refuse(request: Request, proceed: Proceed) -> Answer | Stream:
    error = errors.Forbidden(DENIED)
    return messages.answer(messages.status_object(error), error.status)


class Dropping:
    """Let a webhook drop the operator's labels from every change of a node."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def __call__(self, request: Request, proceed: Proceed) -> Answer | Stream:
        kept = [each for each in json.loads(request.body) if each["op"] == "test" or "/labels/" not in each["path"]]
        return self.stage.sandbox.api.handle(dataclasses.replace(request, body=json.dumps(kept).encode()))


@pytest.mark.parametrize("mode", ["plain", "precompiled", "nvidiadriver", "paused"])
@pytest.mark.parametrize("dropped", [False, True], ids=["refused", "dropped"])
def test_a_node_that_may_not_be_labelled_is_told_of(mode: str, dropped: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        if mode == "nvidiadriver":
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("a", default=True))
        if mode == "precompiled":
            await set_driver(stage, {"usePrecompiled": True, "version": "580"})
        if mode == "paused":
            await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        way = Dropping(stage) if dropped else refuse
        there = [True]

        def interfere(request: Request, proceed: Proceed) -> Answer | Stream:
            mine = request.method == "PATCH" and request.path == "/api/v1/nodes/gpu-1"
            return way(request, proceed) if mine and there[0] else proceed()

        stage.transport.interfere = interfere
        await stage.restart_operator()
        await stage.rest(600)
        said = names.GPU_PRESENT if dropped else DENIED
        assert stage.hold("gpu-1") == "WriteRefused"
        assert said in sentence(stage.operator.plan.holds["gpu-1"])
        assert any(said in message for message in held(stage))
        status, _, message = condition_of(stage)
        assert (status, "2 of 3 nodes up to date" in message) == ("False", True)
        there[0] = False
        await stage.until(lambda: not stage.hold("gpu-1") and stage.driver("gpu-1"), 3600)
        await stage.until(lambda: "3 of 3 nodes up to date" in condition_of(stage)[2], 3600)

    story()
