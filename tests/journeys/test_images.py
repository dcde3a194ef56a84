"""A driver without an image empties no node: the registry is asked first, in every place where drivers come from."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gpuward import names
from gpuward.controllers.operator import Operator, Outside, Settings
from gpuward.kube import resources
from gpuward.model.driver_images import ImageMissing, missing_in, told_of_missing
from gpuward.model.record import format_time
from gpuward.model.states import State
from gpuward.ports import ImageFound, Login
from gpuward.report.when import When
from gpuward.sandbox.samples import IMAGES
from tests.journeys.kernels import runs_kernel
from tests.journeys.looking import condition_of, explanation_of, reason_of, status_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_moves import images
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, driver_pods, label_pools, make, nvidia_driver
from tests.journeys.test_plan import plan_of
from tests.journeys.test_withheld import set_driver

BAD = "1.2.3"
KERNEL = "6.11.0-9-generic"
MODES = ["plain", "nvidiadriver", "precompiled"]


class Images:
    """Be the registries outside the cluster: `lacks` says which images they have not."""

    def __init__(self) -> None:
        self.lacks: Callable[[str], bool] = lambda image: f":{BAD}" in image or KERNEL in image
        self.there: bool | None = True
        self.delay = 0.2
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.logins: list[Mapping[str, Login]] = []

    async def find(self, image: str, logins: Mapping[str, Login]) -> ImageFound:
        self.asked.append((image, tuple(sorted(logins))))
        self.logins.append(logins)
        await asyncio.sleep(self.delay)
        if self.there is None:
            return ImageFound(None, "no answer in time")
        return ImageFound(False, "the registry has no such manifest") if self.lacks(image) else ImageFound(True)


class WithRegistry(Stage):
    """Play a cluster whose operator asks registries."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.registry = Images()
        super().__init__(*arguments, **options)

    def _operator(self) -> Operator:
        settings = Settings(names.DEFAULT_NAMESPACE, IMAGES, seed=0)
        return Operator(self.client, settings, self.clock, outside=Outside(self.registry))


def registry(stage: Stage) -> Images:
    assert isinstance(stage, WithRegistry)
    return stage.registry


async def installed(stage: Stage, mode: str) -> None:
    if mode == "nvidiadriver":
        await label_pools(stage, a=" ".join(node["metadata"]["name"] for node in stage.gpu_node_objects()))
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE))
    if mode == "precompiled":
        await set_driver(stage, {"usePrecompiled": True, "version": "580"})
    await stage.installed()


async def change(stage: Stage, mode: str, version: str) -> None:
    if mode == "nvidiadriver":
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": {"version": version}})
    else:
        await set_driver(stage, {"version": version})


def holds(stage: Stage) -> dict[str, str]:
    return {node: stage.hold(node) for node in stage.states()}


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_tag_is_found_before_a_node_is_cordoned(mode: str) -> None:
    @on_stage(gpu_nodes=3, kind=WithRegistry, upgrade=ALL_AT_ONCE)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.deploy("work", 3)
        pods = {pod["metadata"]["uid"] for pod in (*driver_pods(stage), *stage.workload_pods())}
        stage.watch_limits()
        await change(stage, mode, BAD)
        await stage.until(lambda: set(holds(stage).values()) == {"ImageMissing"}, 60)
        await stage.rest(1800)
        assert {pod["metadata"]["uid"] for pod in (*driver_pods(stage), *stage.workload_pods())} == pods
        assert (stage.cordons(), stage.most_in_progress) == ([], 0)
        assert set(holds(stage).values()) == {"ImageMissing"}
        assert len(stage.warnings("image is missing")) == len({image for image, _ in registry(stage).asked if f":{BAD}" in image})
        assert any("image" in event and BAD in event for event in stage.events("gpu-1"))
        await change(stage, mode, "590" if mode == "precompiled" else NEW)
        new = "590-" if mode == "precompiled" else f"{NEW}-"
        await stage.until(lambda: all(new in "".join(images(stage, node)) for node in stage.states()), 7200)

    story()


@pytest.mark.parametrize("mode", MODES)
def test_status_and_explain_say_what_only_the_operator_has_asked(mode: str) -> None:
    @on_stage(gpu_nodes=2, kind=WithRegistry, upgrade=ALL_AT_ONCE)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.deploy("work", 2)
        await change(stage, mode, BAD)
        await stage.until(lambda: set(holds(stage).values()) == {"ImageMissing"}, 60)
        await stage.rest(30)
        missing = {what.image for hold in stage.operator.plan.holds.values() if isinstance(what := hold.what, ImageMissing)}
        for image in missing:
            assert f"; image {image} is missing: the registry has no such manifest" in condition_of(stage)[2]
        told = await explanation_of(stage, "gpu-1")
        assert any(image in reason_of(told) for image in missing)
        assert "push the image" in told.remedies[-1].do
        assert {(one["reason"], one["group"]) for one in (await status_of(stage))["nodes"]} == {("ImageMissing", "held")}
        registry(stage).lacks = lambda image: False
        await stage.until(lambda: "ImageMissing" not in holds(stage).values(), 120)
        await stage.rest(30)
        assert "is missing" not in condition_of(stage)[2]
        assert "ImageMissing" not in {one["reason"] for one in (await status_of(stage))["nodes"]}

    story()


