"""Whether the image of the driver that a node should have can be pulled, as far as registries say."""

from __future__ import annotations

from gpuward.model.driver_images import ImageMissing
from gpuward.model.placement import Placement
from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView
from gpuward.model.waits import Plain
from gpuward.upgrade.staged import next_daemonset


def image_hold(snapshot: Snapshot, node: NodeView, driver: PodView | None, moving: Placement | None, daemonset: str,
               since: float) -> Hold | None:
    """Hold a node whose next driver is missing, or not asked for yet; one that runs that very image has it. So it is with the
    images of other containers of the driver's pod, where a driver serves that would go.

    `daemonset` is the uid of the one that its driver comes from where it is not moved to another one.
    """
    if snapshot.images is None:
        return None
    found = next_daemonset(snapshot, node, moving, daemonset)
    if found is None:
        return None
    serves = driver is not None and driver.ready
    there = {driver.driver_image, *driver.images} if driver is not None and serves else set()
    needed = [image for image in (found.images if serves else (found.image,)) if image and image not in there]
    for image in needed:
        if (said := snapshot.images.missing.get(image)) is not None:
            return Hold(ImageMissing(image, said), since)
    return Hold(Plain(Reason.TEMPLATE_SETTLING), since) if any(map(snapshot.images.awaits, needed)) else None
