"""Write a test of a decision: the facts that it needs, the policy, the time, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpuward.cli.rerun import Rerun, picture
from gpuward.errors import InputError
from gpuward.model.record import format_time
from gpuward.recording.frame import recorded_actions
from tools.testwriter.literal import Literals, quoted
from tools.testwriter.minimal import DecisionCase, NodePlans, minimal, verdict

_TEST = '''{about}
# Taken from a recording. Facts that made no difference were left out. Say here what the incident was.

{imports}

NOW = {now}
NODES = {nodes}
POLICY = {policy}
CLUSTER = {cluster}


def test_the_decision_of_{moment}() -> None:
    plan = decide(CLUSTER, POLICY, NOW)
    assert [action for action in plan.actions if action.lane in NODES] == {actions}
    assert {{name: (plan.nodes[name].state, plan.nodes[name].hold) for name in NODES}} == {holds}
'''


def write_test(again: Rerun, node: str | None, path: Path) -> str:
    """Write a pytest file that asserts what is decided about a node or, without one, about those that something is done about.

    Returns what it is about, in a few words.

    Raises:
        InputError: there is nothing to assert, or the file cannot be written.
    """
    names = (node,) if node is not None else _acted_on(again, path)
    case = DecisionCase(again.moment.snapshot, picture(again).upgrades(names[0]), again.moment.at)
    wanted = verdict(case, names)
    if wanted is None:
        raise InputError("--node", names[0], "nothing was decided about it then: name a node that is managed at that time")
    case = minimal(case, names, wanted)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_source(again, names, case, wanted))
    except FileExistsError:
        raise InputError("FILE", str(path), "the file is there already: name another one") from None
    except OSError as error:
        raise InputError("FILE", str(path), f"it cannot be written: {error.strerror}") from error
    return f"asserts what is decided about {', '.join(names)} at {format_time(case.now)}, on facts of {_nodes(case)}"


def _acted_on(again: Rerun, path: Path) -> tuple[str, ...]:
    lanes = dict.fromkeys(action.lane for action in recorded_actions(again.plan))
    names = tuple(name for name in lanes if name in again.moment.snapshot.nodes)
    policies = picture(again)
    same = tuple(name for name in names if policies.upgrades(name) == policies.upgrades(names[0]))
    if not same:
        raise InputError("FILE", str(path), "nothing is done about any node at that time: name one with --node")
    return same


def _nodes(case: DecisionCase) -> str:
    count = len(case.snapshot.nodes)
    return "1 node" if count == 1 else f"{count} nodes"


def _source(again: Rerun, names: tuple[str, ...], case: DecisionCase, wanted: NodePlans) -> str:
    literals = Literals()
    holds: Mapping[str, object] = wanted.nodes
    parts = {
        "nodes": literals.text(names, "NODES = "),
        "policy": literals.text(case.policy, "POLICY = "),
        "cluster": literals.text(case.snapshot, "CLUSTER = "),
        "actions": literals.text(list(wanted.actions), "    " + "." * 76, indent=4),
        "holds": literals.text(holds, "    " + "." * 88, indent=4),
    }
    literals.use("gpuward.upgrade.decide", "decide")
    about = f"What gpuward {again.moment.gpuward} decided about {', '.join(names)} at {format_time(case.now)}."
    moment = format_time(case.now).replace("-", "").replace(":", "").partition(".")[0].lower()
    return _TEST.format(
        about=quoted(about, '"""'), now=literals.text(case.now, "NOW = "), moment=moment, imports=literals.imports(), **parts,
    )