@on_stage(gpu_nodes=2, kind=WithRegistry, upgrade=ALL_AT_ONCE)
async def test_a_plan_starts_no_node_that_the_operator_holds_for_its_image(stage: Stage) -> None:
    await installed(stage, "plain")
    await change(stage, "plain", BAD)
    await stage.until(lambda: set(holds(stage).values()) == {"ImageMissing"}, 60)
    await stage.rest(30)
    spec = {"holderIdentity": "gpuward_1", "leaseDurationSeconds": 15, "renewTime": format_time(stage.clock.now())}
    await stage.user.create(resources.LEASES, {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
        "metadata": {"name": names.LEADER_LEASE, "namespace": names.DEFAULT_NAMESPACE}})
    assert {(one.when, one.reason) for one in (await plan_of(stage)).nodes} == {(When.HELD, "ImageMissing")}
    assert {one.when for one in (await plan_of(stage, NEW)).nodes} == {When.NOW}, "it is another image"


def test_what_a_registry_answers_is_read_back_from_a_condition() -> None:
    missing = ImageMissing("r.io/a:1", "no; such tag"), ImageMissing("r.io/b:2", "404")
    told = "; ".join(("held: 2", *map(told_of_missing, missing)))
    assert dict(missing_in(f"{told}; and more")) == {"r.io/a:1": "no, such tag", "r.io/b:2": "404"}


@pytest.mark.parametrize("mode", MODES)
def test_an_image_that_is_pushed_later_lets_the_rollout_go_on(mode: str) -> None:
    @on_stage(gpu_nodes=2, kind=WithRegistry, upgrade=ALL_AT_ONCE)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        version = "590" if mode == "precompiled" else NEW
        registry(stage).lacks = lambda image: f":{version}" in image
        await change(stage, mode, version)
        await stage.until(lambda: set(holds(stage).values()) == {"ImageMissing"}, 60)
        registry(stage).lacks = lambda image: False
        await stage.until(lambda: all(version in "".join(images(stage, node)) for node in stage.states()), 1800)

    story()


@on_stage(gpu_nodes=3, kind=WithRegistry, upgrade=ALL_AT_ONCE)
async def test_a_kernel_without_an_image_holds_its_node_alone(stage: Stage) -> None:
    await installed(stage, "precompiled")
    (before,) = (pod["metadata"]["uid"] for pod in driver_pods(stage, "gpu-2"))
    await runs_kernel(stage, "gpu-2", KERNEL)
    await stage.until(lambda: stage.hold("gpu-2") == "ImageMissing", 60)
    await set_driver(stage, {"version": "590"})
    await stage.until(lambda: all("590-" in "".join(images(stage, node)) for node in ("gpu-1", "gpu-3")), 3600)
    assert stage.hold("gpu-2") == "ImageMissing"
    assert [pod["metadata"]["uid"] for pod in driver_pods(stage, "gpu-2")] == [before]
    assert not stage.cordoned("gpu-2")
    assert any("keeps its driver" in event and KERNEL in event for event in stage.events("gpu-2"))


@pytest.mark.parametrize("delay", [0.2, 60.0])
def test_a_registry_that_says_nothing_holds_nothing_and_is_told_once(delay: float) -> None:
    @on_stage(gpu_nodes=2, kind=WithRegistry, upgrade=ALL_AT_ONCE)
    async def story(stage: Stage) -> None:
        registry(stage).there, registry(stage).delay = None, delay
        await stage.installed()
        asked_for = stage.clock.now()
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.most_in_progress > 0, 10)
        assert stage.clock.now() - asked_for < 5
        await stage.upgraded(NEW)
        await stage.rest(3600)
        (told,) = stage.warnings("not known whether")
        assert told["why"] == "no answer in time"
        assert "--check-images=false" in told["fix"]
        assert stage.drivers() == [NEW]

    story()


