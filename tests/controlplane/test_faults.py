"""Rollouts on a real Kubernetes API while something goes wrong: limits hold at every moment, and the end is the same.

GPUWARD_FAULTS=full plays longer forms: more kills, and a network that is noticed only after a minute.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.controlplane.faults import (
    LIMIT,
    Account,
    LastingWatch,
    check_end,
    compact,
    gone_twice,
    holder,
    labels,
    late_writes,
    longest_pause,
    restart_api_server,
    standing,
    upgraded,
    wait_for_first,
)
from tests.controlplane.few import driver_pods, few_nodes, start_rollout
from tests.controlplane.plane import OPERATOR, NodeWatch, Plane, eventually
from tests.controlplane.proxy import Network, proxied
from tests.controlplane.steps import protect

pytestmark = [pytest.mark.controlplane, pytest.mark.xdist_group("few nodes")]

FULL = os.environ.get("GPUWARD_FAULTS") == "full"
NODES = 36 if FULL else 8
KILLS = 50 if FULL else 10
CHANGES = 1 if FULL else 3
"""Changes of nodes, at most, that an operator sees before it is killed."""
SEED = 20261121
VERSIONS = ("580.95.05", "580.82.07")
GOES_ON = 15.0
"""Seconds after the end of a leader within which the other one makes its first write."""
UNANSWERED = 30.0
"""Seconds after which a request without an answer is given up."""
SILENCE = 6.0
"""Seconds after which watches that are silent for ever are given up: when a renewal of the Lease has failed and the next one
has not."""
FLOWS = "flowcontrol.apiserver.k8s.io"
FLOW = {"apiVersion": f"{FLOWS}/v1", "kind": "FlowSchema", "metadata": {"name": "few"}, "spec": {
    "matchingPrecedence": 50, "priorityLevelConfiguration": {"name": "few"}, "rules": [{
        "subjects": [{"kind": "User", "user": {"name": OPERATOR}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}]}]}}
Measure = Callable[[str, object], None]
MOST_REFUSED = 400
"""Requests that may be refused in seconds: none of them is repeated without a pause."""


@pytest.fixture(scope="module")
def plane(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Keep a small control plane running, whose drivers take a little time, with workloads under a budget."""
    state = tmp_path_factory.mktemp("faults") / "run"
    with few_nodes(state, "--driver-seconds", "0.4", "--validator-seconds", "0.2", nodes=NODES, with_workloads=True) as plane:
        with plane.operator():
            plane.policy_ready()
        yield plane


@pytest.fixture
def version(plane: Plane) -> str:
    """Return another version of the driver than the present one."""
    present = plane.get("clusterpolicy/cluster-policy")["spec"]["driver"]["version"]
    return next(version for version in VERSIONS if version != present)


@pytest.fixture
def before(plane: Plane) -> dict[str, str]:
    """Return the driver pods before the rollout."""
    return driver_pods(plane)


@pytest.fixture
def lasting(plane: Plane) -> Iterator[LastingWatch]:
    with LastingWatch(plane) as watch:
        yield watch


@pytest.fixture(autouse=True)
def no_pass_fails(plane: Plane) -> Iterator[None]:
    """Check that no decision ended in a traceback, whatever went wrong."""
    log = plane.log()
    yield
    assert [line for line in log.lines() if "exception" in line or line["msg"] == "A pass failed"] == []


def roll(plane: Plane, version: str) -> None:
    """Start a rollout under the limit."""
    start_rollout(plane, version, maxParallelUpgrades=LIMIT)


def test_the_api_server_is_killed(plane: Plane, lasting: LastingWatch, version: str, before: dict[str, str]) -> None:
    """So is the history of its storage: all that follow something have to list it anew."""
    with plane.operator():
        roll(plane, version)
        wait_for_first(lasting, 1)
        compact(plane)
        wait_for_first(lasting, 2)
        compact(plane)
        restart_api_server(plane)
        lasting.wait_for_rollout()
    check_end(plane, lasting, version, before)


@pytest.mark.parametrize("trouble", [Network.RESETS, Network.SILENT])
def test_the_network_fails(plane: Plane, lasting: LastingWatch, version: str, before: dict[str, str], trouble: Network) -> None:
    with proxied(plane.port) as proxy, standing(plane, Account(plane, f"https://127.0.0.1:{proxy.port}")):
        roll(plane, version)
        wait_for_first(lasting, 2)
        begun = len(lasting.moments)
        proxy.turn(trouble)
        time.sleep(6)
        meanwhile = upgraded(lasting)
        assert len(meanwhile) < NODES, f"{len(lasting.moments) - begun} changes without a network"
        proxy.turn(Network.FINE)
        lasting.wait_for_rollout()
    check_end(plane, lasting, version, before)


