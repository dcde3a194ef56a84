"""gpuward on real nodes, installed by the real helm from its own image."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tools.chart.files import ROOT

from tests.image.unpacked import another_checkout, build
from tests.node.realnodes import Nodes

NAMESPACE = "gpu-operator"
RELEASE = (NAMESPACE, "--namespace", NAMESPACE)
DISCOVERED = ("feature.node.kubernetes.io/pci-10de.present=true", "feature.node.kubernetes.io/system-os_release.ID=ubuntu",
              "feature.node.kubernetes.io/system-os_release.VERSION_ID=22.04")


def require(*programs: str) -> None:
    """Skip where one of these programs is missing; CI must not pass without them."""
    for program in programs:
        if shutil.which(program, path=_path()) is None:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{program} is not installed")


def prepare(nodes: Nodes, image: Path) -> None:
    """Start two nodes that can pull the operator's image, and make a namespace for it."""
    nodes.run("up", "--nodes", "2", "--registry")
    nodes.run("push", str(image))
    nodes.kubectl("create", "namespace", NAMESPACE)
    nodes.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")


def build_operator(folder: Path) -> Path:
    """Return the image of this checkout, with the packages that Debian has now if it has no longer those that are pinned."""
    done, checkout = build(ROOT, folder / "out"), ROOT
    if done.returncode != 0 and "./dev image --refresh" in done.stderr:
        checkout = another_checkout(folder / "checkout")
        assert build(checkout, folder / "out", "--refresh").returncode == 0
        done = build(checkout, folder / "out")
    assert done.returncode == 0, done.stderr
    told = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return checkout / told["IMAGE"]


def helm(nodes: Nodes, *words: str) -> str:
    """Run helm as the administrator and return its output; it must succeed."""
    env = os.environ | {"PATH": _path(), "KUBECONFIG": str(nodes.kubeconfig)}
    done = subprocess.run(["helm", *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def operators(nodes: Nodes) -> list[dict[str, Any]]:
    """Return the operator's pods."""
    pods: list[dict[str, Any]] = nodes.get("pods", "-n", NAMESPACE, "-l", "app=gpu-operator")["items"]
    return pods


def leader(nodes: Nodes) -> str:
    """Return the operator's pod that leads, empty if none does."""
    holder: str = nodes.get("lease", "53822513.nvidia.com", "-n", NAMESPACE)["spec"].get("holderIdentity") or ""
    return holder.partition("_")[0]


def _path() -> str:
    return f"{os.environ['PATH']}:{ROOT / '.cache/bin'}"
