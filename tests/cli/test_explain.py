"""What `gpuward explain` says of a node, asked of a cluster over HTTP that an operator has just left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from click.testing import CliRunner, Result

from gpuward import names
from gpuward.cli.aimed import aimed
from gpuward.cli.explain import with_event
from gpuward.cli.explanation import Explanation, explained
from gpuward.cli.leader import Leader, find_leader, judge
from gpuward.cli.look import Picture
from gpuward.cli.prospects import prospects
from gpuward.cli.unknown import unknown_node
from gpuward.cli.viewcommands import explain, status
from gpuward.errors import Forbidden, InputError
from gpuward.kube.http.client import Client
from gpuward.kube.http.transport import Response
from gpuward.kube.lease.rules import micro_time
from gpuward.model.plan import NodeStatus
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.rollout import RolloutSettings
from gpuward.model.states import State
from gpuward.model.undrainable import Behaviour, UndrainableSettings
from gpuward.policy.clusterpolicy import ActivePolicy
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.upgrade.decide import decide
from kubesandbox.api import ApiServer
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.server import HttpServer
from kubesandbox.store import Store
from kubesandbox.timeloop import LoopClock, run_virtual
from tests import build
from tests.build import policy
from tests.journeys.stage import Stage, playing
from tests.kube.scripted import Asked, ScriptedTransport, ok, refused
from tests.waits import held_by

NOW = 1_700_000_000.0
NONE = "no operator runs"
LOST = "this ends the pod: what it has not saved is lost, emptyDir volumes too; no controller starts ml/notebook again"
Ask = Callable[..., Result]


class Watched(ApiServer):
    """Serve a cluster to somebody who may only read, but not the Lease if that is forbidden."""

    hides_lease = False

    def handle(self, request: Request) -> Answer | Stream:
        if request.method != "GET" or (self.hides_lease and "/leases" in request.path):
            return refusal(Forbidden(f"{request.path} is forbidden"))
        return super().handle(request)


def left() -> Store:
    """Play until gpu-1 is held by a bare pod and gpu-2 is done; the operator renews its Lease once more, and ends."""

    async def play() -> Store:
        async with playing(Stage(gpu_nodes=2)) as here:
            await here.installed()
            here.run_pod("notebook", "gpu-1")
            await here.upgrade_to()
            await here.until(lambda: here.hold("gpu-1") == "ProtectedPods" and here.state("gpu-2") == "upgrade-done")
            now = int(here.clock.now())  # HTTP tells times in whole seconds
            here.sandbox.apply({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": names.LEADER_LEASE, "namespace": names.DEFAULT_NAMESPACE},
                "spec": {"holderIdentity": "gpuward-abc_1f2e", "leaseDurationSeconds": 15, "renewTime": micro_time(now - 3)},
            })
        return here.sandbox.store

    return run_virtual(play)


@pytest.fixture(scope="module")
def cluster() -> Store:
    return left()


@pytest.fixture
def ask(cluster: Store, tmp_path: Path) -> Iterator[Ask]:
    """Run a command against the cluster."""
    api = Watched(cluster)

    async def run(command: Any, arguments: tuple[str, ...]) -> Result:
        server = HttpServer(api)
        await server.start()
        file = tmp_path / "kubeconfig"
        file.write_text(server.kubeconfig())
        try:
            runner = CliRunner(env={"KUBECONFIG": str(file)})
            return await asyncio.to_thread(runner.invoke, command, [each.replace("FILE", str(file)) for each in arguments])
        finally:
            await server.stop()

    def asked(*arguments: str, command: Any = explain, hides_lease: bool = False) -> Result:
        api.hides_lease = hides_lease
        return asyncio.run(run(command, arguments))

    yield asked
    structlog.reset_defaults()


def test_a_held_node_is_explained_with_what_would_help(ask: Ask) -> None:
    lines = [line.rstrip() for line in ask("gpu-1").stdout.splitlines()]
    assert lines[1] == "OPERATOR  operator gpuward-abc renewed its Lease 3s ago"
    assert lines[2] == "POLICY    ClusterPolicy cluster-policy"
    assert lines[3].startswith("STATE     upgrade-required for ")
    assert lines[4] == "DRIVER    595.91.07 -> 595.91.08"
    assert lines[5].startswith("REASON    ProtectedPods: pod ml/notebook has to leave before the driver is replaced")
    assert lines[6] == "", "it has no turn: nobody else is before it"
    assert lines[-9:] == [
        "WHAT WOULD HELP",
        "  1. delete pod ml/notebook",
        "     -> this node starts at once",
        f"     warning: {LOST}",
        "     $ kubectl delete pod notebook -n ml",
        "  2. set podDeletion.force: true",
        "     -> this node starts at once",
        "     warning: on every node that is upgraded pods without a controller do not come back",
        "     $ kubectl patch clusterpolicy cluster-policy --type merge -p "
        "'{\"spec\":{\"driver\":{\"upgradePolicy\":{\"podDeletion\":{\"force\":true}}}}}'",
    ]


def test_commands_are_for_the_cluster_that_was_asked_about(ask: Ask) -> None:
    said = ask("gpu-1", "--context", "sandbox", "--kubeconfig", "FILE", "-o", "json")
    chosen = "--kubeconfig " + said.stdout.partition("kubectl --kubeconfig ")[2].partition(" ")[0] + " --context sandbox"
    first, second = json.loads(said.stdout)["remedies"]
    assert first["commands"] == [f"kubectl {chosen} delete pod notebook -n ml"]
    assert second["commands"][0].startswith(f"kubectl {chosen} patch clusterpolicy cluster-policy ")


@pytest.mark.parametrize(("command", "aims"), [
    ("gpuward resume", "gpuward resume --context b"),
    ("gpuward crds | kubectl apply -f -", "gpuward crds | kubectl --context b apply -f -"),
    ("gpuward bug-report -o x", "gpuward bug-report --context b -o x"),
    ("kubectl get pods", "kubectl --context b get pods"),
    ("kubectl label node kubectl-1 gpuward.io/x=y", "kubectl --context b label node kubectl-1 gpuward.io/x=y"),
])
def test_a_context_is_named_in_each_command(command: str, aims: str) -> None:
    assert aimed(command, None, "b") == aims
    assert aimed(command, None, None) == command
    assert aimed("kubectl get nodes", None, "a b; x") == "kubectl --context 'a b; x' get nodes"


def test_programs_get_the_same(ask: Ask) -> None:
    said = json.loads(ask("gpu-1", "-o", "json").stdout)
    assert (said["managed"], said["state"], said["reason"], said["turn"]) == (True, "upgrade-required", "ProtectedPods", None)
    assert said["operator"]["running"] is True
    assert [(pod["name"], pod["owner"]) for pod in said["pods"]] == [("ml/notebook", None)]
    assert said["remedies"][0] == {
        "do": "delete pod ml/notebook", "then": "this node starts at once", "commands": ["kubectl delete pod notebook -n ml"],
        "risk": LOST}


def test_a_node_that_is_done_needs_nothing(ask: Ask) -> None:
    said = json.loads(ask("gpu-2", "-o", "json").stdout)
    assert (said["state"], said["reason"], said["pods"], said["remedies"]) == ("upgrade-done", None, [], [])


def test_a_node_that_is_not_managed_is_told_why(ask: Ask) -> None:
    assert "not managed: node feature discovery found no GPU of NVIDIA's on it" in ask("cpu-1").stdout


def test_a_node_that_is_not_there_is_an_error(ask: Ask) -> None:
    assert ask("gpu-9").exit_code == 1


def test_a_lease_that_may_not_be_read_is_told_and_no_failure(ask: Ask) -> None:
    said = json.loads(ask("-o", "json", command=status, hides_lease=True).stdout)
    assert said["operator"]["running"] is None
    assert said["operator"]["message"].endswith("may not be read, so it is not known whether an operator runs")
    assert {node["name"]: node["reason"] for node in said["nodes"]} == {"gpu-1": "ProtectedPods", "gpu-2": None}


def test_the_table_tells_of_the_operator_too(ask: Ask) -> None:
    assert ask(command=status).stdout.splitlines()[1] == "operator gpuward-abc renewed its Lease 3s ago"


def emptied(until: float | None = NOW, state: State = State.POD_DELETION_REQUIRED) -> NodeStatus:
    return NodeStatus(state, 0.0, msgspec.structs.replace(held_by(Reason.EVICTING), until=until))


KILLING = policy(rollout=RolloutSettings(kill_at_deadline=True))
QUARANTINING = policy(rollout=RolloutSettings(undrainable=UndrainableSettings(Behaviour.QUARANTINE)))
DRAINING = policy(drain=DrainSettings(enable=True))


@pytest.mark.parametrize(("status", "rules", "told"), [
    (emptied(None), policy(), "They are waited for without limit"),
    (emptied(), policy(), "If the time is up before they have gone, the upgrade of this node fails"),
    (emptied(), DRAINING, "If the time is up before they have gone, the node is drained"),
    (emptied(state=State.DRAIN_REQUIRED), DRAINING, "If the time is up before they have gone, the upgrade of this node fails"),
    (emptied(), QUARANTINING, "What becomes of the node when the time is up stands under UNTIL"),
    (emptied(), KILLING, "Those that are still there when the time is up are deleted"),
])
def test_who_waits_for_pods_to_go_is_told_what_comes_next(status: NodeStatus, rules: UpgradePolicy, told: str) -> None:
    (note,) = prospects(status, rules)
    assert note == f"nothing has to be done yet: pods have their grace periods to end. {told}"


@pytest.mark.parametrize(("until", "told"), [(None, "are complete"), (NOW, "are complete or their time is up")])
def test_who_waits_for_jobs_is_told_first_that_nothing_has_to_be_done(until: float | None, told: str) -> None:
    hold = msgspec.structs.replace(held_by(Reason.JOBS_RUNNING), until=until)
    (note,) = prospects(NodeStatus(State.WAIT_FOR_JOBS_REQUIRED, 0.0, hold), policy())
    assert note == f"nothing has to be done: the node goes on as soon as its jobs {told}"


@pytest.mark.parametrize(("turn", "told"), [(31, []), (57, ["56 nodes start before it: its turn comes without anybody's help"])])
def test_a_node_far_down_the_queue_is_told_how_many_are_before_it(turn: int, told: list[str]) -> None:
    assert list(prospects(NodeStatus(State.UPGRADE_REQUIRED, 0.0, held_by(Reason.PARALLEL_LIMIT), turn=turn), policy())) == told


@pytest.mark.parametrize(("name", "near"), [("gpu1", "gpu-1"), ("1", "gpu-1, gpu-10"),
                                            ("x", "name a node of the cluster, such as cpu-2, gpu-1, gpu-10")])
def test_an_unknown_node_is_told_with_those_it_may_have_been_meant_as(name: str, near: str) -> None:
    error = unknown_node(name, ["gpu-1", "gpu-10", "cpu-2"])
    assert isinstance(error, InputError)
    assert near in str(error)


def lease(ago: float, holder: str = "gpuward-abc_1f2e", **spec: Any) -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": micro_time(NOW - ago), **spec}}


@pytest.mark.parametrize(("found", "running", "message"), [
    (lease(3), True, "operator gpuward-abc renewed its Lease 3s ago"),
    (lease(-2), True, "operator gpuward-abc renewed its Lease 0s ago"),
    (lease(3, "gpuward-abc"), True, "operator gpuward-abc renewed its Lease 3s ago"),
    (lease(40, leaseDurationSeconds=60), True, "operator gpuward-abc renewed its Lease 40s ago"),
    (lease(7500), False, f"{NONE}: gpuward-abc renewed its Lease 2h5m ago, and not since"),
    (lease(60, ""), False, f"{NONE}: the last one gave its Lease back 60s ago"),
    ({"spec": {}}, False, f"{NONE}: the Lease ns/name was never renewed"),
    (None, False, f"{NONE}: there is no Lease ns/name"),
    (lease(3, renewTime="soon"), False, f"{NONE}: the Lease ns/name was never renewed"),
])
def test_the_lease_tells_whether_an_operator_runs(found: dict[str, Any] | None, running: bool, message: str) -> None:
    leader = judge(found, NOW, "ns/name")
    assert (leader.running, leader.message) == (running, message)


OWN, ALL = "/namespaces/gpu-operator/leases/", "/leases"
HERE, ELSEWHERE = lease(3), {**lease(5, "nvidia-0_9f"), "metadata": {"name": names.LEADER_LEASE, "namespace": "nvidia"}}
UNLISTED = "Leases of other namespaces cannot be listed, so one may run in another"


@pytest.mark.parametrize(("own", "others", "running", "message"), [
    (HERE, 403, True, "operator gpuward-abc renewed its Lease 3s ago"),
    (404, [], False, f"{NONE}: there is no Lease gpu-operator/53822513.nvidia.com"),
    (404, [ELSEWHERE], True, "operator nvidia-0 renewed its Lease 5s ago, in namespace nvidia and not in gpu-operator"),
    (403, [{**lease(3), "metadata": {"name": names.LEADER_LEASE, "namespace": names.DEFAULT_NAMESPACE}}, ELSEWHERE], True,
     "operator gpuward-abc renewed its Lease 3s ago"),
    (403, [], False, f"{NONE}: there is no Lease gpu-operator/53822513.nvidia.com"),
    (403, [ELSEWHERE], True, "operator nvidia-0 renewed its Lease 5s ago, in namespace nvidia and not in gpu-operator"),
    (lease(7500), [{**ELSEWHERE, **lease(60)}], False, f"{NONE}: gpuward-abc renewed its Lease 2h5m ago, and not since"),
    (404, 403, None, f"{NONE}: there is no Lease gpu-operator/53822513.nvidia.com; {UNLISTED}"),
    (403, 403, None, "the Lease gpu-operator/53822513.nvidia.com may not be read, so it is not known whether an operator runs"),
    (500, 403, None, "the Lease gpu-operator/53822513.nvidia.com cannot be read now: no"),
])
def test_whatever_the_answers_about_leases_it_is_told(own: Any, others: Any, running: bool | None, message: str) -> None:
    """An answer is a refusal's status, a Lease, or a list of them."""
    def answer(asked: Asked) -> Response:
        found = own if asked.path.startswith("/apis/coordination.k8s.io/v1" + OWN) else others
        if isinstance(found, int):
            return refused(found, "Failure")
        return ok({"metadata": {}, "items": found} if isinstance(found, list) else found)

    async def main() -> Leader:
        return await find_leader(Client(ScriptedTransport(answer)), names.DEFAULT_NAMESPACE, LoopClock())

    leader = run_virtual(main, start=NOW)
    told = leader.message.removesuffix(" (by this machine's clock)")
    assert (leader.now, leader.running, told) == (NOW, running, message)