@on_stage(gpu_nodes=2, kind=WithRegistry)
async def test_answers_are_kept(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(3 * 3600)
    asked = [image for image, _ in registry(stage).asked]
    assert len(asked) == len(set(asked))
    assert {image.rpartition("/")[2].partition(":")[0] for image in asked} == {"driver", "k8s-driver-manager"}
    await stage.patch_policy("driver/version", BAD)
    await stage.rest(600)
    assert 9 <= sum(f":{BAD}" in image for image, _ in registry(stage).asked) <= 11


def make_pull_secret(stage: Stage, name: str = "pull", user: str = "robot") -> None:
    auth = base64.b64encode(f"{user}:hush-hush".encode()).decode()
    config = base64.b64encode(json.dumps({"auths": {"https://nvcr.io/v1/": {"auth": auth}}}).encode()).decode()
    meta = {"name": name, "namespace": names.DEFAULT_NAMESPACE}
    stage.sandbox.apply({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "metadata": meta,
                         "data": {".dockerconfigjson": config}})


@pytest.mark.parametrize("having", ["a", "b"])
def test_an_image_of_several_drivers_is_asked_for_with_the_pull_secrets_of_each(having: str) -> None:
    @on_stage(gpu_nodes=2, kind=WithRegistry)
    async def story(stage: Stage) -> None:
        make_pull_secret(stage)
        await label_pools(stage, a="gpu-1", b="gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, *(nvidia_driver(name, imagePullSecrets=["pull"] if name == having else []) for name in "ab"))
        await stage.until(lambda: bool(stage.drivers()) and stage.all_are(State.DONE))
        asked = [hosts for image, hosts in registry(stage).asked if f":{OLD}" in image]
        assert asked[-1] == ("nvcr.io",)

    story()


class Hiding(Images):
    """Answer all but one login that there is no such image."""

    async def find(self, image: str, logins: Mapping[str, Login]) -> ImageFound:
        found = await super().find(image, logins)
        hidden = NEW in image and logins.get("nvcr.io") != Login("robot", "hush-hush")
        return ImageFound(False, "the registry has no such manifest") if hidden else found


@pytest.mark.parametrize("first", ["pull", "another"])
def test_each_login_for_a_registry_is_tried_before_an_image_is_missing(first: str) -> None:
    """A kubelet tries all: one may be for other images of the same registry."""
    @on_stage(gpu_nodes=1, kind=WithRegistry)
    async def story(stage: Stage) -> None:
        stage.registry = Hiding()  # type: ignore[attr-defined]
        await stage.restart_operator()
        make_pull_secret(stage)
        make_pull_secret(stage, "another", "somebody")
        await stage.patch_policy("driver/imagePullSecrets", [first, *({"pull", "another"} - {first})])
        await stage.installed()
        await stage.upgrade_to(NEW)
        await stage.upgraded(NEW, within=900)
        assert stage.warnings("image is missing") == []
        await change(stage, "plain", BAD)
        await stage.until(lambda: set(holds(stage).values()) == {"ImageMissing"}, 60)

    story()


@on_stage(gpu_nodes=1, kind=WithRegistry)
async def test_pull_secrets_are_read_and_shown_nowhere(stage: Stage) -> None:
    make_pull_secret(stage)
    await stage.patch_policy("driver/imagePullSecrets", ["pull", "not-there"])
    await stage.until(lambda: ("nvcr.io",) in [hosts for _, hosts in registry(stage).asked], 120)
    assert registry(stage).logins[-1]["nvcr.io"] == Login("robot", "hush-hush")
    assert "hush" not in repr(registry(stage).logins[-1])
    assert "hush" not in json.dumps(stage.log)
    assert "hush" not in repr(stage.operator.cluster.observe())


def test_that_nobody_knows_whether_an_image_exists_is_in_the_condition_while_nodes_are_to_get_it() -> None:
    @on_stage(gpu_nodes=2, kind=WithRegistry)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        registry(stage).there = None
        await stage.upgrade_to(NEW)
        await stage.until(lambda: "exists is not known" in condition_of(stage)[2], within=120)
        assert f"driver:{NEW}-ubuntu22.04 exists is not known" in condition_of(stage)[2]
        assert condition_of(stage)[2].endswith(": no answer in time; no node waits for the answer")
        await stage.upgraded()
        await stage.rest(60)
        assert "exists is not known" not in condition_of(stage)[2]

    scenario()


@pytest.mark.parametrize("mode", ["plain", "nvidiadriver"])
def test_a_missing_image_of_a_container_beside_the_driver_empties_no_node(mode: str) -> None:
    """GPUDirect Storage and GDRCopy have an image for each operating system, and not for every one of them."""
    @on_stage(gpu_nodes=2, kind=WithRegistry, upgrade=ALL_AT_ONCE)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        pods = {pod["metadata"]["uid"] for pod in driver_pods(stage)}
        registry(stage).lacks = lambda image: "gdrdrv" in image or "k8s-driver-manager" in image
        gdrcopy = {"gdrcopy": {"enabled": True, "repository": "nvcr.io/nvidia/cloud-native", "image": "gdrdrv", "version": "v9"}}
        kind, name = (resources.NVIDIA_DRIVERS, "a") if mode == "nvidiadriver" else (resources.CLUSTER_POLICIES, "cluster-policy")
        await stage.user.patch_merge(kind, name, {"spec": gdrcopy})
        await stage.until(lambda: set(holds(stage).values()) == {"ImageMissing"}, 60)
        assert "gdrdrv:v9" in condition_of(stage)[2] or "gdrdrv:v9" in stage.events("gpu-1")[-1]
        await stage.rest(900)
        assert {pod["metadata"]["uid"] for pod in driver_pods(stage)} == pods
        assert stage.cordons() == []
        registry(stage).lacks = lambda image: "k8s-driver-manager" in image  # the nodes have it
        await stage.until(lambda: not pods & {pod["metadata"]["uid"] for pod in driver_pods(stage)}, 1800)

    story()
