"""Gangs: judged from the pods and the nodes, a distributed run leaves its nodes together, and once."""

from __future__ import annotations

from typing import Any

from gpuward import names
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE, cpu_node, gpu_node
from kubesandbox.builders import deployment
from kubesandbox.sim.objects import is_ready
from kubesandbox.store import Event
from kubesandbox.timeloop import LoopClock
from tests.journeys.looking import condition_of, explanation_of
from tests.journeys.stage import NEW, Stage, gpu_template, on_stage
from tests.journeys.test_nvidiadriver import nvidia_driver, set_driver, with_pools
from tests.journeys.test_removed import COMPILED, MODES, NVIDIADRIVER, installed, remove
from tests.journeys.test_removed import DEFAULT as DRIVER
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_windows import ask

TRAIN = f"JobSet {WORKLOAD_NAMESPACE}/train"
DAY = 24 * 3600.0


class Alike(Stage):
    """A stage on which all nodes have as many GPUs."""

    def _nodes(self) -> list[dict[str, Any]]:
        return [*(gpu_node(f"gpu-{number}") for number in range(1, self.gpu_nodes + 1)), cpu_node("cpu-1")]


class Evictions:
    """Watch when pods of a workload are asked to go, and from where."""

    def __init__(self, stage: Stage, app: str = "train") -> None:
        self.app = app
        self.seen: dict[str, tuple[float, str]] = {}
        stage.sandbox.store.subscribe(self._saw, "pods")

    def _saw(self, event: Event) -> None:
        meta = event.obj["metadata"]
        gone = event.type == "DELETED" or meta.get("deletionTimestamp")
        if gone and (meta.get("labels") or {}).get("app") == self.app:
            self.seen.setdefault(meta["uid"], (LoopClock().now(), event.obj["spec"].get("nodeName", "")))

    @property
    def nodes(self) -> list[str]:
        return sorted(node for _, node in self.seen.values())

    @property
    def lasted(self) -> float:
        times = [at for at, _ in self.seen.values()]
        return max(times) - min(times)


def gang_template(size: int = 8) -> dict[str, Any]:
    template = gpu_template("train")
    template["metadata"]["labels"][names.JOBSET_NAME] = "train"
    for kind in template["spec"]["containers"][0]["resources"].values():
        kind["nvidia.com/gpu"] = str(size)
    return template


async def train(stage: Stage, replicas: int = 2) -> None:
    """Run a gang with a pod on each of so many nodes, which takes all of their GPUs."""
    stage.sandbox.apply(deployment("train", WORKLOAD_NAMESPACE, replicas, gang_template()))
    await stage.until(lambda: sum(map(is_ready, stage.workload_pods("train"))) == replicas)


def at(stage: Stage) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in stage.workload_pods("train") if pod["spec"].get("nodeName"))


async def two_at_once(stage: Stage, mode: str) -> None:
    await installed(stage, mode, out=2)
    if mode == NVIDIADRIVER:
        await set_driver(stage, DRIVER, {"upgradePolicy": {"autoUpgrade": True, "maxUnavailable": 2, "maxParallelUpgrades": 2}})
    else:
        await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 2)
    await stage.rest(10)


@MODES
def test_a_gang_leaves_its_nodes_together_and_once(mode: str) -> None:
    @on_stage(gpu_nodes=4, kind=Alike)
    async def scenario(stage: Stage) -> None:
        await two_at_once(stage, mode)
        await train(stage)
        places, seen = at(stage), Evictions(stage)
        await apply(stage, gangs={})
        (old,) = stage.drivers()
        await ask(stage, mode)
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)
        assert seen.nodes == places
        assert seen.lasted < 5
        assert stage.most_in_progress <= 2
        assert not set(at(stage)) & set(places), "it runs on where the driver was upgraded before"

    scenario()


@on_stage(gpu_nodes=4, kind=Alike)
async def test_without_the_setting_a_gang_may_leave_its_nodes_one_after_the_other(stage: Stage) -> None:
    await two_at_once(stage, COMPILED)
    await train(stage, 3)
    places, seen = at(stage), Evictions(stage)
    await ask(stage, COMPILED)
    await stage.upgraded()
    assert seen.nodes == places
    assert seen.lasted > 30


@MODES
def test_drivers_that_go_take_a_gang_along_once_too(mode: str) -> None:
    @on_stage(gpu_nodes=2, kind=Alike)
    async def scenario(stage: Stage) -> None:
        await two_at_once(stage, mode)
        await train(stage)
        seen = Evictions(stage)
        await apply(stage, gangs={})
        await remove(stage, mode)
        await stage.until(lambda: len(seen.seen) >= 2, within=3600)
        assert seen.lasted < 5

    scenario()