@pytest.mark.parametrize(("every", "running", "message"), [
    (2.0, True, "operator gpuward-abc renewed its Lease just now"),
    (1e9, False, f"{NONE}: gpuward-abc renewed its Lease 2h5m ago, and not since"),
])
def test_a_lease_that_is_renewed_holds_whatever_the_clocks_say(every: float, running: bool, message: str) -> None:
    """The clock of an operator's machine may be hours behind."""
    def answer(asked: Asked) -> Response:
        renewals = (asyncio.get_running_loop().time() - NOW) // every
        return ok(lease(7500 - renewals) if asked.path.endswith(names.LEADER_LEASE) else {"metadata": {}, "items": []})

    async def main() -> Leader:
        return await find_leader(Client(ScriptedTransport(answer)), names.DEFAULT_NAMESPACE, LoopClock())

    leader = run_virtual(main, start=NOW)
    assert (leader.running, leader.message.removesuffix(" (by this machine's clock)")) == (running, message)


@pytest.mark.parametrize(("date", "message"), [
    (True, "operator gpuward-abc renewed its Lease 3s ago"),
    (False, "operator gpuward-abc renewed its Lease 3s ago (by this machine's clock)"),
])
def test_an_age_by_another_clock_than_the_servers_is_told_as_one(date: bool, message: str) -> None:
    headers = {"Date": formatdate(NOW, usegmt=True)} if date else {}

    async def main() -> Leader:
        client = Client(ScriptedTransport(lambda asked: Response(200, headers, msgspec.json.encode(lease(3)))))
        return await find_leader(client, names.DEFAULT_NAMESPACE, LoopClock())

    leader = run_virtual(main, start=NOW)
    assert (leader.now, leader.message) == (NOW, message)


