"""The sentence of each reason, with what a wait leaves open in braces; `gpuward.model.explain` fills it in."""

from __future__ import annotations

from gpuward.model.reasons import Reason

SENTENCES: dict[Reason, str] = {
    Reason.SKIPPED: "left alone: the node has the label {label}=true",
    Reason.PAUSED: "upgrades are paused: {why}",
    Reason.NO_POLICY: "{what}: no driver is upgraded until one is in force{then}",
    Reason.INVALID_POLICY: "nothing new starts while {what} is invalid; see its condition",
    Reason.NODE_GONE: "the node is being deleted",
    Reason.NODE_NOT_READY: "the node is not Ready",
    Reason.DRIVER_POD_MISSING: "waits for the DaemonSet to make a driver pod on this node",
    Reason.DRIVER_ORPHANED: "driver pod {pod} belongs to no DaemonSet: it runs on until the node is upgraded, or somebody "
    "deletes it",
    Reason.NOT_SELECTED: "no NVIDIADriver selects this node, so it gets no driver pod{then}{refused}",
    Reason.DRIVER_REFUSED: "this node gets no driver pod{then}: {why}",
    Reason.WRONG_DRIVER_TYPE: "this node gets no driver pod{then}: NVIDIADriver {driver} is of type {driver_type}, and this node "
                              "runs containers",
    Reason.DRIVER_LABEL_UNKNOWN: "the label {label}={value} is none of true, false and pre-installed, so this node gets no "
    "driver pod{then}",
    Reason.KERNEL_UNKNOWN: "this node {then}: the label {label}, by which precompiled drivers are chosen, {says}",
    Reason.TEMPLATE_SETTLING:
        "the driver, or a setting of it, has just changed: waits for its controller, and 3 seconds for what is written with it",
    Reason.TEMPLATE_EDITED: "{by} edits DaemonSet {daemonset}, which is gpuward's: no node is upgraded by what it says",
    Reason.DRIVER_REPELLED:
        "stays as it is: the next driver pod, or its validator, does not tolerate {taints} of this node, and would not come",
    Reason.VALIDATION_OFF: "no validator gets ready here: a label nvidia.com/gpu.deploy.* keeps it, or what it needs, away",
    Reason.IMAGE_MISSING: "keeps its driver, as the image of the one that it should have is missing: {image} ({said})",
    Reason.IMAGE_NOT_STAGED: "the images of its next driver are being brought onto it, or wait for their turn: {image}",
    Reason.STAGING_FAILED: "the images of its next driver are not on it, and cannot be brought there: {image} ({cause})",
    Reason.NOTICE_GIVEN: "its pods were given notice {id}: they are evicted {when}; not acknowledged yet by {who}",
    Reason.NOTICE_UNANSWERED: "notice {id} was over at {begins}, and its pods are not evicted before all have acknowledged it; "
    "not acknowledged yet by {who}",
    Reason.MAINTENANCE_UNSEEN: "keeps its driver: the RolloutPolicy has NodeMaintenances asked for (`interop`), and the operator "
    "cannot see them, as they are not installed, or it may not list them",
    Reason.WINDOW_SHUT: "the windows of the RolloutPolicy let no node start now: {opens}",
    Reason.IDLE_AWAITED: "starts once no GPU pod has used it for {idle_for}{now}; from {evicts} on pods are evicted for that",
    Reason.ABORTED: "the rollout of this driver was aborted by {by} at {at}: `{command}` lets it go on, and another driver "
    "starts anew",
    Reason.PLAN_DIFFERS: "no node starts, as the rollout is not the one of the plan that was approved of: {difference} "
    "({differences:difference|differences}); see `gpuward plan --check FILE`",
    Reason.WAVE_FAILED: "no later wave starts: {failed} of {total} nodes of wave {wave} failed ({nodes}) and {limit} may; see "
    "`gpuward explain NODE`, then `gpuward resume`, or `gpuward promote`",
    Reason.WAVE_EMPTY: "no later wave starts: wave {wave} had begun, and has no node any more; label another one {labels}, "
    "or `{promote}`",
    Reason.WAVE_NOT_DONE: "waits for wave {wave}: {done} of {total} nodes done (not yet: {nodes})",
    Reason.WAVE_SOAKING: "wave {wave} is done and soaks until {until}{then}",
    Reason.ANALYSIS_FAILED: "no later wave starts: check {check} of wave {wave} failed {failures:time|times}: {told}; see "
    "`gpuward explain NODE`, then `{resume}` to measure anew, or `{promote}`",
    Reason.ANALYSIS_UNKNOWN: "wave {wave} is done, and no later one starts while nothing is known of its check {check}: {told}",
    Reason.ANALYSIS_RUNNING: "wave {wave} is done, and its check {check} has to pass for {lasts}: {now}",
    Reason.APPROVAL_REQUIRED: "wave {wave} {state}: waits for approval: {command}",
    Reason.WAVE_LIMIT: "waits for its turn: {used} of {limit} nodes that may be out of service in its wave ({nodes})",
    Reason.GROWTH_LIMIT: "waits for its turn: {used} of {limit} nodes that may be under way so far, which grow with the "
    "nodes that are done ({nodes})",
    Reason.GANG_AWAITED: "starts together with {nodes}, where {gang} has pods too: waits until all of them may start "
    "({node}: {why})",
    Reason.GANG_SPARED: "starts once {gang} has ended, which had to leave node {node} in this rollout and came here after that "
    "(pod {pod}); from {evicts} on it is evicted again",
    Reason.OPERANDS_STARTING: "only its driver pod is to be restarted: waits for the device plugin or DCGM to be ready, which "
    "keep the driver loaded under GPU pods meanwhile",
    Reason.FAILURE_BUDGET: "the rollout is paused: {failed} of {total} nodes failed ({nodes}) and {limit} may; "
    "see `gpuward explain NODE`, then `gpuward resume`",
    Reason.NEW_DRIVER_FAILS: "no more nodes start: none is up to date with the new driver yet, and node {node} is in trouble "
    "with it: {why}; see `gpuward explain {node}`, then correct what is wrong or let the rollout go on with `gpuward resume`",
    Reason.REFUSED_ELSEWHERE: "no more nodes start: driver pod {pod} of node {node} may not be replaced: {message}",
    Reason.EVICTION_FORBIDDEN: "no node starts from which pods of namespace {namespace} have to go: the operator has no right "
    "to evict them, as node {node} found out: {message}",
    Reason.LEDGER_REFUSED: "may start once it is noted on the operators' Lease, which may not be changed: {message}",
    Reason.DRIVER_KEPT: "keeps its driver, which is to go, while pod {pod} is there ({pods} in all): automatic upgrades "
    "are off, so nobody is evicted for that",
    Reason.DELETION_UNSEEN: "keeps its driver for now, as NVIDIADriver {driver} was deleted: {why}",
    Reason.HELD_DEVICES: "pod {pod} of {owner} holds the driver without asking for a GPU ({how})",
    Reason.PROTECTED_PODS: "pod {pod} has to leave before the driver is replaced and cannot be evicted: {why}",
    Reason.UNDRAINABLE: "keeps its driver, as its pods could not be moved: {cause}; it is tried again once they are gone, or "
    "with `gpuward retry`",
    Reason.BUDGET_BLOCKS: "disruption budget {budget} would never let pod {pod} go: it wants "
    "{desired:healthy pod|healthy pods}, and {expected:is|are} there",
    Reason.BUDGET_USED_UP: "disruption budget {budget} lets {allowed:pod|pods} go now and nodes ahead of this one need "
    "{claimed}; pod {pod} is under it",
    Reason.DOMAIN_LIMIT: "the RolloutPolicy lets {limit:node|nodes} of a domain be out of service, and of {domain} "
    "{used:is|are} already ({nodes})",
    Reason.DOMAIN_BROKEN: "the RolloutPolicy lets {limit:node|nodes} of a domain be out of service, and of {domain} "
    "{used:is|are} that no upgrade brings back ({nodes})",
    Reason.UNAVAILABLE_LIMIT: "maxUnavailable{whose} allows {limit}, and {used:is|are} out of service already ({nodes})",
    Reason.NO_NODE_MAY_START: "maxUnavailable{whose} allows {limit}, and {used:is|are} out of service that no upgrade brings "
    "back ({nodes}): no node starts",
    Reason.PARALLEL_LIMIT: "waits for its turn: {used} of {limit} parallel upgrades{whose} under way ({nodes})",
    Reason.JOBS_RUNNING: "waits for jobs to complete: {pod} ({pods} in all)",
    Reason.MAINTENANCE_AWAITED: "no pod is evicted before NodeMaintenance {name} is Ready: {told}",
    Reason.EVICTING: "waits until the GPU pods have gone: {pod} ({pods} in all)",
    Reason.EVICTION_REFUSED: "pod {pod} may not be evicted now ({attempts:attempt|attempts}): {message}",
    Reason.COMES_BACK: "{owner} puts pods back on the cordoned node, {times:time|times} so far{why}: {pod}",
    Reason.UNCORDONED: "somebody has lifted the cordon of the upgrade {times:time|times}, and pods come to the node: {pod}",
    Reason.KILLING: "the time to evict is up: waits until pod {pod} has ended ({pods} in all){refused}",
    Reason.QUARANTINED: "quarantined with its driver, as its pods could not be moved, and others go on: {cause}; it goes back "
    "once they are gone, with `gpuward retry` or `gpuward skip`",
    Reason.DRIVER_STOPPING: "waits for driver pod {pod} to stop",
    Reason.DEVICE_PLUGIN_STOPPING: "its driver goes from this node: it is uncordoned once pod {pod}, which offers its "
    "GPUs, has stopped",
    Reason.DOES_NOT_STOP: "its driver goes from this node, and pod {pod} has not stopped in its time: the node stays cordoned "
    "until that has",
    Reason.REPLACEMENT_REFUSED: "waits until driver pod {pod} may be replaced ({attempts:attempt|attempts}): {message}",
    Reason.DRIVER_STARTING: "waits for driver pod {pod} to get ready{waiting}",
    Reason.DRIVER_UNPLACED: "waits until driver pod {pod} finds a place on this node{waiting}",
    Reason.DRIVER_FAILING: "waits for driver pod {pod}, which does not start: {trouble}",
    Reason.DRIVER_IN_USE: "driver pod {pod} cannot load its driver while pods run on the one that was loaded before: {users}",
    Reason.VALIDATOR_MISSING: "waits for a validator pod on this node",
    Reason.VALIDATOR_STARTING: "waits for pod {pod} to confirm the new driver{waiting}",
    Reason.VALIDATOR_REPLACING: "replaces validator pod {pod}, whose result no longer counts",
    Reason.FAILED: "failed in {step}: {cause}{now}",
    Reason.RETRY_LATER: "failed in {step}: {cause}{now}; it is tried again by itself (retry {retry} of {retries})",
    Reason.UNKNOWN_STATE: "the state label has the value {label}, which is none of the known states",
    Reason.TWO_DRIVER_PODS: "{pods:driver pod runs|driver pods run} on this node",
    Reason.WRITE_REFUSED: "the API server refuses to change this node: {message}",
    Reason.WRITE_UNANSWERED: "waits for the API server's answer to a change of this node, or of one of its pods",
    Reason.UNDECIDED: "gpuward could not decide about this node, which is a bug in gpuward: {error}",
    Reason.MAINTENANCE: "a maintenance operator has this node; set its state label to upgrade-required to upgrade it here",
    Reason.METADATA_BEHIND: "up to date; only labels, annotations or the node selector of its driver pod are older, and "
    "change when the pod is next replaced",
    Reason.OPERAND_FAILING: "pod {pod} of this node is not ready: {trouble}",
    Reason.MIG_NOT_APPLIED: "the MIG layout {layout} {how} ({label}={state}){away}",
    Reason.OPERANDS_KEPT: "keeps its operands until its GPUs are free, though nvidia.com/gpu.deploy.operands=false wants none: "
    "pod {pod} uses them ({pods} in all)",
    Reason.WORKLOAD_KEPT: "stays a node for {workload} until its GPUs are free, and becomes one for {wanted} then: pod {pod} "
    "uses them ({pods} in all)",
    Reason.MOVE_PAUSED: "waits for {to}: upgrades are paused, so it keeps its driver until its driver pod is deleted",
}
PART_FAILS = ("no more nodes with {part} start: none of them is up to date with the new driver yet, and node {node} is in "
              "trouble with it: {why}; see `gpuward explain {node}`, then correct what is wrong or let the rollout go on with "
              "`gpuward resume`")
