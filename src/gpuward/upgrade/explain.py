"""Make sentences of holds. The codes and arguments come from the decision; people read these."""

from __future__ import annotations

from gpuward.model.plan import Hold, Reason

SENTENCES: dict[Reason, str] = {
    Reason.SKIPPED: "left alone: the node has the label {label}=true",
    Reason.PAUSED: "upgrades are paused: driver.upgradePolicy.autoUpgrade is false",
    Reason.NO_POLICY: "{what}: no driver is upgraded until one is in force{then}",
    Reason.INVALID_POLICY: "nothing new starts while {what} is invalid; see its condition",
    Reason.NODE_GONE: "the node is being deleted",
    Reason.NODE_NOT_READY: "the node is not Ready",
    Reason.DRIVER_POD_MISSING: "waits for the DaemonSet to make a driver pod on this node",
    Reason.DRIVER_ORPHANED: "driver pod {pod} belongs to no DaemonSet: another one takes its place when the node is upgraded, or "
    "when somebody deletes it",
    Reason.TEMPLATE_SETTLING: "waits for the DaemonSet controller to take up the newest driver template",
    Reason.FAILURE_BUDGET: "the rollout is paused: {failed} of {total} nodes failed ({nodes}) and {limit} may; "
    "see `gpuward explain`, then `gpuward resume`",
    Reason.NEW_DRIVER_FAILS: "no more nodes start: the new driver runs on none yet, and on node {node} it is in trouble: {why}; "
    "see `gpuward explain {node}`, then correct the driver or let it go on by `gpuward resume`",
    Reason.HELD_DEVICES: "pod {pod} of {owner} holds the driver without asking for a GPU ({how})",
    Reason.PROTECTED_PODS: "pod {pod} has to leave before the driver is replaced and cannot be evicted: {why}",
    Reason.BUDGET_BLOCKS: "disruption budget {budget} would never let pod {pod} go: it wants {desired} healthy pods, "
    "and there are {expected}",
    Reason.BUDGET_USED_UP: "disruption budget {budget} lets {allowed} pods go now and nodes under way need {claimed}; "
    "pod {pod} is under it",
    Reason.UNAVAILABLE_LIMIT: "maxUnavailable{whose} allows {limit}, and {used} are out of service already ({nodes})",
    Reason.PARALLEL_LIMIT: "waits for its turn: {used} of {limit} parallel upgrades{whose} under way ({nodes})",
    Reason.JOBS_RUNNING: "waits for jobs to complete: {pod} ({pods} in all)",
    Reason.EVICTING: "waits until the GPU pods have gone: {pod} ({pods} in all)",
    Reason.EVICTION_REFUSED: "pod {pod} may not be evicted now ({attempts} attempts): {message}",
    Reason.COMES_BACK: "{owner} puts pods back on the cordoned node, {times} times so far{why}: {pod}",
    Reason.KILLING: "the time to evict is up: waits until pod {pod} has ended ({pods} in all){refused}",
    Reason.DRIVER_STOPPING: "waits for driver pod {pod} to stop",
    Reason.DRIVER_STARTING: "waits for driver pod {pod} to get ready{waiting}",
    Reason.DRIVER_FAILING: "waits for driver pod {pod}, which does not start: {trouble}",
    Reason.VALIDATOR_MISSING: "waits for a validator pod on this node",
    Reason.VALIDATOR_STARTING: "waits for pod {pod} to confirm the new driver{waiting}",
    Reason.VALIDATOR_REPLACING: "replaces validator pod {pod}, which saw the old driver",
    Reason.FAILED: "failed in {step}: {cause}{now}",
    Reason.RETRY_LATER: "failed in {step}: {cause}{now}; it is tried again by itself (retry {retry} of {retries})",
    Reason.UNKNOWN_STATE: "the state label has the value {label}, which is none of the known states",
    Reason.TWO_DRIVER_PODS: "{pods} driver pods run on this node",
    Reason.WRITE_REFUSED: "the API server refuses to change this node: {message}",
    Reason.UNDECIDED: "gpuward could not decide about this node, which is a bug in gpuward: {error}",
    Reason.MAINTENANCE: "a maintenance operator has this node; set its state label to upgrade-required to upgrade it here",
    Reason.METADATA_BEHIND: "up to date but for labels, annotations or the node selector of its driver pod, which it takes "
    "when it is next replaced",
    Reason.MOVE_PAUSED: "waits for {to}: upgrades are paused, so it keeps its driver until its driver pod is deleted",
}


def sentence(hold: Hold) -> str:
    """Return what the node waits for, in one sentence."""
    return SENTENCES[hold.reason].format_map({key: value for key, value in hold.args.items()})
