"""The image at work: its root is read-only, its user is nobody in particular, and there is nothing but what it has."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from gpuward.sandbox.samples import IMAGES
from tests.image.unpacked import ROOT, Unpacked
from tests.recorder.test_process import PORTS, install, process, until

pytestmark = pytest.mark.image

IMPORT_ALL = """
import importlib, os, pkgutil, sys
import gpuward
wrong = []
extensions = [name.split(".")[0] for name in os.listdir(f"{sys.prefix}/lib/python3.13/lib-dynload")]
ours = [one.name for one in pkgutil.walk_packages(gpuward.__path__, "gpuward.") if not one.name.startswith("gpuward.sandbox.")]
for name in [*extensions, *ours]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "kubesandbox":
            wrong.append((name, error))
    except ImportError as error:
        wrong.append((name, error))
cached = [getattr(module, "__cached__", None) for module in sys.modules.values()]
uncompiled = [file for file in cached if file and not os.path.exists(file)]
print(len(extensions) > 10, len(ours) > 200, wrong, uncompiled, os.getuid())
"""


@pytest.mark.parametrize("words", [
    ("/usr/bin/gpuward", "--version"), ("/usr/bin/gpuward", "run", "--help"), ("gpu-operator", "--version"),
    ("gpu-operator", "--help"), ("/usr/bin/manage-crds", "apply", "--help"), ("/usr/bin/cleanup-gpuclusters", "--help"),
    ("driver-manager", "--help"),
], ids=" ".join)
def test_what_a_pod_starts(runnable: Unpacked, words: tuple[str, ...]) -> None:
    done = runnable.run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_what_the_documents_run_in_a_pod_is_there(runnable: Unpacked) -> None:
    """`kubectl exec POD -- PROGRAM`, with a shell and a tar nowhere."""
    texts = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "deploy").rglob("NOTES.txt")]
    programs = {name for text in texts for name in re.findall(r"kubectl\b.* exec .*-- (\S+)", text.read_text(encoding="utf-8"))}
    assert {"gpuward", "python3.13"} <= programs
    for name in programs:
        assert runnable.run(name, "--version").returncode == 0, name


def test_there_is_no_shell_and_nothing_that_installs(runnable: Unpacked) -> None:
    for name in ("/bin/sh", "/bin/bash", "/usr/bin/apt", "/usr/bin/dpkg", "/usr/bin/env"):
        assert "No such file or directory" in runnable.run(name, "--version").stderr
    assert "No module named" in runnable.run("/usr/bin/python3.13", "-I", "-m", "pip", "--version").stderr


def test_every_module_can_be_loaded_and_all_are_compiled(runnable: Unpacked) -> None:
    done = runnable.run("/usr/bin/python3.13", "-I", "-c", IMPORT_ALL)
    assert done.stdout == "True True [] [] 65532\n", done.stderr


def test_public_authorities_are_trusted(runnable: Unpacked) -> None:
    done = runnable.run("/usr/bin/python3.13", "-I", "-c", "import ssl; print(len(ssl.create_default_context().get_ca_certs()))")
    assert int(done.stdout) > 100, done.stderr


def test_nothing_can_be_written(runnable: Unpacked) -> None:
    done = runnable.run("/usr/bin/python3.13", "-I", "-c", "open('/tmp/a', 'w')")
    assert "Read-only file system" in done.stderr


def test_the_operator_leads_and_the_charts_hook_applies_the_crds(runnable: Unpacked, tmp_path: Path) -> None:
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "1", "--speed", "60", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        asyncio.run(install(kubeconfig))
        inside = runnable.root / "etc" / "kubeconfig"
        inside.write_bytes(kubeconfig.read_bytes())
        inside.chmod(0o644)
        given = {"KUBECONFIG": "/etc/kubeconfig"}
        crds = [f"--filepath=/opt/gpu-operator/{name}.yaml" for name in ("nvidia.com_clusterpolicies", "nvidia.com_gpuclusters")]
        applied = runnable.run("/usr/bin/manage-crds", "apply", *crds, environment=given)
        assert applied.stdout == "CRD clusterpolicies.nvidia.com unchanged\n", applied.stderr
        gone = runnable.run("/usr/bin/cleanup-gpuclusters", "--gpucluster-name", "gpu-cluster", environment=given)
        assert gone.stdout == "There is no GPUCluster gpu-cluster\n", gone.stderr
        environment = {**os.environ, **IMAGES, **given, "OPERATOR_NAMESPACE": "gpu-operator"}
        command = runnable.command("gpu-operator", "--leader-elect", "--zap-time-encoding=epoch", *PORTS)
        with log.open("w") as out, subprocess.Popen(command, env=environment, stderr=out) as operator:
            try:
                until(lambda: '"msg": "ClusterPolicy ready"' in log.read_text(), log)
            finally:
                operator.terminate()
        assert operator.returncode == 0, log.read_text()[-2000:]
        inside.unlink()
