"""`kubectl gpuward`: what kubectl makes of the file that is installed for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.cluster import KUBECTL, Cluster

pytestmark = pytest.mark.kubectl
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def kubectl_gpuward(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl where the installed commands are on the PATH."""
    return subprocess.run([KUBECTL or "kubectl", "gpuward", *words], env={**cluster.environment, "PATH": PATH},
                          capture_output=True, text=True, timeout=120, check=False)


def test_kubectl_runs_gpuward_in_its_cluster(cluster: Cluster) -> None:
    done = kubectl_gpuward(cluster, "skip", "gpu-2", "--dry-run")
    assert (done.returncode, done.stdout) == (
        0, "gpu-2 would get the label nvidia.com/gpu-driver-upgrade.skip=true; a dry run writes nothing\n"), done.stderr
    assert kubectl_gpuward(cluster, "status").stdout.startswith("no ClusterPolicy: no driver is upgraded")


def test_help_and_errors_name_the_command_as_it_was_called(cluster: Cluster) -> None:
    assert kubectl_gpuward(cluster, "--help").stdout.startswith("Usage: kubectl gpuward [OPTIONS] COMMAND [ARGS]...\n")
    wrong = kubectl_gpuward(cluster, "retry")
    assert (wrong.returncode, wrong.stderr.splitlines()[0]) == (2, "Usage: kubectl gpuward retry [OPTIONS] NODE...")