async def driven_on(stage: Stage) -> Evictions:
    """Have a gang leave two nodes for two that are skipped as yet."""
    await two_at_once(stage, COMPILED)
    await train(stage)
    others = sorted(set(stage.states()) - set(at(stage)))
    for node in others:
        await stage.label(node, names.UPGRADE_SKIP, "true")
    seen = Evictions(stage)
    await apply(stage, gangs={})
    await ask(stage, COMPILED)
    await stage.until(lambda: at(stage) == others, within=1800)
    await stage.until(lambda: sum(stage.state(node) == State.DONE for node in stage.states()) == 2, within=1800)
    for node in others:
        await stage.label(node, names.UPGRADE_SKIP, None)
    return seen


@on_stage(gpu_nodes=4, kind=Alike)
async def test_a_gang_that_came_to_nodes_that_wait_is_spared_until_it_ends(stage: Stage) -> None:
    seen = await driven_on(stage)
    await stage.until(lambda: [stage.hold(node) for node in at(stage)] == ["GangSpared"] * 2)
    told = sentence(stage.operator.plan.holds[at(stage)[0]])
    assert told.startswith(f"starts once {TRAIN} has ended, which had to leave node gpu-")
    await stage.until(lambda: condition_of(stage)[1] == "GangSpared")
    remedies = [remedy.do for remedy in (await explanation_of(stage, at(stage)[0])).remedies]
    assert remedies == ["upgrade this node now", "take gangs from the RolloutPolicy"]
    await stage.restart_operator()
    await stage.rest(4 * 3600)
    assert len(seen.seen) == 2
    assert [stage.hold(node) for node in at(stage)] == ["GangSpared"] * 2
    stage.sandbox.apply(deployment("train", WORKLOAD_NAMESPACE, 0, gang_template()))
    await stage.upgraded()


@on_stage(gpu_nodes=4, kind=Alike)
async def test_when_its_time_is_up_a_spared_gang_leaves_together_once_more(stage: Stage) -> None:
    seen = await driven_on(stage)
    places = at(stage)
    await stage.until(lambda: stage.hold(places[0]) == "GangSpared")
    begun = min(moment for moment, _ in seen.seen.values())
    await stage.until(lambda: len(seen.seen) == 4, within=DAY + 3600)
    later = [moment for moment, node in seen.seen.values() if node in places]
    assert min(later) - begun >= DAY - 60
    assert max(later) - min(later) < 5
    await stage.upgraded()


@on_stage(gpu_nodes=4, kind=Alike)
async def test_a_gang_larger_than_the_limits_is_told_and_goes_in_parts(stage: Stage) -> None:
    await two_at_once(stage, COMPILED)
    await train(stage, 4)
    await apply(stage, gangs={})
    await ask(stage, COMPILED)
    await stage.until(lambda: "has pods on 4 nodes, and max" in condition_of(stage)[2], within=600)
    assert f"{TRAIN} has pods on 4 nodes, and max" in condition_of(stage)[2]
    await stage.upgraded()
    assert stage.most_in_progress <= 2


@on_stage(gpu_nodes=6, kind=Alike)
async def test_where_a_gang_leaves_nodes_of_one_nvidiadriver_those_of_another_come_next(stage: Stage) -> None:
    limits = {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": 1}
    await with_pools(stage, nvidia_driver("a", limits), nvidia_driver("b", limits))
    seen = [Evictions(stage, f"train-{node}") for node in ("gpu-1", "gpu-4")]
    for node in ("gpu-1", "gpu-4"):
        stage.run_pod(f"train-{node}", node, owned=True)
        body = {"metadata": {"labels": {names.JOBSET_NAME: "train"}}}
        await stage.user.patch_merge(resources.PODS, f"train-{node}", body, namespace=WORKLOAD_NAMESPACE)
    for node in ("gpu-2", "gpu-3"):
        await stage.label(node, names.UPGRADE_SKIP, "true")
    await apply(stage, gangs={})
    await stage.rest(10)
    for name in ("a", "b"):
        await set_driver(stage, name, {"version": NEW})
    await stage.until(lambda: all(each.seen for each in seen))
    (first, _), (second, _) = (next(iter(each.seen.values())) for each in seen)
    assert abs(first - second) < 5, "idle nodes of b would have come first"
