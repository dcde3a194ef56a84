"""How `gpuward diff` and `gpuward shadow` end as processes, and which rights `shadow` asks for."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.recorder.test_process import COMMAND, install, process, until


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, check=False)


def policy(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}, "spec": spec}


def test_exit_codes_are_those_of_kubectl_diff(tmp_path: Path) -> None:
    kubeconfig, broken = tmp_path / "kubeconfig", tmp_path / "broken.yaml"
    refused, second = tmp_path / "refused.yaml", tmp_path / "second.yaml"
    broken.write_text("kind: Pod\nmetadata: {name: a}\n")
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        options = ["--kubeconfig", str(kubeconfig)]
        early = ran("diff", *options)
        asyncio.run(install(kubeconfig))
        differs = ran("diff", *options)
        wrong = ran("diff", *options, "--policy", str(broken))
        refused.write_text(yaml.safe_dump(policy({"driver": {"version": 5, "upgradePolicy": {"maxUnavailable": "abc"}}})))
        second.write_text(yaml.safe_dump({**policy({}), "metadata": {"name": "x"}}))
        refusals = [ran(command, *options, "--policy", str(refused)) for command in ("plan", "diff")]
        refusals.append(ran("render", "--policy", str(refused)))
        others = [ran(command, *options, "--policy", str(second)) for command in ("plan", "diff")]
        others.append(ran("render", "--policy", str(refused), "--policy", str(second)))
        looked = ran("shadow", *options, "--once", "-o", "json")
    assert early.returncode == 2
    assert "clusterpolicies.nvidia.com is not installed" in early.stderr
    assert differs.returncode == 1, differs.stderr
    assert "+++ GPUWARD/DaemonSet gpu-operator/nvidia-driver-daemonset" in differs.stdout
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--policy" in wrong.stderr
    assert [one.returncode for one in refusals] == [1, 2, 1]
    for one in refusals:
        told = one.stdout + one.stderr
        assert "spec.driver.version: 5 cannot be used" in told
        assert "spec.driver.upgradePolicy.maxUnavailable: 'abc' cannot be used" in told
    assert [one.returncode for one in others] == [0, 1, 1], "they differ in nothing else"
    for one in others:
        assert "ClusterPolicy x is not in force: cluster-policy is older" in one.stdout + one.stderr
    told = json.loads(looked.stdout)
    assert (looked.returncode, told["driverRestarts"]) == (0, {})
    assert {one["verb"] for one in told["writes"] if one["kind"] != "Node"} == {"create"}


def test_shadow_asks_for_no_right_but_to_read_and_for_no_secrets() -> None:
    role = yaml.safe_load(ran("shadow", "--rights").stdout)
    assert role["kind"] == "ClusterRole"
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert {"nodes", "pods", "daemonsets", "clusterpolicies", "nvidiadrivers", "leases"} <= resources
    assert "secrets" not in resources


def test_a_selector_that_cannot_be_read_is_one_of_the_command_line() -> None:
    wrong = ran("status", "-l", "a=b,,c=(")
    assert wrong.returncode == 2
    assert "write one as for kubectl" in wrong.stderr
