"""`gpuward rehearse` of a cluster that is in trouble promises nothing that the cluster shows to be impossible."""

from __future__ import annotations

from gpuward.cli.rehearsed import as_json, assumed_lines, summary
from gpuward.rehearse.captured import Captured, Manifest
from tests.journeys.stage import NEW, playing
from tests.journeys.test_rehearse import EXACT, at_pace, capture, held, of

BROKEN = "575.x"
MANIFEST = Manifest(1, "", 0.0, "gpu-operator")


async def in_trouble() -> Captured:
    """Return a cluster in which one node waits for an image that does not exist, and two others serve."""
    async with playing(at_pace()) as stage:
        await stage.installed()
        stage.sandbox.has_image = lambda image: BROKEN not in image
        await stage.upgrade_to(BROKEN)
        await stage.until(lambda: "NewDriverFails" in {stage.hold(node) for node in stage.states()}, 3600)
        await stage.rest(120)
        return await capture(stage)


def test_an_image_that_the_cluster_cannot_pull_is_not_pulled_in_a_rehearsal_either() -> None:
    found = of(in_trouble, version="", horizon=7200.0)
    assert len(found.first.left) == 3
    assert set(held(found.first).values()) & {"NewDriverFails", "FailureBudget"}
    (image,) = found.missing
    assert BROKEN in image
    assert as_json(found, MANIFEST, EXACT)["missingImages"] == [image]
    assert f"all images can be pulled but {image}, which the cluster cannot pull now" in list(assumed_lines(found, EXACT))[-1]
    assert list(summary(found, MANIFEST))[1].startswith("0 of 3 nodes have the driver")


def test_another_version_is_rehearsed_as_if_nothing_had_happened() -> None:
    found = of(in_trouble, version=NEW)
    assert found.first.left == ()


def test_a_policy_that_cannot_be_followed_is_said_so_before_what_would_happen() -> None:
    async def play() -> Captured:
        async with playing(at_pace()) as stage:
            await stage.installed()
            await stage.patch_policy("driver/kernelModuleConfig", {"name": "not-there"})
            await stage.upgrade_to(NEW)
            await stage.rest(60)
            return await capture(stage)

    found = of(play, version="")
    _, problem, rest, *_ = summary(found, MANIFEST)
    told = "ClusterPolicy cluster-policy cannot be followed: spec.driver.kernelModuleConfig.name: 'not-there' cannot be used"
    assert problem.startswith(told)
    assert rest == "nothing would change: all 3 nodes have the driver by what was valid last"
    assert as_json(found, MANIFEST, EXACT)["problems"] == [problem]
