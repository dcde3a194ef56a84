"""What commands wait for before they do anything: help and the version as a user asks for them often, and a shell's completion
does at each key; the verbs as people who watch a rollout call them again and again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuward.cli.commands import commands

OWN = {"gpuward", "gpuward.agents", "gpuward.agents.main", "gpuward.cli", "gpuward.cli.checked", "gpuward.cli.commands",
       "gpuward.cli.extra", "gpuward.cli.garbage", "gpuward.cli.main", "gpuward.cli.options", "gpuward.cli.previewcommands",
       "gpuward.cli.terminal", "gpuward.cli.values", "gpuward.cli.viewcommands", "gpuward.cli.wrapping", "gpuward.errors",
       "gpuward.model", "gpuward.model.reasons", "gpuward.names", "gpuward.sandbox", "gpuward.sandbox.known_faults"}
HEAVY = {"aiohttp", "asyncio", "msgspec", "prometheus_client", "rich", "ssl", "structlog", "yaml"}
LASTING = {"gpuward.controllers.operator", "gpuward.recorder.recorder", "kubesandbox", "prometheus_client", "pygments",
           "rich.live", "structlog"}
"""What only commands need that go on for long."""
DECIDING = {"cronsim", "gpuward.crd.clusterpolicy", "gpuward.kube.cluster", "gpuward.operands.decide", "gpuward.upgrade.decide"}
"""What only commands need that work out a plan."""
WRITING = {"pause", "resume", "approve", "promote", "abort", "retry", "skip", "cleanup"}
"""Commands that print lines and nothing else."""
UNDECIDED = {"pause", "retry", "skip", "cleanup", "history"}
VERBS = (("status",), ("explain", "gpu-1"), ("drivers",), ("plan",), ("check",), ("history",), ("pause",), ("resume",),
         ("approve",), ("promote",), ("abort",), ("retry", "gpu-1"), ("skip", "gpu-1"), ("cleanup",))
NOBODY = ("{clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: a, context: {cluster: a}}], "
          "current-context: a}")
LIST_MODULES = """
import atexit, gc, json, sys
def tell():
    told = {"modules": sorted(sys.modules), "looks": gc.get_stats()[2]["collections"], "left": gc.get_freeze_count()}
    print(json.dumps(told), file=sys.stderr)
atexit.register(tell)
from gpuward.cli.main import main
main()
"""


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), *((name, "--help") for name in sorted(commands.commands))],
                         ids=" ".join)
def test_help_and_the_version_import_nothing_that_is_slow(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", LIST_MODULES, *arguments], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr)["modules"])
    assert done.stdout
    assert loaded & HEAVY == set()
    assert {module for module in loaded if module.split(".")[0] == "gpuward"} <= OWN


@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_a_verb_imports_what_it_needs_and_looks_for_no_garbage(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(NOBODY, encoding="utf-8")
    command = [sys.executable, "-c", LIST_MODULES, *arguments, "--kubeconfig", str(tmp_path / "kubeconfig")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *said, last = done.stderr.splitlines()
    told, verb = json.loads(last), arguments[0]
    loaded = set(told["modules"])
    assert "cannot be reached" in said[-1]
    assert loaded & LASTING == set()
    assert loaded & (DECIDING if verb in UNDECIDED else set()) == set()
    assert loaded & ({"rich"} if verb in WRITING else set()) == set()
    assert told["looks"] == 0, "Python looked for garbage in all that was imported"
    assert told["left"] > len(loaded), "Python looks for garbage once more at the end"
