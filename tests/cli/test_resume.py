"""What `gpuward resume` writes, and what it says of it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.cli.resume import Resumed, forgiven, resume_rollout
from gpuward.crd.generate import all_crds
from gpuward.errors import GpuwardError, InputError
from gpuward.kube.http.client import Client
from gpuward.model.record import Failure, Record, encode_record
from gpuward.model.states import State
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import cpu_node
from kubesandbox.timeloop import run_virtual
from tests.journeys.stage import policy
from tests.journeys.test_nvidiadriver import nvidia_driver

SECOND_60 = "1970-01-01T00:01:00.000Z"


def node(name: str, failed_at: float = 0.0, owner: str = "") -> dict[str, Any]:
    body = cpu_node(name)
    if owner:
        body["metadata"]["labels"][names.DRIVER_OWNER] = owner
    failure = Failure(State.DRAIN_REQUIRED, "a pod stayed", failed_at) if failed_at else None
    body["metadata"]["annotations"][names.UPGRADE_RECORD] = encode_record(Record(State.FAILED, failure=failure))
    return body


def resume(now: float, *objects: dict[str, Any], driver: str = "") -> tuple[Resumed, dict[str, str]]:
    """Resume on a cluster of these objects; return what is said, and the annotations of the object that was written to."""

    async def play() -> tuple[Resumed, dict[str, str]]:
        sandbox = Sandbox()
        for obj in (*all_crds(), *objects):
            sandbox.apply(obj)
        done = await resume_rollout(Client(sandbox.transport()), now, driver)
        key = "nvidiadrivers.nvidia.com" if driver else "clusterpolicies.nvidia.com"
        return done, sandbox.store.get(key, None, done.policy)["metadata"]["annotations"]

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


def left_to_drivers(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"]["driver"]["useNvidiaDriverCRD"] = True
    return body


def test_an_nvidia_driver_is_resumed_alone_and_what_the_policy_forgave_is_not_counted_again() -> None:
    cluster = left_to_drivers(resumed_policy("1970-01-01T00:00:30Z"))
    nodes = node("n1", 20, "a"), node("n2", 50, "a"), node("n3", 55, "b")
    done, annotations = resume(60.0, cluster, nvidia_driver("a"), nvidia_driver("b"), *nodes, driver="a")
    assert (done.title, done.nodes) == ("NVIDIADriver a", ("n2",))
    assert annotations == {names.RESUMED_AT: SECOND_60}


@pytest.mark.parametrize(("cluster", "fix"), [
    ([left_to_drivers(policy()), nvidia_driver("pool-b")], "name an NVIDIADriver, such as pool-b"),
    ([left_to_drivers(policy())], "leave it out: there is none"),
    ([policy(), nvidia_driver("pool-a")], "leave it out: ClusterPolicy cluster-policy does not set driver.useNvidiaDriverCRD"),
])
def test_an_nvidia_driver_without_a_rollout_of_its_own_is_refused(cluster: list[dict[str, Any]], fix: str) -> None:
    with pytest.raises(InputError, match=f"--driver: 'pool-a' cannot be used: {fix}"):
        resume(60.0, *cluster, driver="pool-a")


def test_without_a_policy_there_is_nothing_to_resume() -> None:
    with pytest.raises(GpuwardError, match="there is no ClusterPolicy"):
        resume(60.0)


def test_what_is_said() -> None:
    never_resumed_before = forgiven(())
    assert never_resumed_before == (
        "no failed node counted against the failure budget; a new driver's trouble up to now holds no node any more")
    assert forgiven(("n1",)) == "1 failed node no longer counts against the failure budget (n1)"
    assert forgiven(tuple("abcdefghijkl")) == (
        "12 failed nodes no longer count against the failure budget (a, b, c, d, e, f, g, h, i, j and 2 more)")


def test_times_to_come_are_not_believed() -> None:
    """They would forgive what has yet to fail."""
    ahead = policy()
    ahead["metadata"]["annotations"] = {names.RESUMED_AT: "1970-01-01T05:00:00Z"}
    _, written = resume(60.0, ahead, node("a", failed_at=30.0), node("b", failed_at=1e9))
    assert written[names.RESUMED_AT] == SECOND_60
