"""What works where gpuward is installed without its extra `sandbox`, and what the other commands say there."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules["kubesandbox"] = None
from gpuward.cli.main import main
main()
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["demo", "sandbox", "rehearse"])
def test_commands_that_need_the_sandbox_say_what_to_install(command: str) -> None:
    done = run(command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gpuward: gpuward {command} needs the sandbox: pip install 'gpuward[sandbox]'\n"


def test_the_other_commands_do_without_it() -> None:
    assert run("crds").stdout.count("kind: CustomResourceDefinition") == 3
    refused = run("status", "--kubeconfig", "/nowhere")
    assert refused.returncode == 1
    assert "needs the sandbox" not in refused.stderr
    assert "/nowhere" in refused.stderr
