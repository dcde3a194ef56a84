"""Domains of a RolloutPolicy: judged from nodes and driver pods, no more of one are out of service at once than it allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, State
from kubesandbox.sim.faults import Fault, FaultKind
from kubesandbox.sim.objects import is_ready
from kubesandbox.store import Event
from tests.journeys.looking import condition_of, explanation_of, obey, status_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver, set_driver, with_pools
from tests.journeys.test_removed import DEFAULT, MODES, NVIDIADRIVER, installed, remove
from tests.journeys.test_rolloutpolicy import apply, edit, status
from tests.journeys.test_waves import abort
from tests.journeys.test_windows import ask

RACK = "example.com/rack"
RACKS = {"gpu-1": "a", "gpu-2": "b", "gpu-3": "a", "gpu-4": "b", "gpu-5": "a", "gpu-6": "b"}
WIDE = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}


class Disturbed:
    """Watch which nodes are out of service, and how many of one domain, or in how many domains, at the worst."""

    def __init__(self, stage: Stage, racks: Mapping[str, str]) -> None:
        self.stage, self.racks = stage, dict(racks)
        self.nodes: dict[str, int] = defaultdict(int)
        """The most nodes of each domain that were out at once."""
        self.domains = 0
        """The most domains that had nodes out at once."""
        self.order: list[str] = []
        """The domains in the order in which nodes of them went out."""
        stage.sandbox.store.subscribe(self._saw)

    def out(self) -> set[str]:
        served = {pod["spec"]["nodeName"] for pod in driver_pods(self.stage) if is_ready(pod) and pod["spec"].get("nodeName")}
        return {node for node in self.racks if self.stage.cordoned(node) or node not in served
                or self.stage.state(node) in IN_PROGRESS}

    def _saw(self, event: Event) -> None:
        if event.resource_key not in ("nodes", "pods"):
            return
        by_domain: dict[str, set[str]] = defaultdict(set)
        for node in self.out():
            by_domain[self.racks[node]].add(node)
        for domain, nodes in by_domain.items():
            self.nodes[domain] = max(self.nodes[domain], len(nodes))
        self.domains = max(self.domains, len(by_domain))
        if len(by_domain) == 1 and [*by_domain] != self.order[-1:]:
            self.order += by_domain


async def racked(stage: Stage, racks: Mapping[str, str] = RACKS) -> None:
    for node, rack in racks.items():
        await stage.label(node, RACK, rack or None)


async def wide(stage: Stage, drivers: str, **domains: object) -> None:
    """Install a driver with the widest limits, and domains."""
    await racked(stage)
    await installed(stage, drivers, out=6)
    if drivers == NVIDIADRIVER:
        await set_driver(stage, DEFAULT, {"upgradePolicy": {**WIDE, "autoUpgrade": True}})
    else:
        await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 0)
    await apply(stage, domains={"key": RACK, **domains})
    await stage.rest(10)


def all_upgraded(stage: Stage, before: set[str]) -> Callable[[], bool]:
    return lambda: all(stage.driver(node) not in before for node in stage.states()) and stage.all_are(State.DONE)


@MODES
def test_no_two_nodes_of_a_domain_are_out_at_once(mode: str) -> None:
    @on_stage(gpu_nodes=6)
    async def scenario(stage: Stage) -> None:
        await wide(stage, mode)
        before, seen = set(stage.drivers()), Disturbed(stage, RACKS)
        await ask(stage, mode)
        await stage.until(all_upgraded(stage, before), within=7200)
        assert seen.nodes == {"a": 1, "b": 1}
        assert seen.domains == 2

    scenario()


@MODES
def test_a_domain_that_was_begun_is_finished_before_another_begins(mode: str) -> None:
    @on_stage(gpu_nodes=6)
    async def scenario(stage: Stage) -> None:
        await wide(stage, mode, mode="Whole")
        before, seen = set(stage.drivers()), Disturbed(stage, RACKS)
        await ask(stage, mode)
        await stage.until(all_upgraded(stage, before), within=7200)
        assert seen.domains == 1
        assert sorted(seen.order) == ["a", "b"]

    scenario()


@MODES
@pytest.mark.parametrize("kind", ["Spread", "Whole"])
def test_drivers_that_go_keep_to_domains_too(mode: str, kind: str) -> None:
    @on_stage(gpu_nodes=6)
    async def scenario(stage: Stage) -> None:
        await wide(stage, mode, mode=kind)
        under_way: list[set[str]] = []
        stage.sandbox.store.subscribe(lambda event: under_way.append({n for n, s in stage.states().items() if s in IN_PROGRESS}))
        await remove(stage, mode)
        await stage.until(lambda: not driver_pods(stage), within=7200)
        racks = [[RACKS[node] for node in nodes] for nodes in under_way]
        assert any(racks)
        assert max(len(set(each)) if kind == "Whole" else max(map(each.count, each), default=0) for each in racks) == 1

    scenario()


@on_stage(gpu_nodes=6, upgrade={**WIDE, "maxParallelUpgrades": 1})
async def test_one_by_one_a_domain_is_still_finished_first_and_its_size_is_told(stage: Stage) -> None:
    await racked(stage)
    await stage.installed()
    await apply(stage, domains={"key": RACK, "mode": "Whole"})
    await stage.rest(5)
    seen = Disturbed(stage, RACKS)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: any(state in IN_PROGRESS for state in stage.states().values()))
    await stage.rest(31)
    large = "domain a has 3 nodes, and maxParallelUpgrades lets only 1 go at once"
    assert any(large in sentence(hold) for hold in stage.operator.plan.holds.values())
    assert large in condition_of(stage)[2]
    await stage.upgraded(NEW, within=7200)
    assert seen.order == ["a", "b"]
    assert seen.domains == 1


@on_stage(gpu_nodes=6, upgrade=WIDE)
async def test_a_label_that_is_edited_in_mid_upgrade_breaks_no_promise(stage: Stage) -> None:
    await racked(stage)
    await stage.installed()
    await apply(stage, domains={"key": RACK})
    await stage.rest(5)
    seen = Disturbed(stage, RACKS)
    for node in ("gpu-3", "gpu-5"):
        await stage.label(node, names.UPGRADE_SKIP, "true")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") in IN_PROGRESS)
    await stage.label("gpu-1", RACK, None)  # as discovery does with the driver's own labels
    for node in ("gpu-3", "gpu-5"):
        await stage.label(node, names.UPGRADE_SKIP, None)
    await stage.restart_operator()
    await stage.upgraded(NEW, within=7200)
    assert seen.nodes["a"] == 1


@on_stage(gpu_nodes=6, upgrade=WIDE)
async def test_a_node_that_somebody_keeps_out_counts_and_what_would_help_is_told(stage: Stage) -> None:
    await racked(stage)
    await stage.installed()
    await apply(stage, domains={"key": RACK})
    await stage.cordon("gpu-1")
    await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
    await stage.rest(5)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: [stage.driver(node) for node in ("gpu-2", "gpu-4", "gpu-6")] == [NEW] * 3, within=3600)
    await stage.rest(300)
    assert [stage.driver(node) for node in ("gpu-1", "gpu-3", "gpu-5")] == [OLD] * 3
    assert stage.hold("gpu-3") == Reason.DOMAIN_BROKEN
    told = await explanation_of(stage, "gpu-3")
    assert [remedy.do for remedy in told.remedies] == [
        "uncordon node gpu-1, if it may serve again", "raise max of domains to 2"]
    assert "of a domain be out of service, and of a 1 is that no upgrade brings back (gpu-1)" in str(await status_of(stage))
    assert "(gpu-1)" in condition_of(stage)[2]
    for command in told.remedies[1].commands:
        await obey(stage, command)
    await stage.until(lambda: [stage.driver(node) for node in ("gpu-3", "gpu-5")] == [NEW] * 2, within=3600)


@pytest.mark.parametrize("mode", ["Spread", "Whole"])
@pytest.mark.parametrize("owned", [False, True])
def test_who_waits_behind_a_quarantined_node_is_told_that_somebody_has_to_act(mode: str, owned: bool) -> None:
    """With NVIDIADrivers the nodes of one wait behind a node of another one."""
    @on_stage(gpu_nodes=6, upgrade=WIDE)
    async def scenario(stage: Stage) -> None:
        await racked(stage)
        if owned:
            await with_pools(stage, nvidia_driver("a", WIDE), nvidia_driver("b", WIDE))
        else:
            await stage.installed()
        await stage.deploy("work", 2, node="gpu-2")  # so that the other rack goes first
        pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]
        kept = {"metadata": {"finalizers": ["example.com/kept"]}}
        await stage.user.patch_merge(resources.PODS, pod["name"], kept, pod["namespace"])
        await apply(stage, domains={"key": RACK, "mode": mode}, undrainable={"behaviour": "Quarantine", "after": "2m"})
        for name in "ab" if owned else ():
            await set_driver(stage, name, {"version": NEW})
        if not owned:
            await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-1") == Reason.QUARANTINED, within=7200)
        await stage.rest(3600)
        waiting = [node for node in RACKS if stage.driver(node) == OLD and node != "gpu-1"]
        assert {RACKS[node] for node in waiting} == {"a" if mode == "Spread" else "b"}
        assert {stage.hold(node) for node in waiting} == {Reason.DOMAIN_BROKEN}
        first = (await explanation_of(stage, waiting[0])).remedies[0]
        assert "gpu-1" in first.do + str(first.commands)

    scenario()


@on_stage(gpu_nodes=6, upgrade=WIDE)
async def test_a_half_done_domain_that_cannot_go_on_keeps_no_other_waiting(stage: Stage) -> None:
    await racked(stage)
    await stage.installed()
    await apply(stage, domains={"key": RACK, "mode": "Whole"})
    stage.run_pod("bare", "gpu-3")
    await stage.rest(5)
    seen = Disturbed(stage, RACKS)
    await stage.upgrade_to(NEW)
    others = [node for node in RACKS if node != "gpu-3"]
    await stage.until(lambda: all(stage.driver(node) == NEW and stage.state(node) == State.DONE for node in others), within=7200)
    assert (stage.hold("gpu-3"), seen.domains) == (Reason.PROTECTED_PODS, 1)


@pytest.mark.parametrize("canary", [1, 2, 3])
@pytest.mark.parametrize("most", [1, 2])
def test_a_canary_out_of_several_domains_is_done_and_the_others_follow(canary: int, most: int) -> None:
    @on_stage(gpu_nodes=6, upgrade=WIDE)
    async def scenario(stage: Stage) -> None:
        racks = {"gpu-1": "a", "gpu-2": "b", "gpu-3": "c", "gpu-4": "a", "gpu-5": "b", "gpu-6": "c"}
        await racked(stage, racks)
        await stage.installed()
        await apply(stage, domains={"key": RACK, "mode": "Whole", "max": most}, waves=[{"name": "canary", "nodes": canary}])
        await stage.rest(5)
        seen = Disturbed(stage, racks)
        await stage.upgrade_to(NEW)
        await stage.upgraded(NEW, within=7200)
        assert seen.domains <= most

    scenario()


@on_stage(gpu_nodes=6, upgrade=WIDE)
async def test_a_node_without_its_images_in_a_half_done_domain_keeps_no_other_waiting(stage: Stage) -> None:
    await racked(stage)
    await stage.installed()
    await apply(stage, domains={"key": RACK, "mode": "Whole"}, prestage={"mode": "Image"})
    await stage.rest(5)
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, node="gpu-3", image=f"*driver:{NEW}*"))
    await stage.upgrade_to(NEW)
    others = [node for node in RACKS if node != "gpu-3"]
    await stage.until(lambda: all(stage.driver(node) == NEW and stage.state(node) == State.DONE for node in others), within=7200)
    assert (stage.hold("gpu-3"), stage.driver("gpu-3")) == (Reason.STAGING_FAILED, OLD)


async def _until_its_canary_waits_for_approval(stage: Stage) -> None:
    await edit(stage, waves=[{"name": "canary", "nodes": 1, "approval": "Required"}])
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: stage.hold("gpu-3") == Reason.APPROVAL_REQUIRED)


async def _until_it_is_aborted(stage: Stage) -> None:
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.state("gpu-1") == State.DONE)
    await abort(stage, "a")
    await stage.until(lambda: stage.hold("gpu-3") == Reason.ABORTED)


@pytest.mark.parametrize("held", [_until_its_canary_waits_for_approval, _until_it_is_aborted])
def test_a_half_done_domain_whose_rollout_is_held_keeps_no_other_driver_waiting(held: Callable[[Stage], Awaitable[None]]) -> None:
    @on_stage(gpu_nodes=6)
    async def scenario(stage: Stage) -> None:
        await racked(stage, {node: "x" if node < "gpu-4" else "y" for node in RACKS})
        policy = {**WIDE, "autoUpgrade": True}
        first = nvidia_driver("a", {**policy, "maxParallelUpgrades": 1}, pool="a")
        await with_pools(stage, first, nvidia_driver("b", policy, pool="b"))
        await apply(stage, domains={"key": RACK, "mode": "Whole"})
        await stage.rest(10)
        await held(stage)
        await set_driver(stage, "b", {"version": NEW})
        await stage.until(lambda: stage.driver("gpu-4") == NEW and stage.state("gpu-4") == State.DONE, within=7200)
        assert stage.driver("gpu-3") == OLD

    scenario()


@on_stage(gpu_nodes=6)
async def test_domains_span_pools_of_several_nvidiadrivers(stage: Stage) -> None:
    await racked(stage)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    for number, node in enumerate(RACKS):
        await stage.label(node, "pool", "first" if number < 3 else "second")
    policy = {**WIDE, "autoUpgrade": True}
    await make(stage, *(nvidia_driver(name, policy, nodeSelector={"pool": name}, version=OLD) for name in ("first", "second")))
    await stage.until(lambda: stage.drivers() == [OLD] and len([p for p in driver_pods(stage) if is_ready(p)]) == 6, within=3600)
    await apply(stage, domains={"key": RACK})
    await stage.rest(120)
    seen = Disturbed(stage, RACKS)
    for name in ("first", "second"):
        await set_driver(stage, name, {"version": NEW})
    await stage.until(lambda: all(stage.driver(node) == NEW and stage.state(node) == State.DONE for node in RACKS), within=7200)
    assert seen.nodes == {"a": 1, "b": 1}


@on_stage(gpu_nodes=6)
async def test_a_node_that_is_out_of_service_counts_where_its_nvidiadriver_has_upgrades_off(stage: Stage) -> None:
    policy = {**WIDE, "autoUpgrade": True}
    await racked(stage)
    await label_pools(stage, a="gpu-1 gpu-2 gpu-3", b="gpu-4 gpu-5 gpu-6")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a", policy), nvidia_driver("b", {**policy, "autoUpgrade": False}))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD], within=3600)
    await apply(stage, domains={"key": RACK})
    await stage.cordon("gpu-4")
    await stage.rest(30)
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: all(stage.driver(node) == NEW and stage.state(node) == State.DONE for node in ("gpu-1", "gpu-3")))
    assert (stage.driver("gpu-2"), stage.hold("gpu-2")) == (OLD, Reason.DOMAIN_BROKEN)
    await stage.cordon("gpu-4", False)
    await stage.until(lambda: stage.driver("gpu-2") == NEW)


@on_stage(gpu_nodes=3, upgrade=WIDE)
async def test_nodes_without_the_label_are_domains_of_their_own(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, domains={"key": RACK, "mode": "Whole", "max": 2})
    await stage.rest(5)
    seen = Disturbed(stage, {node: node for node in stage.states()})
    await stage.upgrade_to(NEW)
    await stage.upgraded(NEW, within=7200)
    assert (seen.domains, set(seen.nodes.values())) == (2, {1})


@on_stage(gpu_nodes=3, upgrade=WIDE)
async def test_a_key_that_cannot_be_followed_starts_nothing_and_is_told(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, domains={"key": names.UPGRADE_STATE})
    await stage.rest(5)
    assert status(stage)["state"] == "invalid"
    assert "spec.domains.key" in str(status(stage)["conditions"])
    await stage.upgrade_to(NEW)
    await stage.rest(300)
    assert stage.drivers() == [OLD]
    await edit(stage, domains=None)
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=6, upgrade=WIDE)
async def test_operators_that_are_killed_again_and_again_keep_to_domains(stage: Stage) -> None:
    await racked(stage)
    await stage.installed()
    await apply(stage, domains={"key": RACK})
    await stage.rest(5)
    seen = Disturbed(stage, RACKS)
    await stage.upgrade_to(NEW)
    for _ in range(20):
        await stage.rest(7)
        await stage.restart_operator()
    await stage.upgraded(NEW, within=7200)
    assert max(seen.nodes.values()) == 1
