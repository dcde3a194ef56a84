"""Two nodes for all tests of this folder that do nothing to them that stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.chart.files import copy_of
from tools.controlplane.controlplane import BIN, RELEASE
from tools.controlplane.programs import NEWEST
from tools.node import packages, registry

from tests.node.installed import build_operator, prepare, require
from tests.node.realnodes import IMAGE, Nodes, build_image

WANTED = "GPUWARD_CONTROLPLANE"


@pytest.fixture(scope="session")
def wanted() -> None:
    """Skip tests on real nodes where nobody asked for them or they may not run; where they may, CI must not pass without them."""
    if os.environ.get(WANTED) != "1":
        pytest.skip(f"real nodes are started only with {WANTED}=1, as ./dev test does")
    if (given := os.environ.get(BIN)) and not (Path(given) / "kubelet").exists():
        pytest.skip(f"the programs of {BIN} have no kubelet with them")
    if os.environ.get(RELEASE, NEWEST) != NEWEST:
        pytest.skip(f"real nodes are built of Kubernetes {NEWEST} only")
    if why := packages.forbidden():
        pytest.skip(why)
    if why := packages.missing(registry.PROGRAM) or ("" if shutil.which("kubectl") else "kubectl is not on the PATH"):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)


@pytest.fixture(scope="session")
def archive(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tar file with the image that pods of tests run."""
    return build_image(tmp_path_factory.mktemp("image"), f"docker.io/library/{IMAGE}")


@pytest.fixture(scope="module")
def nodes(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Keep two nodes running, with a pod on each."""
    nodes = Nodes(tmp_path_factory.mktemp("nodes") / "run")
    try:
        nodes.run("up", "--nodes", "2", "--registry")
        nodes.run("load", str(archive))
        for number in (1, 2):
            nodes.pod(f"probe-{number}", {}, nodeName=f"node-{number}")
        yield nodes
    finally:
        nodes.run("down")


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the chart that helm installs as it is."""
    return copy_of(tmp_path_factory.mktemp("chart"))


@pytest.fixture(scope="session")
def operator_image(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tar file with the operator's image."""
    require("mmdebstrap", "helm")
    return build_operator(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def cluster(operator_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Keep two nodes that can pull the operator's image, and a namespace for it."""
    nodes = Nodes(tmp_path_factory.mktemp("install") / "run")
    try:
        prepare(nodes, operator_image)
        yield nodes
    finally:
        nodes.run("down")
