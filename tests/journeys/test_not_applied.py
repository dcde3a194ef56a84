"""A driver whose DaemonSet the API server does not take is told wherever people look, in every place where drivers come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuward import errors
from gpuward.kube import resources
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.looking import condition_of, explanation_of, headline_of
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, label_pools, make, nvidia_driver
from tests.journeys.test_withheld import set_driver

MODES = ["plain", "precompiled", "nvidiadriver"]
DENIED = 'admission webhook "keep.example.com" denied the request: no'
REFUSED = {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}


async def installed(stage: Stage, mode: str) -> None:
    if mode == "nvidiadriver":
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE))
    if mode == "precompiled":
        await set_driver(stage, {"usePrecompiled": True, "version": "580"})
    await stage.installed()
    await stage.until(lambda: condition_of(stage)[0] == "True")


async def change(stage: Stage, mode: str, fields: Mapping[str, object]) -> None:
    if mode == "nvidiadriver":
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": fields})
    else:
        await set_driver(stage, fields)


def deny_daemonsets(request: Request, proceed: Proceed) -> Answer | Stream:
    if request.method not in ("PUT", "POST") or "/daemonsets" not in request.path:
        return proceed()
    error = errors.Forbidden(DENIED)
    return messages.answer(messages.status_object(error), error.status)


def conditions(stage: Stage, mode: str) -> dict[str, Any]:
    """Return the conditions of what says which driver there should be, by type."""
    status = stage.get("nvidiadrivers.nvidia.com", "a", "")["status"] if mode == "nvidiadriver" else stage.policy_status()
    return {condition["type"]: condition for condition in status["conditions"]}


@pytest.mark.parametrize("mode", MODES)
def test_a_driver_that_its_daemonset_does_not_have_is_not_called_up_to_date(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        version = "590" if mode == "precompiled" else NEW
        before = stage.drivers()
        await change(stage, mode, {"version": version, "resources": REFUSED})
        await stage.rest(300)
        assert stage.drivers() == before
        assert condition_of(stage)[:2] == ("False", "DriverNotApplied")
        assert conditions(stage, mode)["Ready"]["status"] == "False"
        await change(stage, mode, {"resources": None})
        await stage.until(lambda: condition_of(stage)[0] == "True", 3600)
        assert set(stage.drivers()) == {version}

    story()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("denied", [False, True], ids=["invalid", "denied"])
def test_what_the_server_says_of_a_daemonset_that_it_does_not_take_is_quoted(mode: str, denied: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        fields: dict[str, Any] = {"version": "590" if mode == "precompiled" else NEW}
        if denied:
            stage.transport.interfere = deny_daemonsets
        else:
            fields["resources"] = REFUSED
        words = DENIED if denied else "must be less than or equal to cpu limit of 1"
        await change(stage, mode, fields)
        await stage.rest(120)
        assert words in conditions(stage, mode)["Error"]["message"]
        assert words in condition_of(stage)[2]
        assert words in await headline_of(stage)
        assert words in (await explanation_of(stage, "gpu-1")).policy
        kind = "NVIDIADriver" if mode == "nvidiadriver" else "ClusterPolicy"
        told = [event for event in stage.sandbox.store.list("events") if words in event["message"]]
        assert [event["involvedObject"]["kind"] for event in told] == [kind]
        stage.transport.interfere = lambda request, proceed: proceed()
        await change(stage, mode, {"resources": None})
        await stage.until(lambda: condition_of(stage)[0] == "True", 3600)
        assert conditions(stage, mode)["Ready"]["status"] == "True"

    story()


@on_stage(gpu_nodes=2)
async def test_a_daemonset_that_is_refused_once_is_no_news(stage: Stage) -> None:
    await installed(stage, "plain")
    left = [1]

    def once(request: Request, proceed: Proceed) -> Answer | Stream:
        return deny_daemonsets(request, proceed) if "/daemonsets/" in request.path and left and left.pop() else proceed()

    stage.transport.interfere = once
    await stage.upgrade_to(NEW)
    await stage.upgraded(NEW)
    assert not left
    assert not [event for event in stage.sandbox.store.list("events") if DENIED in event["message"]]


@on_stage(gpu_nodes=2)
async def test_an_nvidiadrivers_conditions_say_of_which_generation_they_are(stage: Stage) -> None:
    await installed(stage, "nvidiadriver")
    assert set(stage.drivers()) == {OLD}
    await change(stage, "nvidiadriver", {"version": NEW})
    driver = stage.get("nvidiadrivers.nvidia.com", "a", "")
    await stage.until(lambda: conditions(stage, "nvidiadriver")["Ready"].get("observedGeneration")
                      == driver["metadata"]["generation"])
    assert conditions(stage, "nvidiadriver")["Ready"]["status"] == "False"
    assert condition_of(stage)[0] == "False"
    await stage.until(lambda: condition_of(stage)[0] == "True", 3600)
    assert set(stage.drivers()) == {NEW}


@pytest.mark.parametrize("mode", MODES)
def test_that_it_is_not_applied_is_told_in_a_pause_too(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await change(stage, mode, {"upgradePolicy": {"autoUpgrade": False}})
        await stage.until(lambda: "automatic upgrades are off" in condition_of(stage)[2])
        stage.transport.interfere = deny_daemonsets
        await change(stage, mode, {"version": "590" if mode == "precompiled" else NEW})
        await stage.until(lambda: DENIED in condition_of(stage)[2])
        assert condition_of(stage)[0] == "False"
        assert DENIED in await headline_of(stage)
        stage.transport.interfere = lambda request, proceed: proceed()
        await stage.until(lambda: DENIED not in condition_of(stage)[2])

    story()


@on_stage(gpu_nodes=1)
async def test_what_was_refused_and_is_put_right_by_hand_is_told_no_longer(stage: Stage) -> None:
    await stage.installed()
    name = "nvidia-device-plugin-daemonset"

    async def put(label: str | None) -> None:
        await stage.user.patch_merge(resources.DAEMON_SETS, name, {"metadata": {"labels": {"app": label}}}, "gpu-operator")

    before = stage.get("daemonsets.apps", name)["metadata"]["labels"]["app"]
    stage.transport.interfere = deny_daemonsets
    await put("mine")
    await stage.until(lambda: DENIED in str(stage.policy_status()["conditions"]))
    await put(before)
    await stage.until(lambda: stage.policy_status()["state"] == "ready", within=300)
    assert DENIED not in str(stage.policy_status()["conditions"])
