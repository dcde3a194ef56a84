"""People who edit the labels by which DaemonSets select their nodes: the driver pod may go, and the reason says what is true."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.policy.nvidiadrivers import PoliciesInForce
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_moves import be_precompiled
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver

NODE = "gpu-2"


class Truth:
    """Note each plan that calls the node up to date, or gives no reason, while none of its driver pods stays there.

    Of a node without an owner, or with one that is not there, nothing is said: it gets its own back before anything else.
    """

    def __init__(self, stage: Stage, key: str, value: str) -> None:
        self._stage = stage
        self._label = key, value
        self.lies: list[str] = []
        self.reasons: set[str] = set()
        stage.operator.upgrades.listeners.append(self._planned)

    def _planned(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        plan = seen.decision or Plan()
        status, pods = plan.nodes.get(NODE), driver_pods(self._stage, NODE)
        if any(not pod["metadata"].get("deletionTimestamp") for pod in pods) and status is not None and status.hold is None:
            return
        key, value = self._label
        nobodys = key == names.DRIVER_OWNER and seen.snapshot.nodes[NODE].labels.get(key) != value
        if nobodys and (status is None or (status.hold is None and not status.up_to_date)):
            return
        if status is None or status.hold is None or status.up_to_date:
            self.lies.append(f"{status} with {len(pods)} driver pods")
        else:
            self.reasons.add(str(status.hold.reason))


async def comes_back(stage: Stage, key: str, value: str | None) -> None:
    """Edit a label while no operator runs, so that the driver pod goes; see what is said until it is back."""
    before = stage.labels(NODE)[key]
    await stage.deploy("train", node=NODE)
    await stage.kill_operator()
    await stage.label(NODE, key, value)
    await stage.until(lambda: not driver_pods(stage, NODE))
    await stage.restart_operator()
    truth = Truth(stage, key, before)
    await stage.until(lambda: stage.labels(NODE).get(key) == before, within=5)
    await stage.until(lambda: truth.reasons and not stage.hold(NODE) and stage.operator.plan.nodes[NODE].up_to_date)
    assert truth.lies == []
    assert stage.driver(NODE)
    assert stage.cordons() == []


@pytest.mark.parametrize("value", [None, "other"])
@pytest.mark.parametrize("key", [names.DRIVER_OWNER, names.DRIVER_OS])
def test_an_nvidia_drivers_node_says_so_until_its_driver_is_back(key: str, value: str | None) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("default", default=True))
        await stage.installed()
        await comes_back(stage, key, value)

    story()


@pytest.mark.parametrize("value", [None, "other"])
@pytest.mark.parametrize("key", [names.DRIVER_KERNEL, names.DRIVER_OS])
def test_a_node_of_precompiled_drivers_says_so_until_its_driver_is_back(key: str, value: str | None) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await be_precompiled(stage)
        await comes_back(stage, key, value)

    story()


@pytest.mark.parametrize("said", ["Ubuntu_X", "ubuntu_x"])
@pytest.mark.parametrize("precompiled", [False, True])
def test_an_operating_system_that_is_no_part_of_a_name_costs_no_node_its_driver(said: str, precompiled: bool) -> None:
    """What cannot be an ID of os-release is not believed, and for what can be a DaemonSet is made."""
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await stage.installed()
        if precompiled:
            await be_precompiled(stage)
        else:
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("default", default=True))
            await stage.until(lambda: all(names.DRIVER_OS in stage.labels(node) for node in ("gpu-1", "gpu-2", "gpu-3")))
            await stage.until(lambda: set(stage.states().values()) == {"upgrade-done"})
        await stage.label(NODE, names.NFD_OS_ID, said)
        await stage.rest(60)
        for pod in driver_pods(stage, NODE):
            await stage.user.delete(resources.PODS, pod["metadata"]["name"], names.DEFAULT_NAMESPACE)
        await stage.rest(300)
        assert stage.driver(NODE)
        assert not stage.hold(NODE)

    story()
