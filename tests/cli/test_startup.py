"""What help and the version wait for: a user asks for them often, and a shell's completion does at each key."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpuward.cli.commands import commands

OWN = {"gpuward", "gpuward.agents", "gpuward.agents.main", "gpuward.cli", "gpuward.cli.checked", "gpuward.cli.commands",
       "gpuward.cli.extra", "gpuward.cli.main", "gpuward.cli.options", "gpuward.cli.previewcommands", "gpuward.cli.terminal",
       "gpuward.cli.values", "gpuward.cli.viewcommands", "gpuward.cli.wrapping", "gpuward.errors", "gpuward.model",
       "gpuward.model.reasons", "gpuward.names", "gpuward.sandbox", "gpuward.sandbox.known_faults"}
HEAVY = {"aiohttp", "asyncio", "msgspec", "prometheus_client", "rich", "ssl", "structlog", "yaml"}
LIST_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from gpuward.cli.main import main
main()
"""


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), *((name, "--help") for name in sorted(commands.commands))],
                         ids=" ".join)
def test_help_and_the_version_import_nothing_that_is_slow(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", LIST_MODULES, *arguments], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr))
    assert done.stdout
    assert loaded & HEAVY == set()
    assert {module for module in loaded if module.split(".")[0] == "gpuward"} <= OWN
