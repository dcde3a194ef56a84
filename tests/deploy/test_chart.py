"""The Helm chart, as the real helm renders it: NVIDIA's values give NVIDIA's ClusterPolicy, and mistakes are refused by name."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tools.chart.files import CHART, ROOT, copy_of, made_files
from tools.chart.values import IGNORED, OPEN, RENAMED, SPEC, names, schema

from gpuward.cli.commands import commands
from gpuward.crd import decode
from gpuward.model.kubernetes import OLDEST_NAME
from gpuward.operands.images import resolve

GOLDENS = Path(__file__).parent / "chart"
SETS = {
    "default": [],
    "published-recipe": ["driver.enabled=false", "toolkit.version=v1.17.0-ubi8", "mig.strategy=mixed",
                         "driver.upgradePolicy.maxParallelUpgrades=5"],
    "nvidiadriver": ["driver.nvidiaDriverCRD.enabled=true", "gds.enabled=true", "driver.repoConfig.configMapName=repos",
                     "driver.licensingConfig.configMapName=licence", "driver.certConfig.name=certs",
                     "driver.virtualTopology.config=topology", "driver.kernelModuleConfig.name=modules", "driver.secretEnv=env",
                     "daemonsets.labels.team=ml", "driver.imagePullPolicy=Always"],
    "no-policies": ["clusterPolicy.deployCR=false", "driver.nvidiaDriverCRD.enabled=true",
                    "driver.nvidiaDriverCRD.deployDefaultCR=false"],
    "precompiled": ["driver.usePrecompiled=true", "driver.version=595", "driver.kernelModuleType=open",
                    "driver.rdma.enabled=true", "cdi.nriPluginEnabled=true"],
    "upgrade-policy": ["driver.upgradePolicy.autoUpgrade=false", "driver.upgradePolicy.maxUnavailable=3",
                       "driver.upgradePolicy.waitForCompletion.podSelector=app=train",
                       "driver.upgradePolicy.waitForCompletion.timeoutSeconds=1000000",
                       "driver.upgradePolicy.drain.enable=true", "driver.upgradePolicy.gpuPodDeletion.force=true"],
    "configmaps": ["devicePlugin.config.create=true", "devicePlugin.config.name=shared", "devicePlugin.config.default=any",
                   "devicePlugin.config.data.any=version: v1", "migManager.config.create=true", "migManager.config.name=layouts",
                   "migManager.config.data.config\\.yaml=version: v1", "dcgmExporter.config.create=true",
                   "dcgmExporter.config.name=counters", "dcgmExporter.config.data=DCGM_FI_DEV_SM_CLOCK\\, gauge\\, clock"],
    "operands": ["toolkit.enabled=false", "gfd.enabled=false", "dcgm.enabled=true", "nodeStatusExporter.enabled=true",
                 "devicePlugin.mps.root=/mps", "dcgmExporter.enablePodLabels=true", "validator.cuda.env[0].name=A",
                 "validator.resources.limits.cpu=1", "sandboxDevicePlugin.enabled=false"],
    "mirror": ["operator.repository=mirror.local/gpuward", "operator.version=1.2.3", "operator.imagePullSecrets[0]=mirror",
               "operator.trustedCA.configMapName=corporate-ca", "driver.repository=mirror.local/nvidia",
               "driver.manager.repository=mirror.local/nvidia",
               "validator.repository=mirror.local/nvidia", "validator.imagePullSecrets[0]=mirror", "nfd.enabled=false"],
    "one-replica": ["operator.replicas=1", "operator.ui=false", "operator.recorder.enabled=false",
                    "operator.logging.develMode=true", "operator.upgradeCRD=false", "operator.priorityClassName="],
    "monitoring": ["operator.prometheusRule.enabled=true", "operator.prometheusRule.labels.release=prom",
                   "operator.networkPolicy.enabled=true", "operator.metrics.serviceMonitor.additionalLabels.release=prom"],
    "own-agents": ["operator.agents=gpuward", "operator.repository=mirror.local", "operator.version=1.2.3",
                   "operator.imagePullSecrets[0]=mirror", "validator.version=v1"],
    "own-agents-nvidiadriver": ["operator.agents=gpuward", "driver.nvidiaDriverCRD.enabled=true"],
    "openshift": ["platform.openshift=true", "operator.cleanupCRD=true", "nfd.nodefeaturerules=true", "psa.enabled=true",
                  "daemonsets.updateStrategy=OnDelete"],
}


@pytest.fixture(scope="session")
def helm() -> str:
    found = shutil.which("helm") or (str(ROOT / ".cache/bin/helm") if (ROOT / ".cache/bin/helm").exists() else None)
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("helm is not installed: ./dev test builds it")
    return found or pytest.skip("helm is not installed: ./dev test builds it")


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of(tmp_path_factory.mktemp("chart"))


def rendered(helm: str, chart: Path, values: list[str], *more: str) -> str:
    """Return what helm renders with the values; raise a ValueError with what it says if it does not."""
    settings = [word for value in values for word in ("--set", value)]
    about = ["gpu-operator", str(chart), "--namespace", "gpu-operator", "--kube-version", "1.36.0"]
    done = subprocess.run([helm, "template", *about, *settings, *more], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [obj for each in yaml.safe_load_all(text) if each for obj in (each["items"] if each["kind"] == "List" else [each])]


def of_kind(text: str, kind: str) -> dict[str, Any]:
    return next(obj for obj in objects(text) if obj["kind"] == kind)


def test_the_files_that_are_made_are_up_to_date() -> None:
    made = made_files().items()
    stale = [str(path.relative_to(ROOT)) for path, text in made if not path.exists() or path.read_text("utf-8") != text]
    assert not stale, "run: ./dev chart"


@pytest.mark.parametrize("name", SETS)
def test_what_is_rendered_is_what_was_looked_at(name: str, helm: str, chart: Path, rewrite_goldens: bool) -> None:
    """The default as a whole; the other sets as what differs from it."""
    text = rendered(helm, chart, SETS[name])
    if name != "default":
        before, after = rendered(helm, chart, []).splitlines(), text.splitlines()
        lines = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
        text = "\n".join("@@" if line.startswith("@@") else line for line in lines) + "\n"
    golden = GOLDENS / (f"{name}.yaml" if name == "default" else f"{name}.diff")
    if rewrite_goldens:
        golden.write_text(text, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text, "look at the difference, then: pytest tests/deploy --rewrite-goldens"


@pytest.mark.parametrize("name", SETS)
def test_the_policies_are_valid(name: str, helm: str, chart: Path) -> None:
    for obj in objects(rendered(helm, chart, SETS[name])):
        if obj["kind"] == "ClusterPolicy":
            decode.cluster_policy(obj)
        elif obj["kind"] == "NVIDIADriver":
            decode.nvidia_driver(obj)
        elif obj["kind"] == "RolloutPolicy":
            decode.rollout_policy(obj)


def test_lint_has_nothing_to_say(helm: str, chart: Path) -> None:
    words = [helm, "lint", "--strict", "--kube-version", "1.36.0", str(chart)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rights_are_those_of_operator_yaml(helm: str, chart: Path) -> None:
    shipped = {obj["kind"]: obj.get("rules") for obj in objects((ROOT / "deploy/operator.yaml").read_text())}
    text = rendered(helm, chart, [])
    roles = {obj["kind"]: obj["rules"] for obj in objects(text) if obj["metadata"]["name"] == "gpu-operator" and "rules" in obj}
    assert roles == {kind: shipped[kind] for kind in ("ClusterRole", "Role")}


def test_the_selector_is_that_of_nvidias_deployment(helm: str, chart: Path) -> None:
    """A selector never changes: the chart upgrades a release of NVIDIA's chart in place."""
    deployment = of_kind(rendered(helm, chart, []), "Deployment")
    assert deployment["metadata"]["name"] == "gpu-operator"
    matched = {"app": "gpu-operator", "app.kubernetes.io/component": "gpu-operator"}
    assert deployment["spec"]["selector"] == {"matchLabels": matched}


