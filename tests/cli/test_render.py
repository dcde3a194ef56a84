"""`gpuward render`: the objects are those that an operator writes, and errors say what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuward import names
from gpuward.cli.commands import commands
from gpuward.cli.manifests import policy_views, read_objects
from gpuward.errors import InputError
from gpuward.execute.contains import contains
from gpuward.kube import resources
from gpuward.sandbox.fleet import cpu_node, fleet, gpu_node
from tests.journeys.stage import Stage, on_stage, policy
from tests.journeys.test_nvidiadriver import make, nvidia_driver
from tests.recorder.test_process import COMMAND


def rendered(*arguments: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Return the objects that are printed, and what is said on the side."""
    done = CliRunner().invoke(commands, ["render", *arguments], standalone_mode=False)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return [obj for obj in yaml.safe_load_all(done.stdout) if obj], done.stderr


def file(tmp: Path, name: str, *objects: Any) -> str:
    (tmp / name).write_text(yaml.safe_dump_all(objects))
    return str(tmp / name)


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


@pytest.mark.parametrize("by_nvidia_drivers", [False, True])
def test_they_are_what_the_operator_writes(tmp_path: Path, by_nvidia_drivers: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        if by_nvidia_drivers:
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("all", default=True))
        await stage.installed()
        store = stage.sandbox.store
        policies = [*store.list("clusterpolicies.nvidia.com"), *store.list("nvidiadrivers.nvidia.com")]
        nodes = fleet(3)
        made, said = rendered("--policy", file(tmp_path, "p.yaml", *policies), "--nodes", file(tmp_path, "n.yaml", *nodes))
        assert said == ""
        found = by_name(made)
        kinds = {gvr.plural: (str(gvr), kind) for (_, kind), gvr in resources.KINDS.items()}
        for kind, name in found:
            if kind in ("Node", "ServiceAccount"):
                continue
            key = next(full for full, each in kinds.values() if each == kind)
            live = next(one for one in store.list(key) if one["metadata"]["name"] == name)
            assert contains(live, found[kind, name]), (kind, name)
        there = {one["metadata"]["name"] for one in store.list("daemonsets.apps")}
        assert {name for kind, name in found if kind == "DaemonSet"} == there
        for node in ("gpu-1", "gpu-2", "gpu-3"):
            labels = found["Node", node]["metadata"]["labels"]
            assert labels.items() <= stage.labels(node).items()
            assert labels[names.GPU_PRESENT] == "true"

    story()


def test_each_kernel_has_its_driver_and_a_folder_takes_them(tmp_path: Path) -> None:
    body = policy()
    body["spec"]["driver"] |= {"usePrecompiled": True, "version": "580"}
    listed = {"apiVersion": "v1", "kind": "List", "items": [gpu_node("a"), gpu_node("b", os="ubuntu24.04"), cpu_node("c")]}
    rendered("--policy", file(tmp_path, "p.yaml", body), "--nodes", file(tmp_path, "n.yaml", listed), "-o", str(tmp_path / "out"))
    files = sorted((tmp_path / "out").iterdir())
    found = [yaml.safe_load(one.read_text()) for one in files]
    sets = [obj for obj in found if obj["kind"] == "DaemonSet" and obj["metadata"]["name"].startswith(names.DRIVER_APP)]
    assert sorted(obj["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[2] for obj in sets) == [
        "580-5.15.0-101-generic-ubuntu22.04", "580-6.8.0-45-generic-ubuntu24.04"]
    assert [obj["metadata"]["name"] for obj in found if obj["kind"] == "Node"] == ["a", "b"]


def test_what_is_wrong_is_said_with_field_value_and_fix(tmp_path: Path) -> None:
    body = policy()
    body["spec"]["driver"]["upgradePolicy"]["maxUnavailable"] = "abc"
    made, said = rendered("--policy", file(tmp_path, "p.yaml", body), code=1)
    assert made == []
    assert "ClusterPolicy cluster-policy: spec.driver.upgradePolicy.maxUnavailable: 'abc'" in said
    body = policy()
    body["spec"]["driver"]["repoConfig"] = {"configMapName": "repos"}
    made, said = rendered("--policy", file(tmp_path, "p.yaml", body), code=1)
    assert "create a ConfigMap of that name" in said
    assert ("DaemonSet", "nvidia-device-plugin-daemonset") in by_name(made)
    assert ("DaemonSet", names.DRIVER_APP) not in by_name(made)
    repos = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "repos"}, "data": {"a.list": "deb"}}
    made, said = rendered("--policy", file(tmp_path, "p.yaml", body, repos))
    assert ("DaemonSet", names.DRIVER_APP) in by_name(made)


def test_a_field_that_is_none_is_told(tmp_path: Path) -> None:
    body = policy()
    assert rendered("--policy", file(tmp_path, "p.yaml", body))[1] == ""
    body["spec"]["driver"]["versoin"] = "1.2"
    _, said = rendered("--policy", file(tmp_path, "p.yaml", body))
    assert said.strip() == (
        "ClusterPolicy cluster-policy: spec.driver.versoin is no field, and is ignored; did you mean version?")


