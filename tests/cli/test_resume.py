"""What `gpuward resume` writes, and what it says of it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.cli.resume import Resumed, forgiven, resume_rollout
from gpuward.crd.generate import all_crds
from gpuward.errors import GpuwardError
from gpuward.kube.client import Client
from gpuward.model.record import Failure, Record, encode_record
from gpuward.model.states import State
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import cpu_node
from gpuward.sandbox.timeloop import run_virtual
from tests.journeys.stage import policy

SECOND_60 = "1970-01-01T00:01:00.000Z"


def node(name: str, failed_at: float = 0.0) -> dict[str, Any]:
    body = cpu_node(name)
    failure = Failure(State.DRAIN_REQUIRED, "a pod stayed", failed_at) if failed_at else None
    body["metadata"]["annotations"][names.UPGRADE_RECORD] = encode_record(Record(State.FAILED, failure=failure))
    return body


def resume(now: float, *objects: dict[str, Any]) -> tuple[Resumed, dict[str, str]]:
    """Resume on a cluster of these objects; return what is said, and the annotations of the first policy."""

    async def play() -> tuple[Resumed, dict[str, str]]:
        sandbox = Sandbox()
        for obj in (*all_crds(), *objects):
            sandbox.apply(obj)
        done = await resume_rollout(Client(sandbox.transport()), now)
        return done, sandbox.store.get("clusterpolicies.nvidia.com", None, done.policy)["metadata"]["annotations"]

    return run_virtual(play)


def resumed_policy(text: str) -> dict[str, Any]:
    body = policy()
    body["metadata"]["annotations"] = {names.RESUMED_AT: text, "theirs": "kept"}
    return body


def test_failures_up_to_now_are_forgiven_and_named() -> None:
    done, annotations = resume(60.0, policy(), node("n1", 20), node("n2", 50), node("n3"))
    assert (done.policy, done.nodes) == ("cluster-policy", ("n1", "n2"))
    assert annotations[names.RESUMED_AT] == SECOND_60


def test_those_that_were_forgiven_already_are_not_counted_again() -> None:
    done, annotations = resume(60.0, resumed_policy("1970-01-01T00:00:30Z"), node("n1", 20), node("n2", 50))
    assert done.nodes == ("n2",)
    assert annotations == {names.RESUMED_AT: SECOND_60, "theirs": "kept"}


@pytest.mark.parametrize(("before", "failed_at"), [("1970-01-01T00:00:30Z", 60), (SECOND_60, 5)])
def test_a_clock_behind_the_operators_forgives_all_the_same(before: str, failed_at: float) -> None:
    assert resume(40.0, resumed_policy(before), node("n1", failed_at))[1][names.RESUMED_AT] == SECOND_60


def test_an_annotation_that_is_no_time_is_replaced() -> None:
    assert resume(60.0, resumed_policy("yesterday"))[1][names.RESUMED_AT] == SECOND_60


def test_the_policy_in_force_is_the_one_that_is_resumed() -> None:
    assert resume(60.0, policy("b"), policy("a"))[0].policy == "a", "the first by name where two are equally old"


def test_without_a_policy_there_is_nothing_to_resume() -> None:
    with pytest.raises(GpuwardError, match="there is no ClusterPolicy"):
        resume(60.0)


def test_what_is_said() -> None:
    assert forgiven(()) == "no node has failed since it was resumed last"
    assert forgiven(("n1",)) == "1 failed node no longer counts against the failure budget (n1)"
    assert forgiven(tuple("abcdefghijkl")) == (
        "12 failed nodes no longer count against the failure budget (a, b, c, d, e, f, g, h, i, j and 2 more)")