@pytest.mark.parametrize("name", SETS)
def test_the_operator_knows_its_arguments(name: str, helm: str, chart: Path) -> None:
    container = of_kind(rendered(helm, chart, SETS[name]), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert CliRunner().invoke(commands, [*container["args"], "--help"]).exit_code == 0
    unknown = CliRunner().invoke(commands, [*container["args"], "--no-such-option"])
    assert "--no-such-option" in unknown.output


def _samples(schema: dict[str, Any], path: str = "") -> Any:
    """Return a value for each field of a schema, under the names that the chart has."""
    if schema.get("type") == "object" and "properties" in schema:
        below = {name: f"{path}.{name}".lstrip(".") for name in schema["properties"]}
        return {RENAMED.get(full, name): _samples(schema["properties"][name], full) for name, full in below.items()}
    if schema.get("type") == "array":
        return [_samples(schema["items"])]
    samples = {"boolean": True, "integer": 7, "object": {"key": "value"}}
    return schema["enum"][-1] if "enum" in schema else samples.get(schema.get("type", ""), "text")


def _absent(values: Any, spec: Any, path: str = "") -> Iterator[str]:
    if isinstance(values, dict) and isinstance(spec, dict):
        for name, value in values.items():
            field = "podDeletion" if name == "gpuPodDeletion" else name
            full = f"{path}.{name}".lstrip(".")
            if field not in spec:
                yield full
            else:
                yield from _absent(value, spec[field], full)


def test_every_field_of_a_clusterpolicy_can_be_set(helm: str, chart: Path, tmp_path: Path) -> None:
    """A value that is accepted and then dropped would be a trap."""
    values = {name: _samples(schema, name) for name, schema in SPEC.items()}
    values["driver"].pop("useNvidiaDriverCRD")
    operators_own = {"operator.labels", "operator.annotations"}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    spec = of_kind(rendered(helm, chart, [], "--skip-schema-validation", "--values", str(file)), "ClusterPolicy")["spec"]
    assert set(_absent(values, spec)) == IGNORED | operators_own


@pytest.mark.parametrize(("value", "said"), [
    ("driver.upgradPolicy.autoUpgrade=false",
     "driver.upgradPolicy is not a value of this chart. Did you mean driver.upgradePolicy?"),
    ("upgradePolicy.autoUpgrade=true", "upgradePolicy is not a value of this chart. Did you mean driver.upgradePolicy?"),
    ("drivr.enabled=false", "drivr is not a value of this chart. Did you mean driver?"),
    ("toolkit.verion=v1", "toolkit.verion is not a value of this chart. Did you mean toolkit.version?"),
    ("validator.verison=v1", "Did you mean validator.version?"),
    ("dcgmExporter.enabeld=true", "Did you mean dcgmExporter.enabled?"),
    ("mgiManager.enabled=true", "Did you mean migManager?"),
    ("dcmg.enabled=true", "Did you mean dcgm?"),
    ("toolkit.evn[0].name=A", "Did you mean toolkit.env?"),
    ("driver.upgradePolicy.drain.podSelecter=a", "Did you mean driver.upgradePolicy.drain.podSelector?"),
    ("operator.replica=2", "operator.replica is not a value of this chart. Did you mean operator.replicas?"),
    ("rolloutPolicy.retry=2", "rolloutPolicy.retry is not a value of this chart. Did you mean rolloutPolicy.retries?"),
    ("driver.enabled=yes", "at '/driver/enabled': got string, want boolean"),
    ("driver.upgradePolicy.maxParallelUpgrades=five", "at '/driver/upgradePolicy/maxParallelUpgrades': got string, want integer"),
    ("mig.strategy=mixd", "at '/mig/strategy': value must be one of '', 'none', 'single', 'mixed'"),
    ("operator.logging.timeEncoding=iso", "at '/operator/logging/timeEncoding': value must be one of"),
    ("operator.agents=both", "at '/operator/agents': value must be one of 'nvidia', 'gpuward'"),
    ("operator.agents=gpuward,operator.image=gpu-tools", "Name it gpuward in your registry, or set operator.agents=nvidia."),
    ("gpuCluster.deployCR=true", "gpuCluster.deployCR is true, and gpuward does not support GPUCluster."),
    ("image=gpuward", "image is not a value of this chart. Did you mean operator.image?"),
    ("enabled=true", "enabled is not a value of this chart. (helm show values lists all.)"),
    ("operator.tolerations[0].efect=NoSchedule", "operator.tolerations[0].efect is not a value of this chart. Did you mean "
     "operator.tolerations[0].effect?"),
    ("daemonsets.tolerations[0].tolerationSecond=5", "Did you mean daemonsets.tolerations[0].tolerationSeconds?"),
    ("driver.env[0].name=A,driver.env[0].vlue=x", "Did you mean driver.env[0].value?"),
    ("operator.env[0].name=A,operator.env[0].vlue=x", "Did you mean operator.env[0].value?"),
    ("operator.env[0].nam=A", "at '/operator/env/0': missing property 'name'"),
    ("operator.imagePullSecrets[0].name=a", "at '/operator/imagePullSecrets/0': got object, want string"),
    ("rolloutPolicy.waves[0].name=a,rolloutPolicy.waves[0].windows[0].schedul=x",
     "Did you mean rolloutPolicy.waves[0].windows[0].schedule?"),
    ("foo=1", "foo is not a value of this chart. (helm show values lists all.)"),
    ("rolloutPolicy.foo=1", "rolloutPolicy.foo is not a value of this chart. (helm show values lists all.)"),
    ("driver=null", "driver is null. Leave it out, or set fields of it"),
    ("psa=null", "psa is null. Leave it out, or set fields of it"),
    ("operator.recorder=null", "operator.recorder is null. Leave it out, or set fields of it"),
    ("migManager.config=null", "migManager.config is null. Leave it out, or set fields of it"),
    ("driver.manager=null,operator.agents=gpuward", "driver.manager is null. Leave it out, or set fields of it"),
    ("vgpuManager.driverManager=null", "vgpuManager.driverManager is null. Leave it out, or set fields of it"),
    ("operator.logging.level=loud", "at '/operator/logging/level'"),
    ("operator.logging.level=0", "at '/operator/logging/level'"),
    ("driver.imagePullPolicy=Sometimes", "at '/driver/imagePullPolicy': value must be one of '', 'Always'"),
    ("driver.env[0].nam=x", "at '/driver/env/0': missing property 'name'"),
    ("operator.repository=has space", "at '/operator/repository'"),
    ("driver.upgradePolicy.maxUnavailable=abc", "at '/driver/upgradePolicy/maxUnavailable'"),
    ("driver.upgradePolicy.maxUnavailable=150%", "at '/driver/upgradePolicy/maxUnavailable'"),
    ("daemonsets.rollingUpdate.maxUnavailable=abc", "at '/daemonsets/rollingUpdate/maxUnavailable'"),
    ("operator.resources.limits.cpu=lots", "at '/operator/resources/limits/cpu'"),
    ("toolkit.enabled=false,cdi.nriPluginEnabled=true", "Set toolkit.enabled=true."),
    ("devicePlugin.config.create=true", "devicePlugin.config.data is empty"),
    ("operator.repository=", "operator.repository is empty, and operator.image is gpuward, which is no full name"),
    ("operator.repository=,operator.image=a/gpuward:1,operator.version=2", "which has a version, and operator.version is 2"),
    ("operator.image=registry.example/gpuward", "operator.image is registry.example/gpuward, which names a registry, and "
     "operator.repository is docker.io/library. Set operator.repository="),
    ("operator.image=localhost:5000/gpuward:1", "which names a registry, and operator.repository is docker.io/library"),
    ("operator.repository=https://registry.example", "make https://registry.example/gpuward:0.1.0, which is no name of an image"),
    ("operator.repository=registry.example/", "make registry.example//gpuward:0.1.0, which is no name of an image"),
    ("operator.image=Gpuward", "make docker.io/library/Gpuward:0.1.0, which is no name of an image"),
    ("operator.version=1.0+dirty", "make docker.io/library/gpuward:1.0+dirty, which is no name of an image"),
    ("operator.version=sha256:abc", "make docker.io/library/gpuward@sha256:abc, which is no name of an image"),
])
def test_a_mistake_is_refused_by_name(value: str, said: str, helm: str, chart: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        rendered(helm, chart, [value])


def test_a_rolloutpolicy_comes_before_the_drivers_that_it_is_to_rule(helm: str, chart: Path) -> None:
    """Helm applies kinds that it does not know by name: a List comes before an NVIDIADriver, and has an order of its own."""
    sets = ["rolloutPolicy.retries=2", "driver.nvidiaDriverCRD.enabled=true"]
    text = rendered(helm, chart, sets)
    kinds = [each["kind"] for each in yaml.safe_load_all(text) if each]
    assert kinds.index("List") < kinds.index("NVIDIADriver")
    assert "ClusterPolicy" not in kinds
    assert [obj["kind"] for obj in objects(text) if obj["kind"].endswith("Policy")] == ["RolloutPolicy", "ClusterPolicy"]
    assert of_kind(text, "ClusterPolicy") == of_kind(rendered(helm, chart, sets[1:]), "ClusterPolicy")
    assert of_kind(text, "RolloutPolicy")["spec"] == {"retries": 2}
    kept = yaml.safe_load_all(rendered(helm, chart, [*sets, "operator.cleanupCRD=true"]))
    keeping = next(each for each in kept if each["kind"] == "List")
    assert keeping["metadata"]["annotations"] == of_kind(yaml.safe_dump(keeping), "ClusterPolicy")["metadata"]["annotations"]
    alone = objects(rendered(helm, chart, [*sets, "clusterPolicy.deployCR=false"]))
    assert [obj["kind"] for obj in alone if obj["kind"].endswith(("Policy", "Driver"))] == ["RolloutPolicy", "NVIDIADriver"]


def test_what_nvidias_chart_drops_of_an_nvidiadriver_reaches_it(helm: str, chart: Path) -> None:
    """docs/helm.md says so."""
    sets = ["driver.nvidiaDriverCRD.enabled=true", "driver.licensingConfig.secretName=licence", "driver.imagePullPolicy=Always",
            "driver.licensingConfig.nlsEnabled=false"]
    spec = of_kind(rendered(helm, chart, sets), "NVIDIADriver")["spec"]
    assert (spec["licensingConfig"], spec["imagePullPolicy"]) == ({"secretName": "licence", "nlsEnabled": False}, "Always")


def test_a_section_of_an_nvidiadriver_that_is_null_is_left_out(helm: str, chart: Path) -> None:
    """As it is in a ClusterPolicy."""
    named = ("repoConfig", "certConfig", "virtualTopology", "kernelModuleConfig", "licensingConfig")
    sections = [f"driver.{name}=null" for name in named]
    wanted = of_kind(rendered(helm, chart, ["driver.nvidiaDriverCRD.enabled=true"]), "NVIDIADriver")
    assert of_kind(rendered(helm, chart, ["driver.nvidiaDriverCRD.enabled=true", *sections]), "NVIDIADriver") == wanted


def test_a_recorder_that_is_neither_on_nor_off_is_on(helm: str, chart: Path) -> None:
    assert rendered(helm, chart, ["operator.recorder.enabled=null"]) == rendered(helm, chart, [])
    assert rendered(helm, chart, ["operator.recorder.enabled=false"]) != rendered(helm, chart, [])


@pytest.mark.parametrize("value", ["operator.ui", "operator.checkImages"])
def test_a_switch_that_is_null_leaves_the_operators_default(value: str, helm: str, chart: Path) -> None:
    def args(*sets: str) -> list[str]:
        (container,) = of_kind(rendered(helm, chart, [*sets]), "Deployment")["spec"]["template"]["spec"]["containers"]
        return [str(one) for one in container["args"]]

    assert args(f"{value}=null") == args()
    assert len(args(f"{value}=false")) == len(args()) + 1


def test_values_of_an_older_chart_are_refused_with_the_flag_that_helps(helm: str, chart: Path) -> None:
    """With --reuse-values a section that the older chart did not have is null, and nobody set it."""
    with pytest.raises(ValueError, match=r"operator\.trustedCA is null\. With --reuse-values .*: take --reset-then"):
        rendered(helm, chart, ["operator.trustedCA=null"], "--is-upgrade")


@pytest.mark.parametrize("value", [
    "operator.logging.level=debug", "operator.logging.level=3", "driver.imagePullPolicy=Never", "driver.env[0].name=x",
    "driver.upgradePolicy.maxUnavailable=0", "driver.upgradePolicy.maxUnavailable=100%",
    "operator.resources.limits.cpu=500m", "operator.resources.limits.memory=1Gi", "operator.resources.requests.cpu=1",
    "operator.repository=registry.example:5000/gpus", "sandboxWorkloads.enabled=true",
    "sandboxWorkloads.defaultWorkload=container", "sandboxDevicePlugin.enabled=null",
])
def test_what_is_near_to_a_mistake_is_taken(value: str, helm: str, chart: Path) -> None:
    assert of_kind(rendered(helm, chart, [value]), "ClusterPolicy")


NVIDIAS = (
    "ccManager", "cdi", "clusterPolicy", "daemonsets", "dcgm", "dcgmExporter", "devicePlugin", "draDriver", "driver",
    "extraObjects", "gdrcopy", "gds", "gfd", "gpuCluster", "hostPaths", "kataManager", "kataSandboxDevicePlugin",
    "mig", "migManager", "nfd", "node-feature-discovery", "nodeStatusExporter", "operator", "platform", "psa",
    "sandboxDevicePlugin", "sandboxWorkloads", "toolkit", "validator", "vfioManager", "vgpuDeviceManager",
    "vgpuManager")
"""The first names in the values of NVIDIA's chart v26.7.0."""


def test_a_file_of_nvidias_values_is_taken_whole(helm: str, chart: Path, tmp_path: Path) -> None:
    values: dict[str, Any] = {name: {} for name in NVIDIAS}
    values["extraObjects"] = []
    values["draDriver"] = {"image": "dra-driver", "featureGates": {"Any": True}, "computeDomains": {"enabled": True}}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert of_kind(rendered(helm, chart, [], "--values", str(file)), "ClusterPolicy") == of_kind(
        rendered(helm, chart, []), "ClusterPolicy")


FREE = ("operator.labels", "operator.annotations", "operator.nodeSelector", "operator.affinity", "operator.prometheusRule.labels",
        "operator.dashboard.labels", "operator.networkPolicy.metricsFrom", "daemonsets.labels", "daemonsets.annotations",
        "dcgmExporter.annotations", "dcgmExporter.serviceMonitor.additionalLabels", "driver.nvidiaDriverCRD.nodeSelector",
        "operator.metrics.serviceMonitor.additionalLabels", "devicePlugin.config.data", "migManager.config.data", "global",
        "node-feature-discovery", "draDriver")


@pytest.mark.parametrize("path", FREE)
def test_where_any_key_may_stand_any_key_is_taken(path: str, helm: str, chart: Path) -> None:
    assert of_kind(rendered(helm, chart, [f"{path}.example\\.com/foreign=any"]), "Deployment")


def test_a_node_selector_of_ones_own_reaches_the_operator(helm: str, chart: Path) -> None:
    text = rendered(helm, chart, ["operator.nodeSelector.pool=infra", "operator.nodeSelector.kubernetes\\.io/os=null"])
    assert of_kind(text, "Deployment")["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "infra"}


@pytest.mark.parametrize("recorder", ["true", "false"])
def test_authorities_of_ones_own_are_mounted_where_the_operator_looks(recorder: str, helm: str, chart: Path) -> None:
    """As a folder: what is mounted as one file does not follow its ConfigMap."""
    text = rendered(helm, chart, ["operator.trustedCA.configMapName=corporate", "operator.trustedCA.key=root.pem",
                                  f"operator.recorder.enabled={recorder}"])
    pod = of_kind(text, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = [one for one in pod["volumes"] if "configMap" in one]
    assert volume["configMap"] == {"name": "corporate", "items": [{"key": "root.pem", "path": "ca-bundle.crt"}]}
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == volume["name"]]
    assert (mount["readOnly"], mount.get("subPath")) == (True, None)
    assert f"--trusted-ca={mount['mountPath']}/ca-bundle.crt" in container["args"]
    assert len(pod["volumes"]) == 1 + (recorder == "true")


def test_no_closed_section_has_a_key_that_is_no_name_of_a_value() -> None:
    """A default such as `kubernetes.io/os: linux` is in a map of other people's keys, which has to be open."""
    def closed(tree: dict[str, Any]) -> Iterator[str]:
        for name, below in tree.items():
            yield name
            yield from closed((below[0] if isinstance(below, list) else below) or {})
    known = set(closed(names(schema(yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))))))
    assert {name for name in known if "/" in name or "." in name} == set()


@pytest.mark.parametrize("path", sorted(OPEN))
def test_every_open_section_is_a_value(path: str) -> None:
    below: Any = names(schema(yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))))
    for name in path.split("."):
        below = below[name]
    assert below is None


