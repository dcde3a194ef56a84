"""What `gpuward replay` makes of recordings: the same plans again, or in what they differ; explanations."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from gpuward.cli.commands import replay
from gpuward.errors import InputError
from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.recorder.recorder import Recorder
from gpuward.recorder.ring import PATTERN
from gpuward.recording.frame import Done, Entry
from gpuward.recording.journal import Journal
from gpuward.recording.operands import Concern, Decided, Judged, OperandPass, Told, Write
from gpuward.upgrade.decide import decide
from tests import build

WAITING = build.fleet(6, state=State.UPGRADE_REQUIRED, gpu_pods={5: 2})
LATER = build.fleet(6, state=State.UPGRADE_REQUIRED, states={0: State.DONE}, not_ready=[5])
TWO = build.policy(parallel=2)
AT, BEFORE, BETWEEN = "2023-11-14T22:13:20Z", "2023-11-14T22:13:19Z", "2023-11-14T22:13:25Z"


def decided(snapshot: Snapshot = WAITING, policy: UpgradePolicy = TWO, after: float = 0.0, plan: Plan | None = None) -> Entry:
    """Build a pass that decided about a fleet some seconds after NOW, as it should or as given."""
    now = build.NOW + after
    plan = plan or decide(snapshot, policy, now)
    outcomes = tuple(Done(number, "the API server said no" if number else "") for number in range(len(plan.actions)))
    return Entry(snapshot, (policy,), now, "cluster-policy", plan, outcomes)


def recorded(folder: Path, *passes: Entry) -> Path:
    """Record passes in a folder of their own."""
    recorder = Recorder(folder / "recordings", "1.2.3")
    for each in passes or (decided(), decided(LATER, after=10)):
        recorder.take(each)
    recorder.close()
    return folder / "recordings"


def run(*arguments: object) -> Result:
    """Run the command; what a person did wrong fails the test."""
    result = CliRunner().invoke(replay, [str(each) for each in arguments])
    if isinstance(result.exception, InputError):
        raise result.exception
    return result


def test_the_same_plans_come_out(tmp_path: Path) -> None:
    result = run(recorded(tmp_path))
    assert result.exit_code == 0
    assert "PASSES    2 recorded" in result.output
    assert "TIME      2023-11-14T22:13:20.000Z to 2023-11-14T22:13:30.000Z, 10s" in result.output
    assert "POLICIES  ClusterPolicy cluster-policy" in result.output
    assert "RESULT    every plan came out the same" in result.output


def test_a_plan_that_differs_is_said_and_fails(tmp_path: Path) -> None:
    folder = recorded(tmp_path, decided(plan=decide(WAITING, build.policy(parallel=1), build.NOW)), decided(LATER, after=10))
    result = run(folder)
    assert result.exit_code == 1
    assert "22:13:20.000Z  n1: then upgrade-required, ParallelLimit; now " in result.output
    assert "22:13:20.000Z  actions: then PatchNode n1; now PatchNode n1 (cordon-required -> " in result.output
    assert "RESULT    1 plan differs; that may be meant, as the versions do" in result.output
    (difference,) = json.loads(run(folder, "-o", "json").output)["differences"]
    assert difference["at"] == "2023-11-14T22:13:20.000Z"


def test_a_plan_that_differs_in_details_only_is_found_too(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(decided().plan, wake_at=1.0)
    assert "details of what nodes wait for" in run(recorded(tmp_path, decided(plan=plan))).output


def operands(*writes: Write, comparable: bool = True) -> tuple[OperandPass, Told]:
    """Build a pass over the operands of a cluster without a ClusterPolicy, in which something was decided all the same."""
    decided = Decided(writes, {"p": Judged("ready", "Reconciled")} if writes else {})
    return OperandPass(Concern.CLUSTER_POLICY, WAITING, build.NOW, decided), Told(decided, comparable=comparable)


def journalled(file: Path, *passes: tuple[OperandPass, Told]) -> Path:
    """Write a recording of passes that are told as given."""
    journal = Journal("1.2.3")
    (first, told), *others = passes
    pieces = [*journal.begin(first, told), *(piece for seen, more in others for piece in journal.add(seen, more))]
    file.write_bytes(b"".join(pieces))
    return file


def test_what_is_decided_about_operands_now_is_compared(tmp_path: Path) -> None:
    write = Write("ApplyObject", "DaemonSet ns/driver", "abc", why="state-driver wants it")
    result = run(journalled(tmp_path / "file", operands(), operands(write)))
    assert result.exit_code == 1
    assert "operands: then ApplyObject DaemonSet ns/driver (state-driver wants it); now none" in result.output
    assert "p: then ready, Reconciled; now nothing was said of it" in result.output
    assert "OPERANDS  2 recorded" in result.output
    assert "RESULT    1 plan differs" in result.output


def test_a_pass_that_depends_on_what_is_not_recorded_is_counted_and_not_compared(tmp_path: Path) -> None:
    write = Write("ApplyObject", "DaemonSet ns/driver", "abc")
    result = run(journalled(tmp_path / "file", operands(write, comparable=False)))
    assert result.exit_code == 0
    assert "OPERANDS  1 recorded, 1 not compared, as what is not recorded may decide there" in result.output


def test_a_decision_that_failed_and_does_no_more_is_a_difference(tmp_path: Path) -> None:
    failed = msgspec.structs.replace(decided(), plan=Plan(), error="KeyError")
    assert "the decision is made now; then it failed: KeyError" in run(recorded(tmp_path, failed)).output


def test_a_node_is_explained_where_something_was_decided_about_it_last(tmp_path: Path) -> None:
    result = run(recorded(tmp_path), "--node", "n5")
    assert result.exit_code == 0
    assert "OPERATOR  gpuward 1.2.3, at 2023-11-14T22:13:30.000Z" in result.output
    assert "REASON    NodeNotReady: the node is not Ready" in result.output
    assert "  2023-11-14T22:13:20.000Z  upgrade-required, ParallelLimit" in result.output
    assert "  2023-11-14T22:13:30.000Z  upgrade-required, NodeNotReady" in result.output


def test_a_node_is_explained_as_it_was_at_a_time_with_what_would_have_helped(tmp_path: Path) -> None:
    result = run(recorded(tmp_path), "--node", "n5", "--at", BETWEEN)
    assert "REASON    ParallelLimit: waits for its turn: 2 of 2 parallel upgrades under way (n0, n1)" in result.output
    assert "kubectl patch clusterpolicy cluster-policy" in result.output
    found = json.loads(run(recorded(tmp_path), "--node", "n5", "--at", BETWEEN, "-o", "json").output)
    assert found["at"] == "2023-11-14T22:13:20.000Z"
    assert found["explanation"]["reason"] == "ParallelLimit"
    assert [step["reason"] for step in found["history"]] == ["ParallelLimit"]


def test_a_moment_is_shown_with_what_was_done(tmp_path: Path) -> None:
    result = run(recorded(tmp_path), "--at", AT)
    assert "waits for its turn: 2 of 2 parallel upgrades under way (n0, n1)" in result.output
    assert "PatchNode n0 (cordon-required" in result.output
    assert "): done" in result.output
    assert "): failed: the API server said no" in result.output


def test_a_node_of_an_nvidiadriver_is_explained_under_its_policy(tmp_path: Path) -> None:
    node = build.node("n0", State.UPGRADE_REQUIRED, labels={"nvidia.com/gpu-operator.driver.owner": "pool"})
    snapshot = msgspec.structs.replace(build.cluster([node], [build.driver_pod("n0")]),
                                       daemonsets=(build.daemonset(driver="pool"),))
    policies = (build.policy(driver="pool", admit=False), build.policy(unowned=True, auto_upgrade=False))
    plan = decide(snapshot, policies[0], build.NOW)
    folder = recorded(tmp_path, Entry(snapshot, policies, build.NOW, "cluster-policy", plan))
    assert "POLICY    NVIDIADriver pool" in run(folder, "--node", "n0").output
    assert "POLICIES  ClusterPolicy cluster-policy, NVIDIADriver pool" in run(folder).output


def test_what_a_killed_process_left_half_is_said_and_left_out(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    (file,) = folder.glob(PATTERN)
    file.write_bytes(file.read_bytes()[:-5])
    result = run(file)
    assert result.exit_code == 0
    assert "PASSES    1 recorded" in result.output
    assert "bytes are left out: a record there is not whole" in result.output


@pytest.mark.parametrize(("arguments", "problem"), [
    (["--at", "yesterday"], "--at: 'yesterday' cannot be used: write a time with its zone"),
    (["--at", "2023-11-14T22:13:20"], "write a time with its zone"),
    (["--at", BEFORE], "the recording begins at 2023-11-14T22:13:20.000Z"),
    (["--node", "n55"], "NODE: 'n55' cannot be used: name a node of the recording, such as n5"),
])
def test_bad_options_are_named(tmp_path: Path, arguments: list[str], problem: str) -> None:
    with pytest.raises(InputError) as error:
        run(recorded(tmp_path), *arguments)
    assert problem in str(error.value)


def test_recordings_of_another_format_in_a_folder_are_said_and_left_out(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    (folder / PATTERN.replace("*", "00000000")).write_bytes(b"gpuward recording, format 1\n")
    result = run(folder)
    assert "is left out: it has format 1, and this gpuward reads 2 and 3: use an older one" in result.output
    assert "PASSES    2 recorded" in result.output


def test_a_file_to_which_nothing_was_written_does_not_hide_the_others(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    (folder / PATTERN.replace("*", "00000009")).touch()
    result = run(folder)
    assert "recording-00000009.gpuward is left out: nothing was written to it" in result.output
    assert "PASSES    2 recorded" in result.output


@pytest.mark.parametrize(("data", "problem"), [
    (None, "there is no such file"), (b"", "nothing was decided before it ends"),
    (b"kind: Pod", "it is not a recording of gpuward"),
    (b"gpuward recording, format 4\n", "it has format 4, and this gpuward reads 2 and 3: use a newer one"),
    (b"gpuward recording, format 2\n", "nothing was decided before it ends"),
])
def test_what_is_no_recording_is_named(tmp_path: Path, data: bytes | None, problem: str) -> None:
    if data is not None:
        (tmp_path / "file").write_bytes(data)
    with pytest.raises(InputError) as error:
        run(tmp_path / "file")
    assert problem in str(error.value)
    assert str(tmp_path / "file") in str(error.value)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no recording-\*\.gpuward is in it"):
        run(tmp_path)


def test_a_folder_of_several_clusters_names_those_that_are_in_it(tmp_path: Path) -> None:
    recorded(tmp_path / "state" / "here")
    (tmp_path / "state" / "here" / "recordings").rename(tmp_path / "state" / "there")
    with pytest.raises(InputError, match=r"no recording-\*\.gpuward is in it: name one of its folders: there"):
        run(tmp_path / "state")
