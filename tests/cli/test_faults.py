"""`--fault`: what goes wrong where, what a demo with faults comes to, and what is refused before anything starts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import pytest

from gpuward.cli.faults import placed
from gpuward.cli.images import images_in
from gpuward.cli.story import Options, Story
from gpuward.errors import InputError
from gpuward.kube import resources
from gpuward.sandbox.images import nvidias
from gpuward.sandbox.known_faults import EVERYWHERE, KNOWN_FAULTS
from gpuward.sandbox.samples import sample_policy
from kubesandbox.timeloop import run_virtual
from tests.cli.test_commands import gpuward

OF_ONE_NODE = {
    "driver-crash": "failed in pod-restart-required",
    "driver-hangs": "failed in pod-restart-required",
    "toolkit-crash": "failed in validation-required",
    "validator-hangs": "failed in validation-required",
    "pod-does-not-end": "(terminating)",
    "budget-blocks": "disruption budget ml/guarded-gpu-1 would never let pod",
    "node-not-ready": "the node is not Ready",
    "node-unreachable": "the node is not Ready",
    "webhook-refuses": "denied the request: node gpu-1 is frozen",
    "image-missing": "failed in pod-restart-required",
}
"""What the demo says of the node that has the fault."""


def played(nodes: int, **options: object) -> tuple[Story, float | None]:
    """Play a demo in virtual time; return it, and how long its upgrade took, None when nodes are left."""
    async def main() -> tuple[Story, float | None]:
        story = Story(Options(sample_policy(), nodes=nodes, **options), lambda plan, unwritten: None)  # type: ignore[arg-type]
        await story.start()
        try:
            await story.install()
            return story, await story.upgrade()
        finally:
            await story.stop()
    return run_virtual(main)


def test_a_demo_goes_on_where_somebody_deletes_its_policy() -> None:
    async def main() -> float | None:
        story = Story(Options(sample_policy(), nodes=1, troubles={"gpu-1": ("driver-hangs",)}), lambda plan, unwritten: None)
        await story.start()
        try:
            await story.install()
            upgrade = asyncio.ensure_future(story.upgrade())
            await asyncio.sleep(60)
            await story.client.delete(resources.CLUSTER_POLICIES, story.policy_name)
            return await upgrade
        finally:
            await story.stop()
    assert run_virtual(main) is None


@pytest.mark.parametrize("fault", OF_ONE_NODE)
def test_a_demo_with_a_fault_ends_and_says_what_its_node_waits_for(fault: str) -> None:
    story, seconds = played(4, max_unavailable="100%", troubles={"gpu-1": (fault,)})
    assert seconds is None
    left = story.left()
    assert OF_ONE_NODE[fault] in left["gpu-1"]
    assert "fault" not in left["gpu-1"], "it tells what is seen, and not who did it"
    store = story.sandbox.store
    seen = [*(pod["status"] for pod in store.list("pods")), *store.list("events"), *left.values()]
    logs = [source() for source in story.sandbox.api.logs.sources.values()]
    assert not [text for text in map(str, (*seen, *logs)) if "fault" in text.replace("default", "") or "'s sandbox" in text]
    if "failed" in OF_ONE_NODE[fault]:
        assert list(left) == ["gpu-1"]
    assert story.tally.done == 4 - len(left) > 0
    are = "is" if len(left) == 1 else "are"
    assert story.left_over() == f"{len(left)} of 4 nodes {are} left without {story.new_version}: {', '.join(left)}"


def test_a_device_plugin_that_crashes_leaves_no_node_behind_and_is_told() -> None:
    story, seconds = played(4, troubles={"gpu-1": ("device-plugin-crash",)})
    assert seconds is None
    assert story.left() == {}
    assert "state-device-plugin" in story.stuck


def test_every_known_fault_is_played_here() -> None:
    assert {*OF_ONE_NODE, "device-plugin-crash"} == set(KNOWN_FAULTS)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_small_fleet_is_upgraded_too(nodes: int) -> None:
    story, seconds = played(nodes)
    assert seconds is not None
    assert story.tally.done == nodes
    # One node after the other: the last one waits, for this or that, nearly as long as the whole rollout takes.
    assert 0.8 * seconds < story.tally.longest.seconds <= seconds
    assert story.tally.longest.of_that <= story.tally.longest.seconds
    assert story.limit() == "1"


def test_a_limit_of_none_keeps_every_node_waiting_for_as_long_as_the_demo_looks_on() -> None:
    story, seconds = played(2, max_unavailable="0")
    assert seconds is None
    assert story.tally.longest.seconds > 300
    assert story.tally.longest.reason == "maxUnavailable allows 0: no node may be taken out of service"


def test_where_faults_come_to() -> None:
    assert placed(["driver-crash"], 12) == {"gpu-01": ("driver-crash",)}
    assert placed(["driver-crash=gpu-02,gpu-03", "validator-hangs=gpu-03"], 12) == {
        "gpu-02": ("driver-crash",), "gpu-03": ("driver-crash", "validator-hangs")}
    for fault in EVERYWHERE:
        assert placed([fault], 2) == placed([f"{fault}=all"], 2) == {"gpu-1": (fault,), "gpu-2": (fault,)}


@pytest.mark.parametrize(("option", "nodes", "why"), [
    ("drver-crash", 3, "there is no fault 'drver-crash'; did you mean driver-crash?"),
    ("", 3, "there is no fault ''"),
    ("nonsense", 3, "there is no fault 'nonsense'; there are driver-crash, "),
    ("driver-crash=gpu-01", 3, "there is no node 'gpu-01'; did you mean gpu-1?"),
    ("driver-crash=", 3, "there is no node ''; there are gpu-1, gpu-2, gpu-3"),
    ("driver-crash", 0, "there is no GPU node for driver-crash"),
])
def test_what_there_is_none_of_is_refused_with_the_nearest_that_there_is(option: str, nodes: int, why: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        placed([option], nodes)
    assert why in refused.value.message


@pytest.mark.parametrize("command", ["demo", "sandbox"])
def test_an_unknown_fault_is_a_usage_error_before_anything_starts(command: str) -> None:
    result = gpuward(command, "--fault", "image-misssing=gpu-01")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == (
        "Error: Invalid value for '--fault': there is no fault 'image-misssing'; did you mean image-missing?")


def test_a_demo_whose_fault_leaves_a_node_ends_well_and_says_so() -> None:
    result = gpuward("demo", "--nodes", "3", "--fault", "budget-blocks", "--speed", "300")
    assert result.returncode == 0, result.stderr
    assert "Now budget-blocks begins on gpu-1: " in result.stdout
    assert "2 of 3 nodes upgraded" in result.stdout
    assert "1 node is left without 595.91.08, and none has moved for 5m30s:\n  gpu-1  upgrade-required: disruption budget" in (
        result.stdout)
    assert "`gpuward explain gpu-1`" in result.stdout


def test_a_driver_version_that_does_not_exist_stops_at_the_first_node() -> None:
    story, seconds = played(2, to_version="595.91.x", has_image=nvidias)
    assert seconds is None
    assert story.tally.done == 0
    reasons = list(story.left().values())
    assert all("does not start: ImagePullBackOff" in one for one in reasons)
    assert ["no more nodes start" in one for one in reasons] == [False, True]


def test_which_images_exist(tmp_path: Path) -> None:
    file = tmp_path / "images"
    file.write_text("# ours\n\n  a/driver:*  \n")
    assert [images_in(option)("b/driver:x") for option in ("", "any", str(file))] == [False, True, False]
    assert images_in(str(file))("a/driver:x")
    with pytest.raises(InputError, match="--images"):
        images_in(str(tmp_path / "absent"))