DIGEST = f"sha256:{'0123456789abcdef' * 4}"
HOOKS = ("operator.upgradeCRD=true", "operator.cleanupCRD=true", "operator.cleanupNodes=true")


def variables(text: str) -> dict[str, str]:
    """Return the images in the operator's environment."""
    (container,) = of_kind(text, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"] if one["name"].endswith("_IMAGE")}


def own_images(text: str) -> set[str]:
    """Return the images of the operator and of the hooks."""
    return {container["image"] for obj in objects(text) if obj["kind"] in ("Deployment", "Job")
            for container in obj["spec"]["template"]["spec"]["containers"]}


def test_an_image_can_be_pinned_by_its_digest(helm: str, chart: Path) -> None:
    text = rendered(helm, chart, [
        f"operator.version={DIGEST}", f"driver.manager.version={DIGEST}", f"validator.version={DIGEST}", *HOOKS])
    assert own_images(text) == {f"docker.io/library/gpuward@{DIGEST}"}
    assert variables(text) == {
        "DRIVER_MANAGER_IMAGE": f"nvcr.io/nvidia/cloud-native/k8s-driver-manager@{DIGEST}",
        "VALIDATOR_IMAGE": f"nvcr.io/nvidia/gpu-operator@{DIGEST}"}
    text = rendered(helm, chart, [f"operator.version={DIGEST}", "operator.agents=gpuward"])
    assert set(variables(text).values()) == {f"docker.io/library/gpuward@{DIGEST}"}


@pytest.mark.parametrize(("image", "whole"), [
    ("reg.example:5000/a/gpuward", "reg.example:5000/a/gpuward:0.1.0"), ("reg.example/gpuward:1", "reg.example/gpuward:1"),
    (f"reg.example/gpuward@{DIGEST}", f"reg.example/gpuward@{DIGEST}")])
def test_an_image_without_a_repository_is_a_full_name(helm: str, chart: Path, image: str, whole: str) -> None:
    text = rendered(helm, chart, ["operator.repository=", f"operator.image={image}", "operator.agents=gpuward", *HOOKS])
    assert own_images(text) == {whole}
    assert set(variables(text).values()) == {whole}
    validator = of_kind(text, "ClusterPolicy")["spec"]["validator"]
    assert "/".join(filter(None, (validator.get("repository"), validator["image"]))) + (
        f":{validator['version']}" if validator.get("version") else "") == whole


NUMBERS = (
    "operator.imagePullSecrets[0]", "operator.trustedCA.configMapName", "operator.priorityClassName",
    "operator.nodeSelector.gpu", "operator.labels.team", "operator.annotations.team", "nameOverride",
    "operator.networkPolicy.metricsFrom.team", "operator.prometheusRule.labels.team", "operator.dashboard.labels.team",
    "driver.repoConfig.configMapName", "driver.certConfig.name", "driver.licensingConfig.secretName",
    "driver.virtualTopology.config", "driver.kernelModuleConfig.name", "devicePlugin.config.name",
    "migManager.config.name", "dcgmExporter.config.name", "daemonsets.labels.team")
TEXTS = {"name", "namespace", "secretName", "priorityClassName", "image", "imagePullPolicy", "driverType"}


def not_text(found: Any, path: str = "") -> Iterator[str]:
    """Yield where a name, or a value of a map of strings, is none."""
    for key, value in found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ():
        of_strings = path.endswith(("labels", "annotations", "nodeSelector", "matchLabels"))
        if (of_strings or key in TEXTS) and not isinstance(value, str | dict | list):
            yield f"{path}.{key}"
        yield from not_text(value, f"{path}.{key}")


def test_a_name_of_digits_is_text_wherever_it_is(helm: str, chart: Path) -> None:
    more = [word for name in NUMBERS for word in ("--set-string", f"{name}=1000000")]
    text = rendered(helm, chart, [
        "operator.networkPolicy.enabled=true", "operator.prometheusRule.enabled=true", "operator.dashboard.enabled=true",
        "driver.nvidiaDriverCRD.enabled=true", "devicePlugin.config.create=true", "devicePlugin.config.data.any=a",
        "dcgmExporter.config.create=true", "dcgmExporter.config.data=a", *HOOKS], *more)
    crds = ("CustomResourceDefinition",)
    assert [f"{each['kind']}{where}" for each in objects(text) if each["kind"] not in crds for where in not_text(each)] == []
    assert text.count("1000000") >= len(NUMBERS)


def test_a_number_in_a_map_of_strings_is_text(helm: str, chart: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("operator: {nodeSelector: {gpu: true, count: 1000000, half: 0.5}}\n")
    pod = of_kind(rendered(helm, chart, [], "--values", str(values)), "Deployment")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {
        "kubernetes.io/os": "linux", "gpu": "true", "count": "1000000", "half": "0.5"}


def test_a_number_in_what_operands_get_is_text(helm: str, chart: Path) -> None:
    text = rendered(helm, chart, ["daemonsets.labels.a=12", "daemonsets.annotations.b=true", "dcgmExporter.annotations.c=1",
                                  "dcgmExporter.serviceMonitor.additionalLabels.d=1", "operator.env[0].name=E",
                                  "operator.env[0].value=5"])
    spec = of_kind(text, "ClusterPolicy")["spec"]
    assert (spec["daemonsets"]["labels"]["a"], spec["daemonsets"]["annotations"]) == ("12", {"b": "true"})
    exporter = spec["dcgmExporter"]
    assert (exporter["annotations"], exporter["serviceMonitor"]["additionalLabels"]) == ({"c": "1"}, {"d": "1"})
    (container,) = of_kind(text, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"name": "E", "value": "5"} in container["env"]


def test_a_file_of_a_config_that_is_no_text_is_refused_by_name(helm: str, chart: Path) -> None:
    config = ["devicePlugin.config.create=true", "devicePlugin.config.name=x", "devicePlugin.config.data.a.b=12"]
    with pytest.raises(ValueError, match=r"devicePlugin\.config\.data\.a is no text"):
        rendered(helm, chart, config)


def test_a_version_that_yaml_takes_for_a_number_is_text(helm: str, chart: Path) -> None:
    text = rendered(helm, chart, ["operator.version=12", "driver.manager.version=12", "validator.version=26"])
    assert own_images(text) == {"docker.io/library/gpuward:12"}
    assert variables(text) == {"DRIVER_MANAGER_IMAGE": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:12",
                               "VALIDATOR_IMAGE": "nvcr.io/nvidia/gpu-operator:26"}


@pytest.mark.parametrize("nvidia_driver", ["true", "false"])
def test_a_long_number_keeps_its_digits(nvidia_driver: str, helm: str, chart: Path, tmp_path: Path) -> None:
    """In a file YAML takes the hash of a commit without quotes for a number, which Go would write as 1.2345678e+07."""
    number, sections = 12345678, ("operator", "validator", "driver", "toolkit")
    values: dict[str, Any] = {name: {"version": number} for name in sections}
    values["driver"] |= {"manager": {"version": number}, "upgradePolicy": {"maxUnavailable": number}}
    values["driver"]["nvidiaDriverCRD"] = {"enabled": nvidia_driver == "true"}
    values["operator"]["logging"] = {"level": number}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    text = rendered(helm, chart, [], "--values", str(file))
    assert f"{number:.7e}" not in text
    assert own_images(text) == {f"docker.io/library/gpuward:{number}"}
    assert {image.rpartition(":")[2] for image in variables(text).values()} == {str(number)}
    spec = of_kind(text, "ClusterPolicy")["spec"]
    driver = of_kind(text, "NVIDIADriver")["spec"] if nvidia_driver == "true" else spec["driver"]
    versions = [driver["version"], driver["manager"]["version"], spec["validator"]["version"], spec["toolkit"]["version"]]
    assert versions == [str(number)] * 4
    assert driver["upgradePolicy"]["maxUnavailable"] == number


@pytest.mark.parametrize(("set_", "named"), [
    (["repository=mirror.local/nvidia", "version="], "mirror.local/nvidia/gpu-operator:v26.7.0"),
    (["version=null"], "nvcr.io/nvidia/gpu-operator:v26.7.0"),
    (["repository=mirror.local", "image=gpuward", "version="], "mirror.local/gpuward:0.1.0"),
    (["repository=", "image=mirror.local/validator:v1", "version="], "mirror.local/validator:v1"),
])
def test_an_empty_version_is_the_charts_own(set_: list[str], named: str, helm: str, chart: Path) -> None:
    """NVIDIA's chart takes its appVersion; ours is that of gpuward, and NVIDIA's validator has another one."""
    text = rendered(helm, chart, [f"{part}.{one}" for part in ("validator", "nodeStatusExporter") for one in set_])
    assert variables(text)["VALIDATOR_IMAGE"] == named
    spec = decode.cluster_policy(of_kind(text, "ClusterPolicy")).spec
    for field, image in (("spec.validator", spec.validator), ("spec.nodeStatusExporter", spec.node_status_exporter)):
        assert resolve(field, image, "", {}) == named


def test_the_version_that_stands_in_is_that_of_the_values(helm: str, chart: Path) -> None:
    assert rendered(helm, chart, ["validator.version=", "nodeStatusExporter.version="]) == rendered(helm, chart, [])


def test_a_manager_without_a_version_is_no_image_at_all(helm: str, chart: Path) -> None:
    values = ["driver.manager.version=", "driver.nvidiaDriverCRD.enabled=true"]
    (container,) = of_kind(rendered(helm, chart, values), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"name": "DRIVER_MANAGER_IMAGE", "value": ""} in container["env"]


@pytest.mark.parametrize(("values", "scrapers"), [
    ([], [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]),
    (["metricsFrom.team=obs"], [{"namespaceSelector": {"matchLabels": {"team": "obs"}}}]),
    (["metricsFromAll=true"], None),
])
def test_metrics_are_for_the_namespaces_that_are_named(
        values: list[str], scrapers: list[dict[str, Any]] | None, helm: str, chart: Path) -> None:
    """Labels of one's own are instead of the default: together they would fit no namespace."""
    settings = [f"operator.networkPolicy.{one}" for one in ("enabled=true", *values)]
    (rule,) = [rule for rule in of_kind(rendered(helm, chart, settings), "NetworkPolicy")["spec"]["ingress"]
               if rule["ports"] == [{"port": "metrics"}]]
    assert rule.get("from") == scrapers


def test_hooks_may_do_beyond_the_namespace_what_they_must(helm: str, chart: Path) -> None:
    text = rendered(helm, chart, list(HOOKS))
    hook = [obj for obj in objects(text) if obj["metadata"]["name"] == "gpu-operator-cleanup-nodes"]
    roles = {kind: next(obj for obj in hook if obj["kind"] == kind) for kind in ("ClusterRole", "Role", "RoleBinding")}
    leases = {kind: sorted((verb, *rule.get("resourceNames", [])) for rule in roles[kind]["rules"]
                           if rule["resources"] == ["leases"] for verb in rule["verbs"]) for kind in ("ClusterRole", "Role")}
    name = "53822513.nvidia.com"
    assert leases == {"ClusterRole": [("list", name)],
                      "Role": [("create",), ("delete", name), ("get", name), ("update", name)]}
    assert {roles[kind]["metadata"]["namespace"] for kind in ("Role", "RoleBinding")} == {"gpu-operator"}
    assert roles["RoleBinding"]["roleRef"]["kind"] == "Role"
    assert roles["RoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "gpu-operator-cleanup-nodes", "namespace": "gpu-operator"}]
    for kind in roles:  # they come and go with the hook
        assert roles[kind]["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"


@pytest.mark.parametrize("stage", ["gpuPodDeletion", "drain"])
def test_a_timeout_that_is_null_is_that_of_the_crd(stage: str, helm: str, chart: Path) -> None:
    """As with NVIDIA's chart: it was 0, which is for ever."""
    text = rendered(helm, chart, [f"driver.upgradePolicy.{stage}.timeoutSeconds=null"])
    policy = of_kind(text, "ClusterPolicy")["spec"]["driver"]["upgradePolicy"]
    assert "timeoutSeconds" not in policy[{"gpuPodDeletion": "podDeletion"}.get(stage, stage)]


def test_a_hook_that_gets_nowhere_ends_and_goes_by_itself(helm: str, chart: Path) -> None:
    """Helm leaves its Job there, and no uninstallation looks for those of upgrades."""
    jobs = {obj["metadata"]["name"]: obj["spec"] for obj in objects(rendered(helm, chart, list(HOOKS))) if obj["kind"] == "Job"}
    assert len(jobs) == len(HOOKS)
    assert {(spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) for spec in jobs.values()} == {(600, 86400)}
    restarts = {spec["template"]["spec"]["restartPolicy"] for spec in jobs.values()}
    assert restarts == {"Never"}, "pods that are restarted go with the last failure, and their logs"


@pytest.mark.parametrize("given", [[], ["operator.tolerations=null"]])
def test_hooks_run_on_a_cordoned_node(given: list[str], helm: str, chart: Path) -> None:
    """Of a cluster's only node the operator has lifted no cordon yet when they are to correct it, or clean up."""
    cordoned = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    text = rendered(helm, chart, [*HOOKS, *given])
    hooks = [obj["spec"]["template"]["spec"]["tolerations"] for obj in objects(text) if obj["kind"] == "Job"]
    assert len(hooks) == len(HOOKS)
    assert all(cordoned in one for one in hooks)
    operator = of_kind(text, "Deployment")["spec"]["template"]["spec"].get("tolerations", [])
    assert cordoned not in operator, "it would come back to a node that is being drained"
    assert all(one[:-1] == operator for one in hooks)


def test_hooks_come_before_those_of_node_feature_discovery(helm: str, chart: Path) -> None:
    """Its hook after a removal has no weight, and helm runs no hook after one that failed."""
    hooks = [obj["metadata"] for obj in objects(rendered(helm, chart, [*HOOKS, "operator.cleanupCRD=true"]))
             if "helm.sh/hook" in obj["metadata"].get("annotations", {})]
    weights = {meta["name"]: int(meta["annotations"]["helm.sh/hook-weight"]) for meta in hooks}
    assert weights == {"gpu-operator-upgrade-crd": -2, "gpu-operator-cleanup-crd": -2, "gpu-operator-cleanup-nodes": -1}


def test_a_package_without_node_feature_discovery_says_so(helm: str, chart: Path, tmp_path: Path) -> None:
    """A release of NVIDIA's chart that is upgraded to it loses the one that came with it."""
    packed = tmp_path / "packed"
    packed.mkdir()
    subprocess.run([helm, "package", str(chart), "--destination", str(packed)], capture_output=True, check=True)
    (package,) = packed.glob("*.tgz")
    shown = subprocess.run([helm, "show", "values", str(package)], capture_output=True, text=True, check=True).stdout
    assert yaml.safe_load(shown)["nfd"]["enabled"] is False
    assert rendered(helm, package, [])
    said = ("nfd.enabled is true, but this package of the chart has no node feature discovery. Set nfd.enabled=false where the "
            "cluster has its own, or take a package that has it (./dev chart --package without --without-nfd).")
    with pytest.raises(ValueError, match=re.escape(said)):
        rendered(helm, package, ["nfd.enabled=true"])


def test_a_chart_with_node_feature_discovery_installs_it(helm: str, tmp_path: Path) -> None:
    chart = copy_of(tmp_path, with_nfd=True)
    discovery = chart / "charts" / "node-feature-discovery"
    discovery.mkdir(parents=True)
    meta = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))["dependencies"][0]
    (discovery / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": meta["name"], "version": meta["version"]}))
    assert yaml.safe_load((chart / "values.yaml").read_text("utf-8"))["nfd"]["enabled"] is True
    assert rendered(helm, chart, []) == rendered(helm, chart, ["nfd.enabled=false"])


def test_an_older_kubernetes_is_refused(helm: str, chart: Path) -> None:
    said = f"chart requires kubeVersion: >= {OLDEST_NAME}.0-0 which is incompatible with Kubernetes v1.28.0"
    with pytest.raises(ValueError, match=re.escape(said)):
        rendered(helm, chart, [], "--kube-version", "1.28.0")


def test_extra_objects_may_have_templates(helm: str, chart: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra", "namespace": "{{ .Release.Namespace }}"}}
    file.write_text(yaml.safe_dump({"extraObjects": [made, yaml.safe_dump(made).replace("extra", "second")]}), encoding="utf-8")
    found = [obj["metadata"] for obj in objects(rendered(helm, chart, [], "--values", str(file))) if obj["kind"] == "ConfigMap"]
    assert found == [{"name": "extra", "namespace": "gpu-operator"}, {"name": "second", "namespace": "gpu-operator"}]


def test_the_notes_say_what_is_true_before_anything_runs(helm: str, tmp_path: Path) -> None:
    """Helm prints them without `--wait`, too, whether the image exists or not; `helm template` leaves them out."""
    chart = copy_of(tmp_path)
    notes = (chart / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    (chart / "templates" / "shown.yaml").write_text(
        f'{{{{- define "notes" }}}}{notes}{{{{ end }}}}apiVersion: v1\nkind: Notes\ntext: {{{{ include "notes" . | quote }}}}\n')
    text = of_kind(rendered(helm, chart, ["operator.repository=reg.example", "operator.version=7"]), "Notes")["text"]
    assert text.startswith("gpuward is installed in the namespace gpu-operator, with the image reg.example/gpuward:7.\n")
    assert "kubectl rollout status -n gpu-operator deploy/gpu-operator" in text
    assert "no events and no logs" in text
    roles = [obj for obj in objects((ROOT / "deploy/operator.yaml").read_text()) if "rules" in obj]
    for resource, verb in (("events", "list"), ("pods/log", "get")):
        assert not any(resource in rule["resources"] and verb in rule["verbs"] for role in roles for rule in role["rules"])
