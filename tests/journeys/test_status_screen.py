"""What `gpuward status` shows: no more than is true, nothing that matters left out, and no line that does not fit."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, ConsoleDimensions, Group

from gpuward import names
from gpuward.cli.leader import Leader
from gpuward.cli.look import Look
from gpuward.cli.status import Choice, as_json, screen
from gpuward.cli.waiting import Waiting, stopped, why_not
from gpuward.errors import InputError, RolloutNotDone
from gpuward.kube import resources
from gpuward.model.reading import read_time
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import condition_of, explanation_of, looking, reason_of, screen_of, status_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage
from tests.journeys.test_nvidiadriver import make, nvidia_driver

SMALL, LARGE = ConsoleDimensions(80, 24), ConsoleDimensions(120, 40)


async def delete_pods(stage: Stage, app: str, node: str) -> None:
    for pod in stage.pods(app, node):
        await stage.user.delete(resources.PODS, pod["metadata"]["name"], names.DEFAULT_NAMESPACE)


async def shown(stage: Stage, size: ConsoleDimensions | None = None, **choice: object) -> list[str]:
    """Return the lines that a person sees on a terminal of a size, or in a file."""
    async with looking(stage) as picture:
        out = io.StringIO()
        told = Choice(**choice)  # type: ignore[arg-type]
        Console(file=out, width=size.width if size else 250, height=size.height if size else 100, highlight=False).print(
            Group(*screen(picture, Leader("operator here", picture.now), told, picture.now, size)))
        return [line.rstrip() for line in out.getvalue().splitlines()]


@on_stage(gpu_nodes=3)
async def test_a_quiet_fleet_is_told_of_in_a_few_lines(stage: Stage) -> None:
    await stage.installed()
    lines = await shown(stage)
    assert lines[0] == "ClusterPolicy cluster-policy: 3 of 3 nodes up to date"
    assert "  3 up to date" in lines
    assert any(line.startswith("operands  all ") for line in lines)
    assert [line.split()[:3] for line in lines if line.startswith("gpu-")] == [
        [f"gpu-{number}", "upgrade-done", OLD] for number in (1, 2, 3)]


@on_stage(gpu_nodes=3)
async def test_a_driver_that_crashes_is_the_first_thing_that_is_seen(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-2"))
    await delete_pods(stage, names.DRIVER_APP, "gpu-2")
    await stage.until(lambda: stage.hold("gpu-2") == "DriverFailing")
    lines = await shown(stage)
    assert lines[0] == "ClusterPolicy cluster-policy: 2 of 3 nodes up to date, 1 held"
    assert any("1 held" in line and "1 DriverFailing" in line for line in lines)
    (driver,) = [line for line in lines if line.startswith("  driver 2/3")]
    assert "gpu-2: container nvidia-driver-ctr" in driver
    assert "restart" in driver
    assert "its last exit code was 1" in driver
    (first, *_) = [line for line in lines if line.startswith("gpu-")]
    assert first.startswith("gpu-2")
    assert [line.split() for line in await shown(stage, held=True) if line.startswith("gpu-")] == [first.split()]
    assert [line for line in await shown(stage, failed=True) if line.startswith("gpu-")] == []


@on_stage(gpu_nodes=2)
async def test_a_node_that_is_tried_again_does_not_look_like_any_other(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == "upgrade-failed", within=7200)
    await stage.until(lambda: stage.state("gpu-1") == "pod-restart-required", within=7200)
    await stage.rest(5)
    (row,) = [line for line in await shown(stage) if line.startswith("gpu-1")]
    assert "attempt 2: waits for driver pod" in row


@on_stage(gpu_nodes=2)
async def test_an_operand_that_is_stuck_is_named_with_its_node_and_container(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1"))
    await delete_pods(stage, names.VALIDATOR_APP, "gpu-1")
    await stage.rest(60)
    assert any(line.startswith("  operator-validation 1/2  gpu-1: ") for line in await shown(stage))
    (told,) = [one for one in (await status_of(stage))["operands"] if one["waitsFor"]]
    assert (told["name"], told["ready"], told["desired"], told["stuck"]["node"]) == ("operator-validation", 1, 2, "gpu-1")


@on_stage(gpu_nodes=4, upgrade={"maxParallelUpgrades": 1})
async def test_a_pause_erases_nothing_of_what_is_known(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.until(lambda: list(stage.states().values()).count(State.DONE) == 2 and stage.drivers() == sorted([OLD, NEW]))
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY,
                                 {"spec": {"driver": {"upgradePolicy": {"autoUpgrade": False}}}})
    await stage.rest(300)
    nodes = {node["name"]: node for node in (await status_of(stage))["nodes"]}
    for name, node in nodes.items():
        loaded = stage.driver(name)
        assert (node["driver"]["loaded"], node["driver"]["wanted"]) == (loaded, NEW)
        caught = "under way" if node["state"] == State.POD_RESTART_REQUIRED else "on another driver"
        assert node["group"] == ("up to date" if loaded == NEW else caught), name
    lines = await shown(stage)
    assert lines[0].endswith("; automatic upgrades are off")
    assert not [line for line in lines if line.startswith("gpu-") and " unknown " in line]


@on_stage(gpu_nodes=3)
async def test_the_counts_of_groups_add_up_with_skipped_and_held_nodes(stage: Stage) -> None:
    await stage.installed()
    await stage.label("gpu-2", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to()
    await stage.until(lambda: stage.drivers() == sorted([OLD, NEW]) and stage.hold("gpu-2") == "Skipped")
    told = await status_of(stage)
    assert sum(group["nodes"] for group in told["groups"]) == told["counts"]["total"] == len(told["nodes"]) == 3
    assert {"group": "skipped", "nodes": 1, "reasons": {"Skipped": 1}} in told["groups"]


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x40"])
def test_a_large_fleet_fits_on_a_screen(size: ConsoleDimensions) -> None:
    @on_stage(gpu_nodes=60, upgrade={"maxParallelUpgrades": 3, "maxUnavailable": "25%"})
    async def story(stage: Stage) -> None:
        await stage.installed()
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-7"))
        await stage.upgrade_to()
        await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values())
        lines = await shown(stage, size)
        assert len(lines) < size.height
        assert max(map(len, lines)) <= size.width
        assert any(line.startswith("drivers   [") and "of 60 up to date" in line for line in lines)
        (last,) = [line for line in lines if line.startswith("and ")]
        rows = [line for line in lines if line.startswith("gpu-")]
        assert int(last.split()[1]) + len(rows) == 60
        assert len([line for line in await shown(stage) if line.startswith("gpu-")]) == 60, "a file has them all"

    story()


@on_stage(gpu_nodes=2)
async def test_without_discovery_it_is_said_what_is_missing(stage: Stage) -> None:
    def bare(node: dict[str, dict[str, dict[str, str]]]) -> None:
        labels = node["metadata"]["labels"]
        for key in [key for key in labels if key.startswith(names.NFD_PREFIX)]:
            del labels[key]

    for name in [node["metadata"]["name"] for node in stage.sandbox.store.list("nodes")]:
        stage.sandbox.store.modify("nodes", None, name, bare)
    await stage.rest(60)
    (first, *_) = await shown(stage)
    assert "no node has labels of node feature discovery" in first
    assert "kubectl label node" in first


@on_stage(gpu_nodes=1)
async def test_a_node_that_is_not_there_is_refused_with_the_nearest_name(stage: Stage) -> None:
    await stage.installed()
    async with looking(stage) as picture:
        with pytest.raises(InputError, match="such as gpu-1"):
            Choice(nodes=("gpu-11",)).of(picture)


@on_stage(gpu_nodes=1)
async def test_what_programs_read_has_an_operand_for_each_state(stage: Stage) -> None:
    await stage.installed()
    async with looking(stage) as picture:
        document = as_json(picture, Leader("", 0.0))
    operands = {one["name"] for one in document["operands"]}
    assert operands >= {"driver", "container-toolkit", "device-plugin", "operator-validation"}


@on_stage(gpu_nodes=2)
async def test_nodes_that_all_need_somebody_are_waited_for_in_vain(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(120)
    async with looking(stage) as picture:
        assert {stage.hold(node) for node in stage.states()} == {"NotSelected"}
        assert stopped(picture).startswith("DriversNotReady: 0 of 2 nodes up to date")


@on_stage(gpu_nodes=2)
async def test_without_an_operator_no_node_is_said_to_be_unknown_that_discovery_has_seen(stage: Stage) -> None:
    await stage.kill_operator()
    lines = "\n".join(await shown(stage, output="wide"))
    assert "no operator has labelled the nodes that have GPUs" in lines
    assert "no node with GPUs is known" not in lines
    assert "operands  0 of 8 ready: no operator has labelled the nodes that have GPUs" in await shown(stage)
    look = Look(stage.user, names.DEFAULT_NAMESPACE)
    async with look.following() as observer:
        with pytest.raises(RolloutNotDone, match="no operator runs"):
            await Waiting(0.01).over(look, observer)


@on_stage(gpu_nodes=2)
async def test_operands_whose_daemonsets_are_gone_are_named_one_by_one(stage: Stage) -> None:
    await stage.installed()
    await stage.kill_operator()
    gone = ("nvidia-device-plugin-daemonset", "gpu-feature-discovery")
    for name in gone:
        await stage.user.delete(resources.DAEMON_SETS, name, names.DEFAULT_NAMESPACE)
    await stage.rest(30)
    lines = await shown(stage)
    assert "operands  6 of 8 ready" in lines
    assert sum(line.endswith(" 0/0  its DaemonSet does not exist") for line in lines) == len(gone)


@on_stage(gpu_nodes=2)
async def test_who_waits_under_an_invalid_policy_is_told_of_it(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "abc")
    await stage.rest(60)
    async with looking(stage) as picture:
        assert stopped(picture).startswith("InvalidPolicy: ClusterPolicy cluster-policy cannot be followed: ")
        assert "maxUnavailable: 'abc'" in (told := why_not(picture, Leader("", 0.0)))
        assert "; apart from that 2 of 2 nodes up to date" in told


@on_stage(gpu_nodes=2)
async def test_what_is_wrong_with_a_clusterpolicy_is_said_once(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "abc")
    await stage.rest(60)
    lines = await screen_of(stage)
    assert "ClusterPolicy cluster-policy cannot be followed: " in lines[0]
    assert not [line for line in lines if "the ClusterPolicy is invalid" in line]


@pytest.mark.parametrize("timeout", [0.2, 1.0])
def test_a_fleet_that_is_done_is_done_within_any_time(timeout: float) -> None:
    @on_stage(gpu_nodes=1)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.rest(60)
        look = Look(stage.user, names.DEFAULT_NAMESPACE)
        async with look.following() as observer:
            await Waiting(timeout).over(look, observer)

    play()


@pytest.mark.parametrize(("limit", "broken"), [(0, False), (1, True)], ids=["no limit to speak of", "filled by a dead node"])
def test_a_rollout_that_cannot_start_is_not_said_to_go_on_by_itself(limit: int, broken: bool) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": limit, "maxParallelUpgrades": 1})
    async def story(stage: Stage) -> None:
        await stage.installed()
        if broken:
            stage.sandbox.disconnect("gpu-2")
            await stage.rest(120)
        await stage.upgrade_to(NEW)
        await stage.rest(300)
        screen = "\n".join(await shown(stage))
        assert "stopped, all for one reason" in screen
        assert "go on by themselves" not in screen
        told = await explanation_of(stage, "gpu-1")
        assert reason_of(told).startswith(f"maxUnavailable allows {limit}")
        assert ("gpu-2" in reason_of(told)) is broken
        assert any("maxUnavailable" in remedy.do for remedy in told.remedies)
        assert condition_of(stage)[:2] == ("False", "NoNodeMayStart")
        async with looking(stage) as picture:
            assert stopped(picture).startswith("NoNodeMayStart"), "whoever waits for its end would wait in vain"
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 2)
        await stage.until(lambda: (stage.driver("gpu-1"), stage.driver("gpu-3")) == (NEW, NEW), within=3600)

    story()


@on_stage(gpu_nodes=3)
async def test_a_rollout_of_which_skipped_nodes_alone_are_left_has_stopped(stage: Stage) -> None:
    await stage.installed()
    await stage.label("gpu-2", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to(NEW)
    await stage.rest(20)
    async with looking(stage) as picture:
        assert stopped(picture) == "", "others go on"
    await stage.until(lambda: (stage.driver("gpu-1"), stage.driver("gpu-3")) == (NEW, NEW) and not stage.cordons())
    await stage.rest(60)
    assert stage.driver("gpu-2") == OLD
    async with looking(stage) as picture:
        assert stopped(picture).startswith("Blocked: 2 of 3 nodes up to date"), "`status --wait` waited without end"
    await stage.label("gpu-2", names.UPGRADE_SKIP, None)
    await stage.rest(20)
    async with looking(stage) as picture:
        assert stopped(picture) == ""
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
async def test_driver_pods_whose_nodes_wait_for_their_turn_are_no_trouble_of_an_operand(stage: Stage) -> None:
    await stage.installed()
    await make(stage, nvidia_driver("default", {"maxUnavailable": 1}, default=True, version=NEW))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.until(lambda: "upgrade-done" in stage.states().values() and "upgrade-required" in stage.states().values()
                      and any(not pod["spec"].get("nodeName") for pod in stage.pods()))
    await stage.rest(10)
    told = await shown(stage)
    assert not [line for line in told if "Unschedulable" in line], told
    assert any(line.startswith("operands") and line.endswith("apart from nodes that are being upgraded, or wait to be")
               for line in told), told
    await stage.upgraded()


@on_stage(gpu_nodes=2)
async def test_nodes_that_no_driver_is_for_are_not_said_to_be_on_another_one(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(120)
    told = condition_of(stage)[2]
    assert "2 that no driver is for" in told
    assert "another driver" not in told
    assert "not ready" not in told


@on_stage(gpu_nodes=2, upgrade={"maxParallelUpgrades": 1})
async def test_80_columns_show_all_of_the_first_line(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "NewDriverFails" in {stage.hold(node) for node in stage.states()}, within=900)
    first, second, *_ = await shown(stage, SMALL)
    assert first.startswith("ClusterPolicy cluster-policy: 0 of 2 nodes up to date, 1 under way in trouble;")
    assert f"{first} {second.strip()}".endswith("; the rollout has stopped: the new driver does not come up on "
                                                + next(node for node in stage.states() if stage.driver(node) != OLD))


@on_stage(gpu_nodes=2)
async def test_a_choice_that_no_node_meets_is_told_apart_from_what_is_said_of_all(stage: Stage) -> None:
    await stage.installed()
    lines = await shown(stage, selector="foo=bar")
    assert lines[0] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date"
    assert lines[-1] == "no node matches --selector foo=bar: what is told above is about all nodes"


@on_stage(gpu_nodes=3)
async def test_all_of_it_stays_readable_on_80_columns(stage: Stage) -> None:
    """`-o wide` says everything: what does not fit a line goes on in the next one, and no name is cut or broken."""
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-2"))
    await delete_pods(stage, names.DRIVER_APP, "gpu-2")
    await stage.until(lambda: stage.hold("gpu-2") == "DriverFailing")
    lines = await shown(stage, SMALL, output="wide")
    assert max(map(len, lines)) <= SMALL.width
    assert not [line for line in lines if "…" in line]
    words = set(" ".join(lines).replace(",", "").split())
    (pod,) = stage.pods(names.DRIVER_APP, "gpu-2")
    assert {pod["metadata"]["name"], "nvidia-device-plugin-mps-control-daemon", "nvidia-container-toolkit-daemonset"} <= words
    assert {line.split()[0] for line in lines if line.startswith("gpu-")} >= {"gpu-1", "gpu-2", "gpu-3"}


@on_stage(gpu_nodes=2)
async def test_a_driver_that_was_replaced_by_hand_in_a_pause_is_up_to_date_since_then(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.upgrade_to(NEW)
    await stage.rest(1800)
    stage.sandbox.store.delete("pods", names.DEFAULT_NAMESPACE, stage.driver_pod("gpu-2")["metadata"]["name"])
    await stage.until(lambda: stage.driver("gpu-2") == NEW, within=600)
    await stage.rest(120)
    (since,) = {one["since"] for one in (await status_of(stage))["nodes"] if one["name"] == "gpu-2"}
    assert stage.clock.now() - read_time(since) < 300


@on_stage(gpu_nodes=3)
async def test_what_is_said_above_the_nodes_is_cut_only_where_all_does_not_fit(stage: Stage) -> None:
    await stage.installed()
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(30)
    lines = await shown(stage, SMALL)
    assert max(map(len, lines)) <= SMALL.width
    assert "A ClusterPolicy with driver.version: 595.91.07 brings the same back; another one replaces it" in " ".join(
        " ".join(lines).split())
    cut = await shown(stage, ConsoleDimensions(80, 4))
    assert len(cut) == 3
    assert cut[-1].endswith("…")