"""Where drivers come from several DaemonSets: those of the others go on."""
OF_DOMAINS = {
    Reason.DOMAIN_LIMIT: "the RolloutPolicy lets {limit:domain|domains} be disturbed, and this node's ({domain}) has to wait: "
    "{used:is|are} disturbed or half done ({domains}){out}",
    Reason.DOMAIN_BROKEN: "the RolloutPolicy lets {limit:domain|domains} be disturbed, and this node's ({domain}) has to wait: "
    "{used:has|have} nodes out of service that no upgrade brings back ({domains}){out}",
}
"""Said where domains are counted, and not the nodes of one."""
WAVE_SHUT = "the windows of wave {wave} let none of its nodes start now: {opens}"
"""Said where a wave has windows of its own."""
WITH_NOTICE = {
    Reason.UNAVAILABLE_LIMIT: "maxUnavailable{whose} allows {limit}, and {used:is|are} out of service, or next ({nodes})",
    Reason.PARALLEL_LIMIT: "waits for its turn: {used} of {limit} parallel upgrades{whose} under way, or next ({nodes})",
}
"""Said where nodes have a place that are in service as yet, as they were given notice."""
NONE_NOW = "disruption budget {budget} lets none go now; pod {pod} is under it"
"""Said where a budget has no room, whatever nodes ahead of this one need."""
UNWORKABLE = "disruption budget {budget} lets no pod go, {pod} among them: Kubernetes cannot work it out ({failure})"
"""Said of a budget that blocks for want of numbers."""
TO_BE_NOTICED = "its pods are to be given notice: they are evicted {when}"
"""Said where the notice has yet to be given, as in a plan, or while no operator runs."""
DRIVER_FOLLOWS = ("nothing offers its GPUs any more: its driver, pod {pod}, goes once that is so on all hosts that lose it, "
                  "after 45 s at the latest")
