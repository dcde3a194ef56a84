"""`gpuward run` as a process: it ends, and says why, when anything ends that must not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from gpuward.sandbox.samples import IMAGES
from tests.recorder.test_process import COMMAND, PORTS, process, until

ONCE = """
import json, pathlib, sys
seen = pathlib.Path(sys.argv[1])
if seen.exists():
    sys.exit("no more logins")
seen.touch()
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}))
"""


def log_in_by(plugin: str, kubeconfig: Path) -> None:
    """Let the user of a kubeconfig log in by a plugin, written in Python; its argument is a path of its own."""
    read = yaml.safe_load(kubeconfig.read_text())
    section = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable,
               "args": ["-c", plugin, str(kubeconfig.with_name("seen"))]}
    for user in read["users"]:
        user["user"] = {"exec": section}
    kubeconfig.write_text(yaml.safe_dump(read))


def test_the_process_ends_with_its_election(tmp_path: Path) -> None:
    """An operator whose election is dead leads never again; a kubelet that finds it healthy would keep it so."""
    kubeconfig = tmp_path / "kubeconfig"
    with process(tmp_path / "sandbox", "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "sandbox")
        log_in_by(ONCE, kubeconfig)  # the main connection logs in, the election's cannot
        environment = {**os.environ, **IMAGES, "OPERATOR_NAMESPACE": "gpu-operator", "KUBECONFIG": str(kubeconfig)}
        ended = subprocess.run([*COMMAND, "run", *PORTS, "--leader-elect", "--no-recorder"], env=environment,
                               capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    *log, last = ended.stderr.splitlines()
    told = json.loads(log[-1])
    assert (told["level"], told["msg"]) == ("error", "Something that must not end has ended: the operator ends with it")
    assert "no more logins" in told["error"]
    assert last.startswith("gpuward: ")
    assert "Traceback" not in ended.stderr