@pytest.mark.parametrize(("restarts", "told"), [(1, "restarted 1 time"), (3, "restarted 3 times")])
def test_restarts_are_counted(restarts: int, told: str) -> None:
    snapshot = build.cluster([build.under_way(State.POD_RESTART_REQUIRED)],
                             [build.driver_pod(driver="560", ready=False, restarts=restarts)])
    rules = build.policy()
    picture = Picture(snapshot, PoliciesInForce(ActivePolicy(None, upgrades=rules), (), in_force=False, known=False),
                      decide(snapshot, rules, build.ADMITTED), build.ADMITTED)
    (note,) = [note for note in explained(picture, "n0").notes if "restarted" in note]
    assert note.endswith(told)


def test_nodes_that_a_name_may_mean_are_offered_in_their_order() -> None:
    error = unknown_node("gpu-1x", [f"gpu-{number}" for number in (12, 11, 10, 14, 13)])
    assert "such as gpu-10, gpu-11, gpu-12" in str(error)


@pytest.mark.parametrize(("message", "shown"), [
    ("DriverStarting: waits for driver pod x to get ready", True), ("BudgetBlocks: disruption budget b lets none go", False),
    ("WriteRefused: the API server refuses changes", True)])
def test_an_event_of_another_reason_is_told_only_where_the_operator_alone_knows_it(message: str, shown: bool) -> None:
    status = NodeStatus(State.POD_RESTART_REQUIRED, NOW, held_by(Reason.DRIVER_STARTING))
    found = with_event(Explanation(build.node("gpu-1"), NOW, "", status=status), (NOW + 1, message))
    assert bool(found.event[1]) is shown