"""Said where the driver pod is not asked to stop yet."""
PLUGIN_FIRST = "waits until pod {pod}, which offers its GPUs, has stopped: its driver goes after that"
"""Said where the driver is still there."""
UNBEGUN_FIRST = "waits until pod {pod}, which does not offer its GPUs yet, has stopped: its driver goes after that"
"""Said there of one that waits itself, such as for the container toolkit."""
TAINTED = "waits for the DaemonSet to make a driver pod on this node, whose {taints} it does not tolerate"
"""Said where no driver pod comes until somebody does something."""
NO_LIMIT = "maxUnavailable{whose} allows {limit}: no node may be taken out of service"
"""Said where it is not others that are in the way."""
UNCOUNTED = {
    Reason.PAUSED: "upgrades are paused: autoUpgrade is false in the upgradePolicy of this node's driver, or "
    "sandboxWorkloads.enabled is true in the ClusterPolicy",
    Reason.EVICTION_REFUSED: "pod {pod} may not be evicted now: {message}",
    Reason.REPLACEMENT_REFUSED: "waits until driver pod {pod} may be replaced: {message}",
    Reason.COMES_BACK: "{owner} puts pods back on the cordoned node{why}: {pod}",
    Reason.FAILED: "failed: {cause}{now}",
}
"""Said where only others know how often, or in which step."""