def rollout(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "rollout"}, "spec": spec}


def test_a_rollout_policy_alone_is_checked_and_makes_no_object(tmp_path: Path) -> None:
    made, said = rendered("--policy", file(tmp_path, "p.yaml", rollout(retries=1)))
    assert made == []
    assert said.strip() == ("a RolloutPolicy says how nodes are upgraded, and no object is made from it: "
                            "`gpuward plan --policy FILE` shows what it does")
    with pytest.raises(InputError, match=r"RolloutPolicy rollout: spec\.retries: -1 cannot be used: write a whole") as wrong:
        rendered("--policy", file(tmp_path, "p.yaml", rollout(retries=-1, windowFit="Never")))
    assert "spec.windowFit: 'Never' cannot be used: write one of" in str(wrong.value)


def test_dates_without_quotes_are_strings_as_for_kubectl(tmp_path: Path) -> None:
    """The documents' own example has them, and so does `kubectl apply`."""
    text = Path("docs/upgrade.md").read_text(encoding="utf-8")
    example = next(each for each in text.split("```yaml\n")[1:] if "windows:" in each).partition("```")[0]
    assert "start: 2026-12-20," in example
    (tmp_path / "windows.yaml").write_text(f"{example}  finishBy: 2026-12-04\n")
    (found,) = policy_views("--policy", read_objects("--policy", [str(tmp_path / "windows.yaml")]), [])["RolloutPolicy"]
    assert (found.body["spec"]["windows"][1]["start"], found.body["spec"]["finishBy"]) == ("2026-12-20", "2026-12-04")
    later = example.replace("2026-12-20", "2026-12-20T22:00:00Z")
    (tmp_path / "windows.yaml").write_text(later)
    (obj,) = read_objects("--policy", [str(tmp_path / "windows.yaml")])
    assert obj["spec"]["windows"][1]["start"] == "2026-12-20T22:00:00Z"


def test_a_field_that_is_required_and_missing_is_told(tmp_path: Path) -> None:
    body = policy()
    del body["spec"]["nodeStatusExporter"]
    _, said = rendered("--policy", file(tmp_path, "p.yaml", body))
    assert said.splitlines()[0] == (
        "ClusterPolicy cluster-policy: spec.nodeStatusExporter is missing: an API server refuses the object without it")


def test_a_field_that_is_none_anywhere_is_told_with_the_nearest_one(tmp_path: Path) -> None:
    body = rollout(failureBudjet={"nodes": 1}, prestage={"mod": "Auto"}) | {"spce": {}}
    _, said = rendered("--policy", file(tmp_path, "p.yaml", body))
    assert [line for line in said.splitlines() if "no field" in line] == [
        "RolloutPolicy rollout: spce is no field, and is ignored; did you mean spec?",
        "RolloutPolicy rollout: spec.failureBudjet is no field, and is ignored; did you mean failureBudget?",
        "RolloutPolicy rollout: spec.prestage.mod is no field, and is ignored; did you mean mode?"]


def test_an_nvidia_driver_that_does_not_count_is_told(tmp_path: Path) -> None:
    _, said = rendered("--policy", file(tmp_path, "p.yaml", policy(), nvidia_driver("a", default=True)))
    assert "useNvidiaDriverCRD" in said


@pytest.mark.parametrize(("text", "says"), [
    ("a: [", "valid YAML"), ("kind: A\nspec: &a {b: *a}", "valid YAML"),
    ("kind: A\nmetadata: {name: a}\nspec: {a: 1, b: 2, a: 3}", "valid YAML: key 'a' is there twice in it, line 3, column 7"),
    ("- 1", "Kubernetes objects"), ("kind: Node", "metadata.name"),
    ("kind: NVIDIADriver\nmetadata: {name: 580}", "metadata.name of the NVIDIADriver in it in quotes: 580 is no text"),
    ("kind: ClusterPolicy\nmetadata: {name: a, uid: 5}", "write ClusterPolicy a as the API server stores it: "),
    ("kind: A\nmetadata: {name: a}\nspec: {null: 1}", "valid YAML: key None is no text: write it in quotes in it, line 3"),
    ("kind: Pod\nmetadata: {name: a}", "with a ClusterPolicy"), ("", "p.yaml' cannot be used: name a file with a ClusterPolicy")])
def test_files_that_cannot_be_used_are_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    done = subprocess.run([*COMMAND, "render", "--policy", str(tmp_path / "p.yaml")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_keys_are_text_whatever_yaml_takes_them_for(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("kind: A\nmetadata: {name: a}\nspec: {yes: x, 2: y, 1.5: z}")
    (found,) = read_objects("--policy", [str(tmp_path / "p.yaml")])
    assert found["spec"] == {"true": "x", "2": "y", "1.5": "z"}, "as kubectl reads them"
