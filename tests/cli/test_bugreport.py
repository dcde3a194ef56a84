"""`gpuward bug-report`: what is in the archive, what is not, and that it is there whole or not at all."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuward import errors, names
from gpuward.cli import bugreport
from gpuward.cli.archive import archive_at
from gpuward.cli.bugreport import FOLDER, ReportOptions, made
from gpuward.cli.commands import replay
from gpuward.cli.redaction import redacted, scrubbed
from gpuward.errors import InputError
from gpuward.kube.http.client import Client
from gpuward.sandbox.faults import FaultKind
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.sim.faults import Fault
from tests.cli.test_replay import recorded
from tests.journeys.stage import NEW, Stage, on_stage
from tests.recorder.test_process import COMMAND, process, until

CANARY = "canary-4711"
KINDS = {"clusterpolicies", "nvidiadrivers", "rolloutpolicies", "nodes", "node-events", "poddisruptionbudgets", "runtimeclasses",
         "resourceclaims"}
IN_NAMESPACE = {"pods", "daemonsets", "controllerrevisions", "deployments", "replicasets", "events", "leases", "services",
                "serviceaccounts"}


def members(path: Path) -> dict[str, bytes]:
    """Return what is in an archive, by the names inside its folder."""
    with tarfile.open(path, "r:gz") as tar:
        found = {member.name.removeprefix(f"{FOLDER}/"): tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in found.items() if file is not None}


async def report(stage: Stage, path: Path, *, recordings: Path | None = None, client: Client | None = None) -> dict[str, bytes]:
    """Make a report of a stage, and return its members."""
    options = ReportOptions(path, False, 20, recordings)
    await made(client or Client(stage.sandbox.transport()), None, names.DEFAULT_NAMESPACE, options)
    return members(path)


def objects(found: dict[str, bytes], name: str) -> list[dict[str, Any]]:
    listed = json.loads(found[name])
    assert listed["kind"] == "List"
    return list(listed["items"])


def test_it_has_the_objects_logs_and_status_of_the_fleet(tmp_path: Path) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.cordons())
        found = await report(stage, tmp_path / "report.tar.gz", recordings=recorded(tmp_path))
        wanted = {*(f"cluster/{name}.json" for name in KINDS), *(f"namespace/{name}.json" for name in IN_NAMESPACE)}
        assert wanted - set(found) == set()
        assert [each["metadata"]["name"] for each in objects(found, "cluster/nodes.json")] == ["cpu-1", "gpu-1", "gpu-2"]
        assert {each["kind"] for each in objects(found, "namespace/controllerrevisions.json")} == {"ControllerRevision"}
        assert {each["involvedObject"]["kind"] for each in objects(found, "cluster/node-events.json")} == {"Node"}
        status = json.loads(found["status.json"])
        assert [node["name"] for node in status["nodes"]] == ["gpu-1", "gpu-2"]
        assert status["counts"]["inProgress"] == 1
        drivers = [name for name in found if name.startswith("logs/nvidia-driver-daemonset-")]
        assert all(name.endswith(".log") for name in drivers)
        assert drivers
        manifest = json.loads(found["manifest.json"])
        assert manifest["members"] == sorted(found)
        assert manifest["notInstalled"] == ["clusterversions.config.openshift.io", "hyperconvergeds.hco.kubevirt.io",
                                            "kubevirts.kubevirt.io", "machines.machine.openshift.io"]
        assert (manifest["problems"], found["errors.txt"]) == (0, b"")

    story()


def test_nothing_is_written_to_the_cluster_and_no_secret_read(tmp_path: Path) -> None:
    asked: list[Request] = []

    def note(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        asked.append(request)
        return proceed()

    @on_stage(gpu_nodes=1)
    async def story(stage: Stage) -> None:
        await stage.installed()
        transport = stage.sandbox.transport()
        transport.interfere = note
        await report(stage, tmp_path / "report.tar.gz", client=Client(transport))

    story()
    assert {request.method for request in asked} == {"GET"}
    assert [request.path for request in asked if "/secrets" in request.path] == []


def test_credentials_are_left_out_wherever_a_person_has_put_them(tmp_path: Path) -> None:
    variables = [{"name": "NGC_API_KEY", "value": CANARY}, {"name": "HTTPS_PROXY", "value": f"http://me:{CANARY}@proxy:3128"},
                 {"name": "HARMLESS", "value": "stays-here"}]

    @on_stage(gpu_nodes=1)
    async def story(stage: Stage) -> None:
        await stage.patch_policy("driver/env", variables)
        await stage.installed()
        written = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": {"driver": {"env": variables}}}),
                   "theirs": json.dumps({"env": variables})}
        stage.sandbox.apply({**stage.node("gpu-1"), "metadata": {**stage.node("gpu-1")["metadata"], "annotations": written}})
        stage.sandbox.apply({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": {"password": CANARY},
                             "metadata": {"name": "theirs", "namespace": names.DEFAULT_NAMESPACE}})
        pod = stage.driver_pod("gpu-1")["metadata"]
        stage.sandbox.api.logs.sources[pod["namespace"], pod["name"]] = lambda: f"login with password={CANARY}\nand go on\n"
        found = await report(stage, tmp_path / "report.tar.gz")
        assert [name for name, data in found.items() if CANARY.encode() in data] == []
        (policy,) = objects(found, "cluster/clusterpolicies.json")
        assert {each["name"]: each["value"] for each in policy["spec"]["driver"]["env"]} == {
            "NGC_API_KEY": "<left out>", "HTTPS_PROXY": "http://<left out>@proxy:3128", "HARMLESS": "stays-here"}
        assert any(b"login with password=<left out>\nand go on\n" in data for data in found.values())
        assert b"stays-here" in found["namespace/daemonsets.json"]

    story()


DOCKERS = base64.b64encode(b"$oauthtoken:abc").decode()


@pytest.mark.parametrize(("text", "kept"), [
    ("--token=abc next", "--token=<left out> next"), ('{"token":"a b","x":1}', '{"token":"<left out>","x":1}'),
    (r'{\"password\": \"abc\"}', r'{\"password\": \"<left out>\"}'), ("Bearer abcdefghijk", "Bearer <left out>"),
    ("-----BEGIN RSA PRIVATE KEY-----\n2026-11-23 abc\n-----END RSA PRIVATE KEY-----\nrest", "<left out>\nrest"),
    ("sa eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOi.c2ln end", "sa <left out> end"),
    ("sh -c 'tool --db-password abc --level 2'", "sh -c 'tool --db-password <left out> --level 2'"),
    ('tool --token "a b" --level 2', 'tool --token "<left out>" --level 2'),
    ("tool --password --level 2", "tool --password --level 2"),
    ("pulled with nvapi-abcdefghijklmnopqrstuvwxyz end", "pulled with <left out> end"),
    ("cloned by ghp_abcdefghijklmnopqrstuvwxyz0123456789", "cloned by <left out>"),
    (f'{{"nvcr.io":{{"username":"u","auth":"{DOCKERS}"}}}}', '{"nvcr.io":{"username":"u","auth":"<left out>"}}'),
    (r'{"auth":"ab\/cd==","a":1}', '{"auth":"<left out>","a":1}'),
    (rf'{{\"auth\": \"{DOCKERS}\"}}', r'{\"auth\": \"<left out>\"}'), (f"  auth: {DOCKERS}\n", "  auth: <left out>\n"),
    (".dockerconfigjson: eyJhdXRocyI6eyJudmNyLmlvIjp7fX19", ".dockerconfigjson: <left out>"),
    ("decoded eyJhdXRocyI6eyJudmNyLmlvIjp7fX19 from it", "decoded <left out> from it"),
    ("auth: forbidden", "auth: forbidden"), ("type kubernetes.io/dockerconfigjson", "type kubernetes.io/dockerconfigjson"),
    ('Secret "foo" not found', 'Secret "foo" not found'), ("the secret is safe", "the secret is safe"),
])
def test_what_is_left_out_of_a_text(text: str, kept: str) -> None:
    assert scrubbed(text) == kept


def test_the_value_after_an_option_is_left_out() -> None:
    assert redacted({"args": ["--api-token", "abc", "--level", "2"]}) == {"args": ["--api-token", "<left out>", "--level", "2"]}


def test_an_annotation_that_is_named_like_a_credential_is_left_out() -> None:
    notes = {"acme.io/api-key": "abc", "acme.io/x": "y", "nvidia.com/keyed": "1", "a.kubernetes.io/token-note": "2"}
    assert redacted({"annotations": notes}) == {"annotations": {**notes, "acme.io/api-key": "<left out>"}}


def test_a_docker_configuration_in_an_annotation_loses_its_credentials() -> None:
    login = {"username": "u", "password": "abc", "auth": DOCKERS, "identitytoken": "abc"}
    kept = redacted({"annotations": {"theirs": json.dumps({"auths": {"nvcr.io": login}})}})
    assert json.loads(kept["annotations"]["theirs"]) == {"auths": {"nvcr.io": {
        "username": "u", "password": "<left out>", "auth": "<left out>", "identitytoken": "<left out>"}}}


def test_what_may_not_be_read_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    refused = {"/api/v1/nodes", "/apis/policy/v1/poddisruptionbudgets", "/log"}

    def refuse(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if any(request.path.endswith(each) for each in refused):
            raise errors.Forbidden(f"{request.path} may not be read")
        return proceed()

    @on_stage(gpu_nodes=1)
    async def story(stage: Stage) -> None:
        await stage.installed()
        transport = stage.sandbox.transport()
        transport.interfere = refuse
        found = await report(stage, tmp_path / "report.tar.gz", client=Client(transport))
        told = found["errors.txt"].decode()
        assert "nodes: 403 Forbidden: /api/v1/nodes may not be read\n" in told
        assert "poddisruptionbudgets.policy: 403 Forbidden: " in told
        assert "log of container nvidia-driver-ctr of pod nvidia-driver-daemonset-" in told
        assert "status.json: 403 Forbidden: " in told
        assert {"cluster/nodes.json", "cluster/poddisruptionbudgets.json", "status.json"} & set(found) == set()
        assert "namespace/pods.json" in found
        refused.clear()
        options = ReportOptions(tmp_path / "another.tar.gz", False, 20, None)
        lines = await made(Client(transport), None, names.DEFAULT_NAMESPACE, options)
        assert lines[1] == "1 thing is not in it, see errors.txt there:"

    story()


def test_who_names_another_namespace_than_the_operators_is_told_what_is_missing(tmp_path: Path) -> None:
    @on_stage(gpu_nodes=1)
    async def story(stage: Stage) -> None:
        await stage.installed()
        options = ReportOptions(tmp_path / "report.tar.gz", False, 20, None)
        lines = await made(stage.user, None, "elsewhere", options)
        why = "is followed in namespace gpu-operator, and this is about namespace elsewhere: add -n gpu-operator"
        assert any(line.endswith(why) for line in lines), lines

    story()


def restarts(pod: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))


def test_of_a_large_fleet_the_logs_of_pods_in_trouble_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bugreport, "MOST_PODS", 2)

    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
        await stage.upgrade_to(NEW)
        await stage.until(lambda: any(map(restarts, stage.pods(names.DRIVER_APP))))
        (pod,) = filter(restarts, stage.pods(names.DRIVER_APP))
        found = await report(stage, tmp_path / "report.tar.gz")
        (operator,) = stage.pods(names.OPERATOR_NAME)
        both = {operator["metadata"]["name"], pod["metadata"]["name"]}
        assert {name.split("/")[1] for name in found if name.startswith("logs/")} == both
        (previous,) = (name for name in found if name.endswith(".previous.log"))
        assert previous == f"logs/{pod['metadata']['name']}/nvidia-driver-ctr.previous.log"
        assert "pods are left out, the least troubled ones" in found["errors.txt"].decode()

    story()


def test_replay_reads_the_recordings_in_it(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"

    @on_stage(gpu_nodes=1)
    async def story(stage: Stage) -> None:
        await report(stage, path, recordings=recorded(tmp_path))

    story()
    result = CliRunner().invoke(replay, [str(path)])
    assert result.exit_code == 0
    assert "PASSES    2 recorded" in result.output


@pytest.mark.parametrize(("data", "problem"), [
    ({"x/recording-a.gpuward": b"kind: Pod"}, r"report\.tar\.gz/recording-a\.gpuward.* it is not a recording of gpuward"),
    ({"x/manifest.json": b"{}"}, r"no recording-\*\.gpuward is in this archive"), (None, "it is no whole archive"),
])
def test_an_archive_that_holds_no_recording_is_named(tmp_path: Path, data: dict[str, bytes] | None, problem: str) -> None:
    path = tmp_path / "report.tar.gz"
    with archive_at(path, "x", 0.0, force=False) as archive:
        for name, content in (data or {"x": b"1" * 100}).items():
            archive.add(name, content)
    if data is None:
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=problem):
        run_replay(path)


def run_replay(path: Path) -> None:
    result = CliRunner().invoke(replay, [str(path)])
    assert result.exception is not None
    raise result.exception


def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text("theirs")
    with pytest.raises(InputError, match="it is there already: name another file, or say --force"), \
            archive_at(path, "x", 0.0, force=False):
        pass
    assert path.read_text() == "theirs"
    with archive_at(path, "x", 0.0, force=True) as archive:
        archive.add("a", b"1")
    assert members(path) == {"x/a": b"1"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_breaks_off_or_comes_second_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report"
    with pytest.raises(KeyError), archive_at(path, "x", 0.0, force=False):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="it is there already"), archive_at(path, "x", 0.0, force=False):
        path.write_text("faster")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["faster"]


def test_equal_members_make_equal_bytes(tmp_path: Path) -> None:
    for name in "ab":
        with archive_at(tmp_path / name, "x", 7.0, force=False) as archive:
            archive.add("one", b"1")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_command_writes_one_from_a_cluster(tmp_path: Path) -> None:
    kubeconfig, path = tmp_path / "kubeconfig", tmp_path / "report.tar.gz"
    with process(tmp_path / "log", "sandbox", "--nodes", "1", "--kubeconfig", str(kubeconfig)):
        until(kubeconfig.exists, tmp_path / "log")
        command = [*COMMAND, "bug-report", "--kubeconfig", str(kubeconfig)]
        done = subprocess.run([*command, "-o", str(path)], capture_output=True, text=True, timeout=120, check=False)
        again = subprocess.run([*command, "-o", str(path)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{path}: ")
    assert "clusterpolicies.nvidia.com: not installed" in done.stdout
    assert again.returncode == 2, "as that of `gpuward capture`"
    assert "it is there already" in again.stderr
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"].get("token", "no token")
    assert all(token.encode() not in data for data in members(path).values())
