"""What takes back a driver that nodes have not got yet: its DaemonSet gets the template again of which their pods were made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from gpuward import names
from gpuward.model.driver import owner_uid, revisions_of
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.versions import version_of
from gpuward.model.views import PodView, RevisionView
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix
from gpuward.upgrade.remedies.policy_fixes import driver_source
from gpuward.upgrade.remedies.question import Question

RISK = "nodes that have the new driver are upgraded once more: pods that use GPUs are evicted there"
replace = msgspec.structs.replace


def take_back(question: Question) -> Iterator[Fix]:
    """Take the new driver back, where the node's DaemonSet made its pod of an earlier template."""
    driver, revisions = question.node.driver, question.case.snapshot.revisions
    if driver is None or driver.orphan:
        return
    uid = owner_uid(driver)
    before = next((each for each in revisions if each.owner_uid == uid and each.hash == driver.revision), None)
    newest = revisions_of(uid, revisions).newest
    if before is None or newest is None or before.hash in revisions_of(uid, revisions).same:
        return
    source = driver_source(question.case)
    asked = next((each.image for each in question.case.snapshot.daemonsets if each.uid == uid), "")
    do = f"take the new driver back: give {source} {_what_it_had(driver, asked, ', with which this node runs')}"
    yield Fix(do, partial(_reverted, before=before, number=newest.revision + 1), f"kubectl edit {source}", RISK)


def take_back_untried(question: Question, *, given_up: bool = False) -> Iterator[Fix]:
    """Take the new driver back, where it does not come up on this node, or did not in its time, and runs on none yet; wherever
    it runs, where people have given it up.
    """
    driver, snapshot = question.node.driver, question.case.snapshot
    revisions = snapshot.revisions
    if driver is None or driver.orphan or (driver.ready if given_up else question.node.state not in (*IN_PROGRESS, State.FAILED)):
        return
    came_up = any(status.up_to_date for status in question.plan.nodes.values())  # somewhere, or here before
    if came_up and not given_up:
        return
    uid = owner_uid(driver)
    found = revisions_of(uid, revisions)
    earlier = [each for each in revisions if each.owner_uid == uid and each.hash not in found.same]
    if found.newest is None or driver.revision not in found.same or not earlier:
        return
    pods = [pod for there in snapshot.pods.values() for pod in there if pod.is_owned_by(uid)]
    running = {pod.revision: pod for pod in pods if pod.ready}
    # One that no node runs may be another that never came up.
    before = max(earlier, key=lambda each: (each.hash in running, each.revision))
    source, runs = driver_source(question.case), running.get(before.hash)
    told = _what_it_had(runs, driver.driver_image) if runs is not None else _version_before(question.node, driver)
    yield Fix(f"take the new driver back: give {source} {told}", partial(
        _reverted, before=before, number=found.newest.revision + 1), f"kubectl edit {source}", RISK if came_up else "")


def _what_it_had(runs: PodView, asked: str, where: str = "") -> str:
    """Say what a driver that runs was made of, where the images of the next one are `asked`: its version may be the same, as
    where the repository was changed, and then whoever sets it changes nothing; or both were changed, and then it is not enough.
    """
    version, image = _asked(runs), runs.driver_image
    if version and version == version_of(asked, runs.placed_by.get(names.DRIVER_KERNEL, "")):
        return _settings_before(image if image != asked else "", where)
    if version and asked and _repository(image) != _repository(asked):
        return f"the repository, image and version of the driver that it had before{where} ({image})"
    return f"the driver version that it had before{where}" + (f" ({version})" if version else "")


def _repository(image: str) -> str:
    return image.partition("@")[0].rpartition(":")[0]


def _settings_before(image: str, where: str) -> str:
    if image:
        return f"the repository and image of the driver that it had before{where} ({image}): the version is the same"
    return f"the settings of the driver that it had before{where}: version and image are the same"


def _version_before(node: NodeFacts, driver: PodView) -> str:
    """Say which version a node had, where no driver of that runs any more; one that is not known may be the same."""
    course = node.record.course
    before = course.before if course is not None else ""
    known = before not in ("", _asked(driver))
    return f"the driver version that it had before ({before})" if known else "the driver settings that it had before"


def _asked(driver: PodView) -> str:
    """Return what the version field said that a driver pod was made for: a precompiled driver's tag has the kernel besides."""
    return version_of(driver.driver_image, driver.placed_by.get(names.DRIVER_KERNEL, ""))


def _reverted(case: DecisionFacts, before: RevisionView, number: int) -> DecisionFacts:
    """Return the facts once the DaemonSet has the template of a revision again: that one gets the next number."""
    snapshot = case.snapshot
    revisions = tuple(replace(each, revision=number) if each == before else each for each in snapshot.revisions)
    back = {"config_digest": before.config_digest, "pod_digest": before.pod_digest}
    daemonsets = tuple(replace(each, **back) if each.uid == before.owner_uid else each for each in snapshot.daemonsets)
    return replace(case, snapshot=replace(snapshot, revisions=revisions, daemonsets=daemonsets))
