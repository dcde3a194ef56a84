"""Lanes: what fails stops its own lane and nothing else, and nobody writes who does not lead."""

from __future__ import annotations

import pytest

from gpuward.model.actions import EvictPod, PatchNode
from gpuward.model.views import NodeView, Ref
from tests.execute.bench import Bench, on_a_bench


def label(node: NodeView, key: str, value: str, *, expect: str | None = None) -> PatchNode:
    """Return the patch that labels a node."""
    return PatchNode(node.ref, labels={key: value}, expect_labels={key: expect}, has_annotations=node.has_annotations)


KEY = "nvidia.com/x"


@pytest.mark.weakness(27)
def test_a_failed_action_drops_the_rest_of_its_lane_only() -> None:
    async def play(bench: Bench) -> None:
        one, two = bench.node("gpu-1"), bench.node("gpu-2")
        outcomes = await bench.execute(
            label(one, KEY, "a", expect="not so"), label(one, KEY, "b"), label(two, KEY, "c"), label(two, KEY + "2", "d")
        )
        assert [(bool(outcome.error), outcome.dropped) for outcome in outcomes] == [
            (True, False), (False, True), (False, False), (False, False)]
        assert KEY not in bench.node("gpu-1").labels
        assert bench.node("gpu-2").labels[KEY] == "c"

    on_a_bench(play)


def test_own_writes_are_seen_at_once_and_a_conflict_is_settled_by_a_look() -> None:
    async def play(bench: Bench) -> None:
        bench.sandbox.store.modify("nodes", None, "gpu-1", lambda obj: obj["metadata"]["labels"].update({KEY: "theirs"}))
        (outcome,) = await bench.execute(label(bench.node("gpu-1"), KEY, "ours"))
        assert "precondition" in outcome.error
        assert bench.node("gpu-1").labels[KEY] == "theirs", "the conflict is looked into before the watch tells"
        await bench.execute(label(bench.node("gpu-1"), KEY, "ours", expect="theirs"))
        assert bench.node("gpu-1").labels[KEY] == "ours"

    on_a_bench(play)


def test_evictions_of_a_lane_go_out_after_its_patch_and_fail_one_by_one() -> None:
    async def play(bench: Bench) -> None:
        node = bench.node("gpu-1")
        pods = bench.pods("web")
        stranger = Ref(pods[1].namespace, pods[1].name, "another-uid")
        outcomes = await bench.execute(
            EvictPod(pods[0].ref, "gpu-1"), EvictPod(stranger, "gpu-1"), EvictPod(pods[2].ref, "gpu-1"), label(node, KEY, "a")
        )
        assert [bool(outcome.error) for outcome in outcomes] == [False, True, False, False]
        assert [pod.deleting for pod in bench.pods("web")[:3]] == [True, False, True]

    on_a_bench(play)


def test_evictions_are_dropped_when_the_patch_before_them_fails() -> None:
    async def play(bench: Bench) -> None:
        pod = bench.pods("web")[0]
        patch = label(bench.node("gpu-1"), KEY, "a", expect="not so")
        outcomes = await bench.execute(patch, EvictPod(pod.ref, "gpu-1"))
        assert outcomes[1].dropped
        assert not bench.pods("web")[0].deleting

    on_a_bench(play)


@pytest.mark.weakness(35)
def test_who_does_not_lead_writes_nothing() -> None:
    async def play(bench: Bench) -> None:
        before = bench.sandbox.store.version
        outcomes = await bench.execute(label(bench.node("gpu-1"), KEY, "a"), EvictPod(bench.pods("web")[0].ref, "gpu-2"))
        assert outcomes[0].error == outcomes[1].error == "this process does not lead any more"
        assert bench.sandbox.store.version == before

    on_a_bench(play, leads=False)
