"""What strangers choose, in a cluster and all the more in a recording, is shown and obeyed by nobody."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from gpuward import names
from gpuward.cli import logs, terminal
from gpuward.cli.commands import replay
from gpuward.cli.main import _fail
from gpuward.cli.resume import Resumed
from gpuward.cli.screen import Screen
from gpuward.cli.terminal import as_json, console, printable, say, say_bug
from gpuward.cli.view import node_rows, node_table
from gpuward.errors import GpuwardError
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.recording.frame import Done, Entry
from gpuward.recording.journal import Journal
from gpuward.report.nodes import node_reports
from gpuward.upgrade.decide import decide
from tests import build

CANARY = "gpuward-canary"
EVIL = ('\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\r\n\t\u202e\u2066\u200b\u2028\ufeff"\'\\{0}{version}[red]'
        f'"""\nopen("{CANARY}", "w")\n"""'
        f"'''\nopen('{CANARY}', 'w')\n# #{{")
KEPT = {
    *(value for value in vars(names).values() if isinstance(value, str)), *(str(state) for state in State),
    "DaemonSet", "ReplicaSet", "Job", "Node", "ClusterPolicy", "NVIDIADriver", "Running", "Pending", "Succeeded", "Failed",
    "app", "app.kubernetes.io/component", "nvidia-driver", "true", "false", "nvidia-operator-validator", "OnDelete",
    "controller-revision-hash", "pod-template-generation",
}
"""Words that decisions know. All other texts may be anything."""


def hostile(value: Any) -> Any:
    """Return a value with a hostile end on each text in it, mapping keys too, but for the words that decisions know."""
    if isinstance(value, Enum) or value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if value in KEPT or not value else value + EVIL
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{key: hostile(getattr(value, key)) for key in value.__struct_fields__})
    if isinstance(value, Mapping):
        return {hostile(key): hostile(each) for key, each in value.items()}
    return type(value)(hostile(each) for each in value)


def world() -> Snapshot:
    """Return a fleet with all that a recording knows: every kind of object, and every kind of text."""
    nodes = [
        build.node("n0", State.UPGRADE_REQUIRED, labels={"pool": "a"}, annotations={"note": "x"}),
        build.under_way(State.POD_DELETION_REQUIRED, name="n1"),
        build.node("n2", State.DONE),
    ]
    pods = [pod for name in ("n0", "n1", "n2") for pod in (build.driver_pod(name), build.validator(name))]
    held = build.pod("n0", "web", holds="env NVIDIA_VISIBLE_DEVICES=all", labels={"team": "t"})
    trained = build.gpu_pod("n1", "train", labels={"team": "t"})
    bare = build.gpu_pod("n0", "notebook", owner=None)
    return build.cluster(nodes, [*pods, held, trained, bare])


def recording(folder: Path) -> Path:
    """Record one pass over the hostile fleet, by a hostile version, with hostile answers."""
    snapshot, policy = hostile(world()), build.policy(parallel=1)
    plan = decide(snapshot, policy, build.NOW)
    assert len(plan.nodes) == 3
    outcomes = tuple(Done(number, EVIL) for number in range(len(plan.actions)))
    seen = Entry(snapshot, (policy,), build.NOW, "cluster-policy" + EVIL, plan, outcomes)
    file = folder / "recording-00000001.gpuward"
    file.write_bytes(b"".join(Journal("1.0" + EVIL).begin(seen)))
    return file


def texts(data: Any) -> Iterator[str]:
    """Yield all texts in JSON data."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for each in [*data, *data.values()] if isinstance(data, dict) else data:
            yield from texts(each)


def harmless(text: str) -> None:
    """Make sure that a terminal only shows a text."""
    assert [unicodedata.name(char, hex(ord(char))) for char in text if not char.isprintable() and char != "\n"] == []


def test_nothing_that_a_terminal_obeys_is_left() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    shown = printable(every)
    assert shown.isprintable()
    assert shown.isascii() is False, "letters of all scripts are shown as they are"
    kinds = {unicodedata.category(char) for char in shown}
    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert printable("Größe: 訓練 [red] {x}") == "Größe: 訓練 [red] {x}"
    assert printable("\x1b[2J\u202eab\x9b\n") == "\\x1b[2J\\u202eab\\x9b\\n"


@pytest.mark.parametrize("options", [
    [], ["--at", "2023-11-14T22:13:20Z"], *(["--node", name + EVIL] for name in ("n0", "n1", "n2", "nowhere")),
])
def test_a_replay_shows_hostile_texts_and_obeys_none(tmp_path: Path, options: list[str]) -> None:
    result = CliRunner().invoke(replay, [str(recording(tmp_path)), *options])
    harmless(result.output)
    if result.exception is None or isinstance(result.exception, SystemExit):
        assert "\\x1b[2J" in result.output, "what is there is shown"
        told = CliRunner().invoke(replay, [str(recording(tmp_path)), *options, "-o", "json"]).output
        harmless(told)
        assert any(EVIL in text for text in texts(json.loads(told))), "programs get what is there, unchanged"


def test_all_that_is_printed_passes_one_module() -> None:
    """Only what nobody else writes, the CRDs and the scripts for shells, is printed as it is, and manifests: YAML escapes."""
    folder = Path(terminal.__file__).parent
    printing = {file.name for file in folder.glob("*.py") if "click.echo(" in file.read_text()}
    assert printing == {"terminal.py", "crds.py", "completion.py", "render.py", "shadow.py"}


def test_json_is_exact_and_harmless() -> None:
    harmless(as_json({EVIL: [EVIL]}))
    assert json.loads(as_json({EVIL: [EVIL]})) == {EVIL: [EVIL]}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_table_and_the_demo_show_hostile_texts(is_terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    plan = decide(hostile(world()), build.policy(), build.NOW)
    shown = Console(force_terminal=is_terminal, no_color=True, color_system=None, width=4000)
    screen = Screen(shown, 3, 1.0)
    screen._quiet = False
    screen.planned(plan)
    shown.print(node_table(node_rows(node_reports(plan), build.NOW)))
    text = capsys.readouterr().out
    harmless(text)
    assert "\\x1b[2J" in text


def test_errors_say_hostile_texts_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _fail(GpuwardError(EVIL))
    say(Resumed(EVIL, 0.0, (EVIL,)).title)
    try:
        raise RuntimeError(EVIL)
    except RuntimeError as error:
        say_bug(type(error), error, error.__traceback__)
    told = capsys.readouterr()
    harmless(told.out)
    harmless(told.err)
    assert told.err.startswith("gpuward: \\x1b[2J")


@pytest.mark.parametrize("readable", [True, False])
def test_log_lines_are_harmless_in_each_form(readable: bool) -> None:
    lines: list[str] = []
    logs.configure(lines.append, lambda: 0.0, readable=readable)
    log = structlog.get_logger(source="x")
    log.warning("Skipping " + EVIL, reason=EVIL, **{EVIL: EVIL})
    try:
        raise RuntimeError(EVIL)
    except RuntimeError:
        log.exception(EVIL)
    assert len(lines) == 2
    for line in lines:
        assert line.count("\n") == 1
        harmless(line.replace("\t", " ") if readable else line)
    if not readable:
        assert json.loads(lines[0])["reason"] == EVIL


@pytest.mark.parametrize("value", ["1", ""])
def test_who_wants_no_colour_gets_no_bold_text(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", value)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = console()
    with shown.capture() as taken:
        shown.print(Text("NODE", style="bold"))
    assert ("\x1b" in taken.get()) is not bool(value)
