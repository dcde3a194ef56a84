"""The Helm chart on a real API server: installed, upgraded, rolled back and taken off by the real helm.

No kubelet runs here, so that hooks, which are pods, are left out; the real node has them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.chart.files import ROOT, copy_of
from tools.controlplane import lent

from tests.controlplane.plane import Plane, eventually

pytestmark = pytest.mark.controlplane
RELEASE = ("gpu-operator", "--namespace", "gpu-operator")


class Release:
    """Stand for the release of the chart in a cluster of its own."""

    def __init__(self, plane: Plane, chart: Path) -> None:
        self.plane, self.chart = plane, chart

    def helm(self, verb: str, *words: str) -> str:
        path = f"{os.environ['PATH']}:{ROOT / '.cache/bin'}"
        done = subprocess.run(["helm", verb, *words], env=self.plane.environment | {"PATH": path}, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def put(self, verb: str, *values: str, more: tuple[str, ...] = ()) -> str:
        settings = [word for value in values for word in ("--set", value)]
        return self.helm(verb, RELEASE[0], str(self.chart), *RELEASE[1:], "--no-hooks", *settings, *more)

    def policy(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.plane.get("clusterpolicy", "cluster-policy")["spec"]
        return spec

    def say(self, spec: dict[str, Any]) -> None:
        self.plane.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", json.dumps({"spec": spec}))


@pytest.fixture(scope="module")
def release(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Lend a cluster in which nothing is installed."""
    if shutil.which("helm") is None and not (ROOT / ".cache/bin/helm").exists():
        pytest.skip("helm is not installed: ./dev test builds it")
    chart = copy_of(tmp_path_factory.mktemp("chart"))
    state = tmp_path_factory.mktemp("bare") / "run"
    with lent.running(state, "--nodes", "1"):
        yield Release(Plane(state), chart)


def test_a_release_is_installed_upgraded_rolled_back_and_taken_off(release: Release) -> None:
    with pytest.raises(AssertionError, match="ensure CRDs are installed first"):
        release.put("install", more=("--create-namespace", "--dry-run=server"))
    notes = release.put("install", "mig.strategy=mixed", more=("--create-namespace",))
    assert "gpuward status --wait" in notes, "the condition Ready is true where no node has labels of discovery yet"
    assert release.policy()["mig"] == {"strategy": "mixed"}
    release.say({"daemonsets": {"labels": {"helm.sh/chart": "gpu-operator-v26.7.0"}}})
    release.put("upgrade", "driver.version=595.91.08", "rolloutPolicy.retries=2", more=("--reset-then-reuse-values",))
    written = [int(release.plane.get(*each)["metadata"]["resourceVersion"])
               for each in (("rolloutpolicy", "default"), ("clusterpolicy", "cluster-policy"))]
    assert written == sorted(written), "else nodes start before the first windows are there"
    policy = release.policy()
    assert (policy["driver"]["version"], policy["mig"]) == ("595.91.08", {"strategy": "mixed"})
    assert policy["daemonsets"]["labels"]["helm.sh/chart"] == "gpu-operator-v26.7.0", "else every operand would restart"
    release.helm("rollback", RELEASE[0], "1", *RELEASE[1:], "--no-hooks")
    assert release.policy()["driver"]["version"] == "595.91.07"
    assert release.plane.kubectl("get", "rolloutpolicies", "-o", "name") == "", "the release before had none"
    release.plane.kubectl("apply", "-f", str(ROOT / "examples" / "rolloutpolicy.yaml"))
    release.helm("uninstall", *RELEASE, "--no-hooks", "--wait")
    left = release.plane.kubectl("get", "deployments,serviceaccounts,roles,rolebindings,poddisruptionbudgets,clusterpolicies",
                                 "--all-namespaces", "-o", "name", "-l", "app.kubernetes.io/component=gpu-operator")
    assert left == ""
    assert release.plane.kubectl("get", "rolloutpolicies", "-o", "name") != "", "what the release did not make stays"


def test_the_objects_of_another_release_are_not_taken_over(release: Release) -> None:
    release.put("install", more=("--create-namespace",))
    with pytest.raises(AssertionError, match="cannot be imported into the current release"):
        release.helm("install", "second", str(release.chart), "--namespace", "second", "--create-namespace", "--no-hooks")
    release.helm("uninstall", *RELEASE, "--no-hooks", "--wait")


def test_an_upgrade_over_older_crds_needs_the_flag_that_the_documents_have(release: Release) -> None:
    """Helm judges by the CRDs that are there before the hook brings the new ones."""
    release.put("install", more=("--create-namespace",))
    release.plane.kubectl("delete", "rolloutpolicies", "--all")
    crd = release.plane.get("crd", "rolloutpolicies.gpuward.io")
    (version,) = crd["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["gangs"]
    release.plane.kubectl("patch", "crd", "rolloutpolicies.gpuward.io", "--type=merge", "-p", json.dumps({"spec": crd["spec"]}))
    eventually("the API server tells of it", lambda: "gangs" not in _told(release)["spec"]["properties"])
    with pytest.raises(AssertionError, match='unknown field "gangs"'):
        release.put("upgrade", "rolloutPolicy.gangs.mode=Ignore")
    release.put("upgrade", "rolloutPolicy.gangs.mode=Ignore", more=("--disable-openapi-validation",))
    release.helm("uninstall", *RELEASE, "--no-hooks", "--wait")
    for page in ("helm.md", "move-from-nvidia.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert "--disable-openapi-validation" in text.partition("helm upgrade gpu-operator")[2].partition("\n\n")[0], page


def _told(release: Release) -> dict[str, Any]:
    """Return the schema of RolloutPolicies that helm sees."""
    published = json.loads(release.plane.kubectl("get", "--raw", "/openapi/v2"))["definitions"]
    properties: dict[str, Any] = published["io.gpuward.v1alpha1.RolloutPolicy"]["properties"]
    return properties