@pytest.mark.parametrize("flags", [("--leader-elect",), ()])
def test_connections_die_silently(plane: Plane, lasting: LastingWatch, version: str, before: dict[str, str],
                                  flags: tuple[str, ...], record_property: Measure) -> None:
    """Those that are open when it begins; new ones are fine."""
    with plane.audited() as requests, proxied(plane.port) as proxy:
        account = Account(plane, f"https://127.0.0.1:{proxy.port}")
        with standing(plane, account, *flags):
            roll(plane, version)
            wait_for_first(lasting, 2)
            died = time.time()
            proxy.turn(Network.HALF_OPEN)
            lasting.wait_for_rollout()
    check_end(plane, lasting, version, before)
    pause, meanwhile = longest_pause(account.asked(requests), died)
    record_property("standstill", pause)
    assert pause < SILENCE + UNANSWERED + 5, meanwhile


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_the_leader_is_lost(plane: Plane, lasting: LastingWatch, version: str, before: dict[str, str],
                            end: signal.Signals, record_property: Measure) -> None:
    """One that was only stopped finds when it wakes that another one leads, and writes nothing any more."""
    accounts = Account(plane), Account(plane)
    earlier = holder(plane)
    with plane.audited() as requests, standing(plane, accounts[0], "--leader-elect") as first:
        eventually("the first one leads", lambda: holder(plane) not in ("", earlier))
        leader, log = holder(plane), plane.log()
        with standing(plane, accounts[1], "--leader-elect"):
            eventually("the second one stands by", lambda: any(line["msg"] == "Listed the cluster" for line in log.lines()))
            roll(plane, version)
            wait_for_first(lasting, 1)
            first.send_signal(end)
            lost = time.time()
            eventually("the second one leads", lambda: holder(plane) not in ("", leader))
            woken = time.time()
            first.send_signal(signal.SIGCONT)
            lasting.wait_for_rollout()
    check_end(plane, lasting, version, before)
    assert accounts[0].asked(requests) != []
    assert late_writes(accounts[0].asked(requests), woken) == {}
    took = next(iter(late_writes(accounts[1].asked(requests), 0))) - lost
    record_property("went on after", took)
    assert 0 < took < GOES_ON
    assert gone_twice(requests) == []


@pytest.mark.since("1.32")
def test_the_api_server_is_overloaded(plane: Plane, lasting: LastingWatch, version: str, before: dict[str, str]) -> None:
    """API priority and fairness answers the operator 429 for some seconds, and then lets few requests through at a time."""
    restart_api_server(plane, "--enable-priority-and-fairness=true", "--max-requests-inflight=40",
                       "--max-mutating-requests-inflight=20")
    try:
        plane.kubectl("apply", "-f", "-", given=json.dumps(share(1)))
        plane.kubectl("apply", "-f", "-", given=json.dumps(FLOW))
        with plane.audited() as requests, plane.operator():
            roll(plane, version)
            wait_for_first(lasting, 2)
            plane.kubectl("apply", "-f", "-", given=json.dumps(share(0)))
            time.sleep(5)
            plane.kubectl("apply", "-f", "-", given=json.dumps(share(1)))
            lasting.wait_for_rollout()
    finally:
        restart_api_server(plane, "--enable-priority-and-fairness=false", "--max-requests-inflight=2000",
                           "--max-mutating-requests-inflight=1000")
    check_end(plane, lasting, version, before)
    refused = [entry for entry in requests if entry["user"]["username"] == OPERATOR and entry["responseStatus"]["code"] == 429
               and entry["objectRef"].get("subresource") != "eviction"]
    assert refused != []
    assert len(refused) < MOST_REFUSED
    assert gone_twice(requests) == []


def share(shares: int) -> dict[str, object]:
    """Return a priority level that gives the operator so many shares, and refuses what is beyond them."""
    return {"apiVersion": f"{FLOWS}/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": "few"},
            "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": shares, "lendablePercent": 0,
                                                    "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}}


def test_the_operator_is_killed(plane: Plane, version: str, before: dict[str, str]) -> None:
    """At random moments of one rollout, over and over: the end is as after any other, and nothing is done twice.

    An eviction that is broken off may take its budget's room for two minutes, so that there has to be room for several.
    """
    protect(plane, 4)
    as_before = labels(plane)
    moments = random.Random(SEED)
    killed = 0
    with plane.audited() as requests, NodeWatch(plane) as watch:
        roll(plane, version)
        while killed < KILLS and len(upgraded(watch)) < NODES:
            with standing(plane, Account(plane)) as operator:
                seen, more = len(watch.moments), moments.randint(1, CHANGES)
                watch.wait_for("changes", lambda now: len(watch.moments) >= seen + more or len(upgraded(watch)) == NODES)  # noqa: B023
                time.sleep(moments.uniform(0.0, 0.15))
                operator.kill()
                killed += 1
        with plane.operator():
            watch.wait_for_rollout()
    assert killed == KILLS
    check_end(plane, watch, version, before)
    assert labels(plane) == as_before
    assert gone_twice(requests) == []
