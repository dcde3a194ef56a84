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
    """Hold a node whose next driver is missing, or not asked for yet; one that runs that very image has it.

    `daemonset` is the uid of the one that its driver comes from where it is not moved to another one.
    """
    if snapshot.images is None:
        return None
    found = next_daemonset(snapshot, node, moving, daemonset)
    image = found.image if found is not None else ""
    if not image or (driver is not None and driver.ready and driver.driver_image == image):
        return None
    if (said := snapshot.images.missing.get(image)) is not None:
        return Hold(ImageMissing(image, said), since)
    return Hold(Plain(Reason.TEMPLATE_SETTLING), since) if snapshot.images.awaits(image) else None
