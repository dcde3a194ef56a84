"""`gpuward demo --keep` under a real kubectl: word for word what NVIDIA's page on driver upgrades says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.kubectl

PATCH = '[{"op": "replace", "path": "/spec/driver/version", "value":"510.85.02"}]'
STATES = (
    r"kubectl get node -l nvidia.com/gpu.present "
    r"-ojsonpath='{range .items[*]}{.metadata.name}{\"\t\"}{.metadata.labels.nvidia\.com/gpu-driver-upgrade-state}{\"\n\"}{end}'"
).replace('\\"', '"')


class Kept(NamedTuple):
    """Hold a demo that keeps running."""

    process: subprocess.Popen[str]
    kubeconfig: str
    metrics: str

    def sh(self, command: str) -> str:
        """Run a shell command line that must succeed, and return what it printed."""
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig}
        shell = ["bash", "-c", command]
        done = subprocess.run(shell, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def until(self, command: str, holds: Callable[[str], bool], seconds: float = 60.0) -> str:
        """Run a command until what it prints is as wanted."""
        end = time.monotonic() + seconds
        while not holds(printed := self.sh(command)):
            assert time.monotonic() < end, f"{command} still prints: {printed}"
        return printed


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    """Keep a demo of three nodes running, past its own rollout."""
    python = [sys.executable, "-c", "from gpuward.cli.main import main; main()"]
    demo = [*python, "demo", "--keep", "--nodes", "3", "--speed", "60"]
    process = subprocess.Popen(demo, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        if match := re.match(r"(?:export )?(KUBECONFIG=|metrics: )(.*)", line):
            found[match[1].strip("=: ")] = match[2].strip()
        if "Ctrl-C ends them" in line:
            break
    try:
        yield Kept(process, found["KUBECONFIG"], found["metrics"])
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        process.stdout.close()
        assert process.wait(timeout=30) == 0, rest


def test_the_commands_of_nvidias_page(kept: Kept) -> None:
    patched = kept.sh(f"kubectl patch clusterpolicy/cluster-policy --type='json' -p='{PATCH}'")
    assert patched == "clusterpolicy.nvidia.com/cluster-policy patched\n"
    pods = "kubectl get pods -n gpu-operator -lapp=nvidia-driver-daemonset"
    images = pods + " -o jsonpath='{.items[*].spec.containers[*].image}'"
    kept.until(images, lambda text: text.count(":510.85.02-") == 3, 120)
    kept.until(STATES, lambda text: text.count("upgrade-done") == 3, 120)
    events = kept.sh("kubectl get events --sort-by='.lastTimestamp' | grep GPUDriverUpgrade")
    assert "Successfully updated node state label to validation-required" in events
    pod = kept.sh("kubectl get pods -n gpu-operator -l app=gpu-operator -o jsonpath='{.items[0].metadata.name}'")
    assert "pod-restart-required" in kept.sh(f"kubectl logs -n gpu-operator {pod} | grep controllers.Upgrade")


def test_relabelling_a_node_by_hand_validates_it_anew(kept: Kept) -> None:
    state = "kubectl get node gpu-1 -o jsonpath='{.metadata.labels.nvidia\\.com/gpu-driver-upgrade-state}'"
    record = "kubectl get node gpu-1 -o jsonpath='{.metadata.annotations.gpuward\\.io/driver-upgrade}'"
    kept.until(state, lambda text: text == "upgrade-done", 120)
    before = kept.sh(record)
    kept.sh("kubectl label node gpu-1 nvidia.com/gpu-driver-upgrade-state=upgrade-required --overwrite")
    kept.until(record, lambda text: text != before and '"state":"upgrade-done"' in text, 120)
    kept.until(state, lambda text: text == "upgrade-done", 120)
    assert kept.sh("kubectl get node gpu-1 -o jsonpath='{.spec.unschedulable}'") == ""


def test_a_skipped_node_keeps_its_driver_and_is_named_in_the_log(kept: Kept) -> None:
    kept.until(STATES, lambda text: text.count("upgrade-done") == 3, 120)
    kept.sh("kubectl label node gpu-2 nvidia.com/gpu-driver-upgrade.skip=true")
    kept.sh("kubectl patch clusterpolicy/cluster-policy --type='json' -p='" + PATCH.replace("510.85.02", "510.85.03") + "'")
    kept.until(STATES, lambda text: text.count("upgrade-done") == 2 and "gpu-2\tupgrade-required" in text, 120)
    log = kept.sh("kubectl logs -n gpu-operator $(kubectl get pods -n gpu-operator -l app=gpu-operator -o name) "
                  "| grep controllers.Upgrade | grep -c 'Skipping node.*gpu-2'")
    assert log.strip() == "1"
    kept.sh("kubectl label node gpu-2 nvidia.com/gpu-driver-upgrade.skip-")
    kept.until(STATES, lambda text: text.count("upgrade-done") == 3, 120)


def test_watching_the_driver_pods(kept: Kept) -> None:
    watch = "timeout 3 kubectl get pods -n gpu-operator -lapp=nvidia-driver-daemonset -w || test $? = 124"
    assert kept.sh(watch).count("1/1     Running") == 3


def test_the_metrics_are_served(kept: Kept) -> None:
    with urllib.request.urlopen(kept.metrics, timeout=10) as answer:
        text = answer.read().decode()
    for name in ("in_progress", "done", "failed", "available", "pending"):
        assert f"gpu_operator_nodes_upgrades_{name} " in text
    assert "gpu_operator_driver_auto_upgrade_enabled 1.0" in text
    assert "gpu_operator_auto_upgrade_enabled 1.0" in text
