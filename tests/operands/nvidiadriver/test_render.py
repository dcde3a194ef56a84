"""What is rendered for an NVIDIADriver: `default.yaml` is what NVIDIA's operator writes, but for its shell script.

After an intended change: `pytest tests/operands --regold`, and read what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward import names
from gpuward.crd.decode import nvidia_driver
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.model.views import NodeView
from gpuward.operands.facts import ClusterFacts
from gpuward.operands.nvidiadriver.pools import Pool, app_name, pools_of
from gpuward.operands.nvidiadriver.render import render_driver, startup_probe
from gpuward.operands.objects import Json
from gpuward.operands.state import OperandState
from tests.operands.build import DEFAULT_FACTS, EXAMPLES, IMAGES, as_yaml, container, env, facts, is_golden
from tests.operands.build import names as names_of

GOLDEN = Path(__file__).parents[1] / "golden_nvidiadriver"
UID = "f00bed27-64ec-47b7-97a3-5fdbdaa0b18e"
DAEMON_SET = "nvidia-gpu-driver-ubuntu22.04-58b66fb858"
MAJOR = names.NFD_OS_VERSION + ".major"


def driver(spec: Mapping[str, Any] | None = None, *, name: str = "default", uid: str = UID) -> NVIDIADriver:
    """Return the example NVIDIADriver with fields of its spec replaced; None removes one."""
    document = yaml.safe_load((EXAMPLES / "nvidiadriver.yaml").read_text())
    merged = {key: value for key, value in {**document["spec"], **(spec or {})}.items() if value is not None}
    return nvidia_driver({**document, "metadata": {"name": name, "uid": uid}, "spec": merged})


def node(name: str = "n0", os: str = "ubuntu 22.04", kernel: str = "5.15.0-101-generic", owner: str = "default",
         **labels: str) -> NodeView:
    """Return a node with GPUs that an NVIDIADriver owns."""
    system, version = os.split()
    found = {names.GPU_PRESENT: "true", names.DRIVER_OWNER: owner, names.NFD_OS_ID: system, names.NFD_KERNEL: kernel,
             names.NFD_OS_VERSION: version, MAJOR: version.partition(".")[0]}
    return NodeView(name, labels={**found, **labels})


def state(spec: Mapping[str, Any] | None = None, *nodes: NodeView, cluster: ClusterFacts = DEFAULT_FACTS) -> OperandState:
    wanted = driver(spec)
    return render_driver(wanted, pools_of(wanted, nodes or (node(),)), cluster, IMAGES)


def objects(*args: Any, **rest: Any) -> dict[str, Json]:
    found = state(*args, **rest)
    assert found.error is None, found.error
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in found.objects}


def pod(spec: Mapping[str, Any] | None = None, *nodes: NodeView, cluster: ClusterFacts = DEFAULT_FACTS) -> Json:
    """Return the pod of the one DaemonSet."""
    (found,) = [obj for key, obj in objects(spec, *nodes, cluster=cluster).items() if key.startswith("DaemonSet/")]
    spec_of_pod: Json = found["spec"]["template"]["spec"]
    return spec_of_pod


def digest(of: Json) -> str:
    return env(container(of, "nvidia-driver-ctr"))[names.DRIVER_CONFIG_DIGEST]


def test_the_default_objects_are_golden(regold: bool) -> None:
    made = objects()
    made["ConfigMap"] = startup_probe("gpu-operator", [(driver(), DAEMON_SET)])
    assert is_golden(GOLDEN / "default.yaml", as_yaml(made), regold)


def test_the_objects_of_a_driver_for_hosts_are_golden(regold: bool) -> None:
    made = objects({"driverType": "vgpu-host-manager", "image": "vgpu-manager", "args": ["--x"], "rdma": {"enabled": True},
                    "env": [{"name": "A", "value": "a"}], "startupProbe": {"failureThreshold": 10}})
    assert is_golden(GOLDEN / "for-hosts.yaml", as_yaml(made), regold)


def test_all_options_are_golden(regold: bool) -> None:
    resources = {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}
    made = pod({
        "args": ["--max-threads", "4"], "env": [{"name": "ZED", "value": "z"}, {"name": "A", "value": "a"}],
        "secretEnv": "driver-env",
        "kernelModuleType": "open", "resources": resources, "hostNetwork": True, "priorityClassName": "gpu-high",
        "podSecurityContext": {"fsGroup": 2000}, "imagePullSecrets": ["driver-cred"], "imagePullPolicy": "Always",
        "startupProbe": {"failureThreshold": 10}, "tolerations": [{"operator": "Exists"}],
        "rdma": {"enabled": True, "useHostMofed": True},
        "gds": {"enabled": True, "repository": "nvcr.io/nvidia/cloud-native", "image": "nvidia-fs", "version": "2.26.6",
                "env": [{"name": "GDS_A", "value": "1"}], "imagePullSecrets": ["gds-cred"], "imagePullPolicy": "Always"},
        "gdrcopy": {"enabled": True, "repository": "nvcr.io/nvidia/cloud-native", "image": "gdrdrv", "version": "v2.6"},
        "manager": {"env": [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}], "imagePullSecrets": ["manager-cred"]},
        "repoConfig": {"name": "repos"}, "certConfig": {"name": "certs"}, "kernelModuleConfig": {"name": "modules"},
        "virtualTopologyConfig": {"name": "topology"}, "licensingConfig": {"secretName": "licence"},
    }, cluster=facts(secrets=frozenset({"driver-env", "licence"}),
                     config_maps={"topology": (), "repos": ("b.list", "a.list"), "certs": ("ca.crt",),
                                  "modules": ("nvidia.conf",)}))
    assert is_golden(GOLDEN / "options.yaml", as_yaml(made), regold)


def test_digest_and_name_are_those_of_nvidias_operator() -> None:
    assert f"DaemonSet/{DAEMON_SET}" in objects()
    assert digest(pod()) == "3643376969"


@pytest.mark.parametrize(("kernel", "suffix"), [("", "67cc6dbb79"), ("5.15.0-70-generic", "59b779bcc5")])
def test_the_name_of_a_daemon_set_tells_uid_and_kernel(kernel: str, suffix: str) -> None:
    found = app_name(driver(uid="bfac7359-6033-45ce-88d6-53db0078526e"), Pool("ubuntu20.04", kernel))
    assert found == f"nvidia-gpu-driver-ubuntu20.04-{suffix}"


def test_a_long_name_is_cut_before_its_hash() -> None:
    found = app_name(driver(), Pool("x" * 60))
    assert len(found) == 63
    assert found.endswith("-58b66fb858")


def test_each_operating_system_has_its_daemon_set() -> None:
    nodes = node("a"), node("b", "ubuntu 24.04"), node("c", "rhel 9.2"), node("d", "rhel 9.4"), node("e", owner="other")
    made = objects(None, *nodes)
    sets = {obj["metadata"]["labels"][names.NODE_OS]: obj for key, obj in made.items() if key.startswith("DaemonSet/")}
    assert sorted(sets) == ["rhel9", "ubuntu22.04", "ubuntu24.04"]
    selectors = {tag: obj["spec"]["template"]["spec"]["nodeSelector"] for tag, obj in sets.items()}
    assert {tag: one[names.DRIVER_OS] for tag, one in selectors.items()} == {tag: tag for tag in sets}
    assert {one[names.DRIVER_OWNER] for one in selectors.values()} == {"default"}
    assert not any(key.startswith(names.NFD_PREFIX) for one in selectors.values() for key in one)


def test_a_node_is_in_the_pool_that_it_was_placed_in_whatever_discovery_says() -> None:
    placed = {names.DRIVER_OS: "ubuntu22.04", names.DRIVER_KERNEL: "5.15.0-101-generic"}
    wanted = driver({"usePrecompiled": True, "version": "580"})
    (pool,) = pools_of(wanted, [node("a", "ubuntu 24.04", "6.8.0-45-generic", **placed)])
    assert (pool.os_tag, pool.kernel, pool.os_id) == ("ubuntu22.04", "5.15.0-101-generic", "ubuntu")
    silent = NodeView("n0", labels={names.GPU_PRESENT: "true", names.DRIVER_OWNER: "default", **placed})
    assert pools_of(wanted, [silent]) == (pool,)


def test_each_kernel_has_its_daemon_set_where_drivers_are_precompiled() -> None:
    kernels = ("5.14.0-427.el9.x86_64", "5.14.0-427.el9.aarch64")
    made = objects({"usePrecompiled": True, "version": "580"}, *(node(k[-3:], "rhel 9.4", k) for k in kernels))
    sets = [obj for key, obj in made.items() if key.startswith("DaemonSet/")]
    found = {obj["spec"]["template"]["spec"]["containers"][0]["image"] for obj in sets}
    assert found == {f"nvcr.io/nvidia/driver:580-{kernel}-rhel9" for kernel in kernels}
    assert {obj["metadata"]["labels"][names.PRECOMPILED_KERNEL] for obj in sets} == {"5.14.0-427.el9"}
    assert len(made) == 7, "both share an account and its roles"


def test_a_node_of_which_nothing_is_known_is_in_no_pool() -> None:
    bare = NodeView("n0", labels={names.GPU_PRESENT: "true", names.DRIVER_OWNER: "default"})
    assert pools_of(driver(), [bare]) == ()
    assert state(None, bare).objects == ()


def test_a_node_that_the_selector_does_not_match_any_more_stays_in_its_pool_until_it_is_moved() -> None:
    chosen = driver({"default": False, "nodeSelector": {"zone": "a"}})
    (pool,) = pools_of(chosen, [node()])
    assert pools_of(chosen, [node(zone="a")]) == (pool,)
    assert "zone" not in pool.node_selector, "whoever edits that label would take the driver away at once"


def test_people_cannot_change_the_labels_by_which_pods_are_selected() -> None:
    made = objects({"labels": {"app": "mine", "app.kubernetes.io/component": "mine", "team": "ml"}})
    labels = made[f"DaemonSet/{DAEMON_SET}"]["spec"]["template"]["metadata"]["labels"]
    assert labels["app"] == DAEMON_SET
    assert labels[names.COMPONENT_LABEL] == names.DRIVER_COMPONENT
    assert labels["team"] == "ml"


def test_a_cluster_policy_s_root_directory_is_in_pod_and_digest() -> None:
    rendered = render_driver(driver(), pools_of(driver(), [node()]), DEFAULT_FACTS, IMAGES, "/host")
    moved = rendered.objects[-1]["spec"]["template"]["spec"]
    assert {"name": "host-root", "hostPath": {"path": "/host"}} in moved["volumes"]
    assert digest(moved) != digest(pod())


def test_subscriptions_are_mounted_on_rhel_but_with_own_repositories() -> None:
    mounted = names_of(pod(None, node(os="rhel 9.4"))["volumes"])
    assert {"subscription-config-0", "subscription-config-2"} <= set(mounted)
    own = pod({"repoConfig": {"name": "repos"}}, node(os="rhel 9.4"), cluster=facts(config_maps={"repos": ("a.repo",)}))
    assert "subscription-config-0" not in names_of(own["volumes"])
    assert container(own, "nvidia-driver-ctr")["volumeMounts"][-1]["mountPath"] == "/etc/yum.repos.d/a.repo"


def test_the_probe_begins_sooner_for_precompiled_drivers() -> None:
    made = pod({"usePrecompiled": True, "version": "580", "startupProbe": None})
    assert container(made, "nvidia-driver-ctr")["startupProbe"]["initialDelaySeconds"] == 5


def test_the_startup_probe_belongs_to_every_driver_and_one_controls_it() -> None:
    made = startup_probe("gpu-operator", [(driver(), DAEMON_SET), (driver(name="b", uid="uid-b"), "other")])
    assert made["metadata"]["labels"]["app"] == DAEMON_SET
    assert [(owner["name"], owner.get("controller")) for owner in made["metadata"]["ownerReferences"]] == [("b", None)]


@pytest.mark.parametrize(("spec", "field", "words"), [
    ({"secretEnv": "missing"}, "spec.secretEnv", "create a Secret"),
    ({"repoConfig": {"name": "missing"}}, "spec.repoConfig.name", "create a ConfigMap"),
    ({"licensingConfig": {"secretName": "missing"}}, "spec.licensingConfig.secretName", "create a Secret"),
    ({"licensingConfig": {"name": "missing"}}, "spec.licensingConfig.name", "create a ConfigMap"),
    ({"virtualTopologyConfig": {"name": "missing"}}, "spec.virtualTopologyConfig.name", "create a ConfigMap"),
    ({"version": None}, "spec", "set version too"),
    ({"usePrecompiled": True, "version": "sha256:abc"}, "spec.version", "one kernel only"),
])
def test_what_cannot_be_followed(spec: dict[str, Any], field: str, words: str) -> None:
    error = state(spec).error
    assert error is not None
    assert error.field == field
    assert words in error.fix


def test_packages_of_an_unknown_system_are_refused() -> None:
    error = state({"certConfig": {"name": "certs"}}, node(os="arch 1"), cluster=facts(config_maps={"certs": ("ca",)})).error
    assert error is not None
    assert "arch" in error.fix
