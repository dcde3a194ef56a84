"""Gather what there is to say about one node: from its facts, its record and the plan, and from what would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from shlex import quote

import msgspec

from gpuward import names
from gpuward.cli.hostdriver import own_toolkits, without_our_drivers
from gpuward.cli.leavingpods import LeavingPod, leaving_pods
from gpuward.cli.look import Picture
from gpuward.cli.podwords import PodWords
from gpuward.cli.prospects import prospects
from gpuward.cli.rollouts import PolicyRollout
from gpuward.cli.unselected import corrections, made_anew, selection
from gpuward.labels.discovery import NOT_DISCOVERED, told_of_loss
from gpuward.model.actions import PatchNode
from gpuward.model.driver import ANEW, driver_daemonsets, going
from gpuward.model.left_loaded import told_of_left
from gpuward.model.mig import without_layout
from gpuward.model.operand_pods import failing, unready_operands
from gpuward.model.owners import Claim, NodeOwner, OwnedBy, OwnerConflict
from gpuward.model.placement import is_made_anew
from gpuward.model.plan import Hold, NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner, Failure
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import AT_REST, State
from gpuward.model.systems import system_of
from gpuward.model.uncordoned import UNCORDONED, lacks_cordon
from gpuward.model.unserved import NotSelected
from gpuward.model.views import DaemonSetView, NodeView, PodView
from gpuward.model.waits import InvalidPolicy, OnPod
from gpuward.model.withheld import is_withheld
from gpuward.model.workloads import Workload, WorkloadKept, is_for_virtual_machines, workload_of
from gpuward.operands.cluster import os_tag
from gpuward.policy.refused import becomes, ending, refusal, refusals, unlisted
from gpuward.report.kernels import NODE, told_of_kernel
from gpuward.report.nodes import NOTHING_GOES_ON, NodeReport, node_reports
from gpuward.report.operands import operand_reports, told_of_templates
from gpuward.report.takenup import not_taken_up
from gpuward.report.versions import loaded_version
from gpuward.report.warned import (
    told_of_layout,
    told_of_lingering,
    told_of_plugin,
    told_of_request,
    told_of_skip,
    told_of_unserved,
)
from gpuward.upgrade.at_its_time import at_its_time
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.remedies import Remedy, remedies
from gpuward.upgrade.remedies.candidates import UNPAUSE
from gpuward.upgrade.remedies.fixes import DecisionFacts, Fix, uncordon
from gpuward.upgrade.remedies.mig import fix_layout
from gpuward.upgrade.remedies.operand_pod import mended
from gpuward.upgrade.unmanaged import missing_labels, why_unmanaged


class Explanation(msgspec.Struct, frozen=True):
    """Hold what there is to say about one node. Without a status it is not managed."""

    node: NodeView
    now: float
    policy: str
    status: NodeStatus | None = None
    report: NodeReport | None = None
    """How `gpuward status` shows it."""
    unmanaged: str = ""
    operand: Hold | None = None
    """What fails on a node whose driver is nobody's matter here."""
    event: tuple[float, str] = (0.0, "")
    """When the operator last said on the node why it is held, and what."""
    then: str = ""
    """What follows when the time comes until which it waits."""
    next: tuple[str, ...] = ()
    """The states that the operator takes the node to as soon as it acts."""
    failure: Failure | None = None
    cordon: CordonOwner | None = None
    cordoned_by: str = ""
    """Who cordoned it, where that was not the upgrade."""
    pods: tuple[LeavingPod, ...] = ()
    said: tuple[PodWords, ...] = ()
    """What its pods say that are stuck."""
    notes: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    @property
    def driver(self) -> str:
        """Return the version that it has loaded and, where that is another one, the one that it should have."""
        return self.report.driver if self.report is not None else ""


def explained(picture: Picture, name: str, *, knows_budgets: bool = True) -> Explanation:
    """Return the explanation of one node of the cluster."""
    snapshot, upgrades, plan = picture.snapshot, picture.upgrades(name), picture.plan
    node = snapshot.nodes[name]
    workloads = picture.active.workloads
    unknown = workloads.unknown(node) if workloads is not None else ""
    bare = Explanation(node, picture.now, _policy(picture, upgrades, name),
                       notes=(*not_taken_up(picture.drivers), *told_of_lingering(picture.drivers, snapshot),
                              *([unknown] if unknown else ()),
                              *told_of_templates(name, operand_reports(snapshot, picture.drivers)),
                              *(told_of_left(snapshot, name) if picture.active.view is None else ())))
    facts = next((facts for facts in gather(snapshot, upgrades) if facts.node.name == name), None)
    if facts is None:
        found = _of_unmanaged(msgspec.structs.replace(bare, unmanaged=_unmanaged(node, picture, upgrades), notes=(
            *bare.notes, *told_of_unserved(name, plan, snapshot))), snapshot, upgrades)
        return msgspec.structs.replace(found, remedies=(
            *without_our_drivers(node, picture, upgrades), *own_toolkits(node, picture, upgrades)) or found.remedies)
    found = msgspec.structs.replace(
        bare,
        status=plan.nodes[name],
        report=next((one for one in node_reports(plan, snapshot, picture.drivers) if one.node == name), None),
        then=at_its_time(snapshot, upgrades, name, plan),
        next=_next(plan, name),
        failure=facts.record.failure,
        cordon=_owner(facts),
        pods=leaving_pods(facts, upgrades, snapshot, plan.nodes[name].hold, picture.now),
        notes=(*bare.notes,
               *(prospects(plan.nodes[name], upgrades, facts.to_evict.pods, plan, picture.now) if not picture.idle else ()),
               *([f"{UNCORDONED}: new pods may come to it"] if lacks_cordon(node) else []),
               *(told.replace(NODE, "this node") for told in told_of_kernel(node, picture.drivers.placing)),
               *told_of_unserved(name, plan, snapshot), *told_of_plugin(node, picture.active), *told_of_skip(node),
               *told_of_request(node), *told_of_layout(node, plan.nodes[name].hold),
               *_notes(facts, picture, knows_budgets)),
        remedies=(*own_toolkits(node, picture, upgrades),
                  *_commanded(remedies(snapshot, upgrades, picture.now, name), picture, upgrades, node),
                  *_uncordoned(plan.nodes[name], node, picture, upgrades),
                  *_by_hand(plan.nodes[name], node, picture, upgrades)),
    )
    status = plan.nodes[name]
    if not found.remedies and status.hold is not None and isinstance(status.hold.what, NotSelected):
        found = msgspec.structs.replace(found, remedies=(selection(node, DecisionFacts(snapshot, upgrades)),))
    return _unattended(found, snapshot, upgrades) if picture.idle else found


def _unattended(found: Explanation, snapshot: Snapshot, upgrades: UpgradePolicy) -> Explanation:
    """Return an explanation where no operator runs: without one nothing else helps, and what would start is not known."""
    status = found.status
    if status is None or (status.hold is None and status.state in AT_REST and status.up_to_date):
        return found
    start = Remedy(f"get the operator to run: {NOTHING_GOES_ON}", "it goes on with this node when its turn comes",
                   (f"kubectl get deployments,pods -n {quote(snapshot.namespace)}",), DecisionFacts(snapshot, upgrades))
    others = found.remedies if status.hold is not None else ()
    later = (msgspec.structs.replace(each, then=f"once an operator runs: {each.then}") for each in others)
    return msgspec.structs.replace(found, remedies=(start, *later))


def _of_unmanaged(found: Explanation, snapshot: Snapshot, upgrades: UpgradePolicy) -> Explanation:
    """Return the explanation of a node without a driver of ours, with what fails there of the rest of the GPU stack."""
    layout, _ = without_layout(found.node, found.now)
    if layout is not None and found.node.ready:
        return _mended(found, Hold(layout, found.node.mig_since), fix_layout(found.node, snapshot), snapshot, upgrades)
    unready = unready_operands(snapshot.pods.get(found.node.name, ()), snapshot.namespace)
    hold, _ = failing(unready, found.now)
    pod = next((pod for pod in unready if hold is not None and isinstance(hold.what, OnPod) and pod.ref == hold.what.pod), None)
    if pod is None or hold is None or not found.node.ready:
        return found
    return _mended(found, hold, mended(pod, snapshot.pods.get(found.node.name, ())), snapshot, upgrades)


def _mended(found: Explanation, hold: Hold, fix: Fix, snapshot: Snapshot, upgrades: UpgradePolicy) -> Explanation:
    then = "the node has this part of the GPU stack again"
    remedy = Remedy(fix.do, then, fix.commands, fix.change(DecisionFacts(snapshot, upgrades)))
    return msgspec.structs.replace(found, operand=hold, remedies=(remedy,))


def _uncordoned(status: NodeStatus, node: NodeView, picture: Picture, upgrades: UpgradePolicy) -> Iterator[Remedy]:
    """Return how a node is put back into service that the upgrade does not keep from it."""
    if status.cordoned and status.up_to_date:
        fix = uncordon(node)
        yield Remedy("uncordon the node, once whoever cordoned it has finished", "new pods are scheduled to it again",
                     (fix.command,), fix.change(DecisionFacts(picture.snapshot, upgrades)), fix.risk)


def _by_hand(status: NodeStatus, node: NodeView, picture: Picture, upgrades: UpgradePolicy) -> Iterator[Remedy]:
    """Return what helps and cannot be tried on paper: what is wrong with a policy, and whose work pods do, people know."""
    after, hold = DecisionFacts(picture.snapshot, upgrades), status.hold
    if hold is not None and isinstance(hold.what, InvalidPolicy):
        kind, _, name = hold.what.policy.partition(" ")
        problem = next((text for text in refusals(picture.drivers) if text.startswith(hold.what.policy)), "")
        if problem:
            of_nodes = NOT_DISCOVERED in problem
            yield Remedy(problem if of_nodes else f"correct the {kind}: {problem}", "nodes start again when their turn comes",
                         () if of_nodes else (f"kubectl edit {kind.lower()} {quote(name)}",), after)
    if hold is not None and isinstance(hold.what, NotSelected):
        yield from corrections(hold.what, picture, after)
        yield from made_anew(node, picture, after)
    if hold is not None and isinstance(hold.what, WorkloadKept):
        pod, wanted = hold.what.pod, hold.what.wanted
        yield Remedy(f"end the pods that use its GPUs, or wait for their end: {hold.what.pods} in all",
                     f"the node becomes one for {wanted}",
                     (f"kubectl delete pod {quote(pod.name)} -n {quote(pod.namespace)}",), after, "what they compute is lost")
        if upgrades.workloads is None or not upgrades.workloads.enabled:
            return  # its label says nothing then
        yield Remedy(f"or let it stay a node for {hold.what.workload}", "nothing is asked of it then",
                     (f"kubectl label node {quote(node.name)} {names.WORKLOAD_CONFIG}={hold.what.workload} --overwrite",), after)


GONE = "kubectl patch nvidiadriver "
"""How a command begins that is of no use once the NVIDIADriver of a node is deleted."""


def _commanded(found: tuple[Remedy, ...], picture: Picture, upgrades: UpgradePolicy, node: NodeView) -> tuple[Remedy, ...]:
    """Return remedies, of which the one for a pause of `gpuward pause` is the command that ends it."""
    if upgrades.placing is not None and upgrades.placing.claims == () and upgrades.unowned and picture.active.view is not None:
        return (*found, *_without_drivers(picture, upgrades, node))
    if upgrades.gone:  # nobody can edit it any more
        return tuple(each for each in found if not any(command.startswith(GONE) for command in each.commands))
    views = {each.view.name: each.view for each in picture.drivers.active} if upgrades.driver else {"": picture.active.view}
    view = views.get(upgrades.driver)
    if view is None or not PolicyRollout(view, driver=bool(upgrades.driver)).is_paused:
        return found
    command = "gpuward resume" + (f" --driver {quote(upgrades.driver)}" if upgrades.driver else "")
    return tuple(_ending_the_pause(each, command) if each.do == UNPAUSE or each.do.startswith(f"{UNPAUSE}, and ") else each
                 for each in found)


def _ending_the_pause(remedy: Remedy, command: str) -> Remedy:
    """Return a remedy that begins with turning upgrades on, and does that with the command that ends the pause."""
    then = remedy.commands[0].partition(" && ")[2]
    return msgspec.structs.replace(remedy, do=f"end the pause{remedy.do.removeprefix(UNPAUSE)}",
                                   commands=(" && ".join(filter(None, (command, then))),))


def _without_drivers(picture: Picture, upgrades: UpgradePolicy, node: NodeView) -> Iterator[Remedy]:
    """Return what to do where drivers are left to NVIDIADrivers and there is none: nobody can try one that is not written, and a
    version that is chosen here would replace the driver of the fleet.
    """
    after, policy = DecisionFacts(picture.snapshot, upgrades), picture.active.view
    if policy is None:
        return
    loaded, doubtful = loaded_version(node, picture.snapshot)
    version = "the version that you want"
    if loaded and not doubtful:
        version = f"the version that the node runs, {loaded}, or the one that you want: another one replaces it"
    yield Remedy(f"create an NVIDIADriver that selects the node, with {version}. The ClusterPolicy still has the settings that "
                 "it was made with", "its driver comes from that",
                 (f"kubectl get clusterpolicy {quote(policy.name)} -o jsonpath='{{.spec.driver}}'",), after)
    back = '{"spec":{"driver":{"useNvidiaDriverCRD":false}}}'
    yield Remedy("or leave drivers to the ClusterPolicy", "its driver comes from that",
                 (f"kubectl patch clusterpolicy {quote(policy.name)} --type merge -p '{back}'",), after)


def _unmanaged(node: NodeView, picture: Picture, upgrades: UpgradePolicy) -> str:
    active = picture.active
    if active.view is None:
        return active.upgrades.absent
    if node.gpu_present and not is_for_virtual_machines(node) and (why := unlisted(picture.drivers, picture.snapshot)):
        return f"it is not known whether an NVIDIADriver is for it, as {why}"
    off = f"ClusterPolicy {active.view.name}" if active.switched_off else ""
    managed = active.manages_hosts if active.valid is not None and not picture.drivers.in_force else None
    return why_unmanaged(node, picture.snapshot, upgrades, off=off, managed=managed)


def _whose(node: NodeView, owner: NodeOwner | None, claims: Iterable[Claim]) -> str:
    """Say which NVIDIADrivers are for a node that has none."""
    hosts, vgpu = is_for_virtual_machines(node), workload_of(node.labels) is Workload.VM_VGPU
    types = {claim.name: claim.driver_type for claim in claims
             if (claim.is_for_hosts and not hosts) or (claim.is_for_containers and vgpu)}
    match owner:
        case OwnerConflict():
            return f"more than one of them is for this node: {', '.join(owner.names)}"
        case OwnedBy() if owner.name in types:
            return f"{owner.name}, which is for this node, is of type {types[owner.name]}"
        case OwnedBy():
            return f"{owner.name} is for this node, which is not labelled so yet"
        case _:
            return "none of them is for this node"


def _policy(picture: Picture, upgrades: UpgradePolicy, node: str) -> str:
    active = picture.active
    if active.view is None:
        return active.upgrades.absent
    if picture.elsewhere:
        return picture.elsewhere
    if refused := refusal(picture.drivers) or refusal(picture.drivers, upgrades.driver):
        return refused
    if upgrades.unowned:
        told = _whose(picture.snapshot.nodes[node], picture.drivers.owners.get(node), picture.drivers.claims)
        return f"ClusterPolicy {active.view.name}: drivers are left to NVIDIADrivers, and {told}"
    if upgrades.gone:
        return f"NVIDIADriver {upgrades.driver}, which is deleted{becomes(upgrades, picture.drivers, picture.snapshot, node)}"
    going = next((f"{ending(each.view)}{becomes(upgrades, picture.drivers, picture.snapshot, node)}"
                  for each in picture.drivers.going if each.view.name == upgrades.driver), "")
    if going:
        return f"NVIDIADriver {going}"
    claimed = picture.drivers.owners.get(node)
    if upgrades.driver and isinstance(claimed, OwnerConflict):
        going = f"{upgrades.driver}, which keeps the node while it is open whose it is: {claimed}"
    name = f"NVIDIADriver {going or upgrades.driver}" if upgrades.driver else f"ClusterPolicy {active.view.name}"
    return name + ("" if upgrades.auto_upgrade else ": automatic upgrades are off")


def _next(plan: Plan, name: str) -> tuple[str, ...]:
    patches = (action for action in plan.actions if isinstance(action, PatchNode) and action.node.name == name)
    return tuple(str(state) or "none" for patch in patches for state in patch.entered)


def _owner(node: NodeFacts) -> CordonOwner | None:
    """Return whose cordon a node carries, None where the upgrade has nothing to do with it."""
    if not node.unschedulable:
        return None
    return CordonOwner.OTHER if node.cordon_is_foreign else node.record.cordon


def _progress(pod: PodView) -> str:
    """Say which container a pod that is not ready waits for, running ones too."""
    if pod.progress is None:
        return pod.waiting
    return f"{pod.progress} {'waits: ' + pod.progress.reason if pod.progress.reason else pod.progress.runs}"


def _lacking(node: NodeView, picture: Picture) -> str:
    """Say what a node lacks for a driver pod."""
    if node.labels.get(names.DRIVER_OWNER) and not system_of(node.labels):
        return (f"node feature discovery has not said which operating system it runs ({names.NFD_OS_ID}, "
                f"{names.NFD_OS_VERSION}), and its NVIDIADriver chooses the driver by that")
    return missing_labels(node, driver_daemonsets(picture.snapshot))


def _anew(ds: DaemonSetView, picture: Picture) -> str:
    off = picture.drivers.policy.switched_off
    return f": {ANEW}" if not off and is_made_anew(ds.node_selector, picture.drivers.placing) else ""


def _other_system(node: NodeFacts, picture: Picture) -> Iterator[str]:
    """Say that a driver is for another operating system than the node has."""
    driver, runs = node.driver, os_tag(node.node)
    for ds in driver_daemonsets(picture.snapshot):
        if driver is not None and driver.is_owned_by(ds.uid) and runs and ds.system not in ("", runs):
            yield (f"its driver is for {ds.system}, and the node runs {runs}: a ClusterPolicy has one driver for all systems, "
                   "unless it is precompiled, and keeps it while any GPU node has its system; an NVIDIADriver has one for each")


def _notes(node: NodeFacts, picture: Picture, knows_budgets: bool) -> Iterator[str]:
    """Tell what else a person may want to know."""
    view, driver = node.node, node.driver
    if view.record_error:
        yield f"the annotation {names.UPGRADE_RECORD} cannot be read, as if it were not there: {view.record_error}"
    if view.ready is not True:
        yield "the node is not Ready" if view.ready is False else "the node does not say whether it is Ready"
    yield from told_of_loss(view, picture.active.upgrades.rollout.discovery_grace, picture.now)
    if view.labels.get(names.UPGRADE_SKIP) == "true" and node.state is not State.UPGRADE_REQUIRED:
        yield f"the label {names.UPGRADE_SKIP}=true keeps it from starting, not from what is under way"
    if driver is None and is_withheld(view):
        yield ("no driver pod is made here until the node is emptied: the one that loaded its driver is gone. If that is "
               "loaded still and pods use it, the next driver pod would unload it under them")
    elif (driver is None or node.stranded) and node.unserved is None and (lacking := _lacking(view, picture)):
        yield f"no driver pod is made here: {lacking}"
    yield from (f"DaemonSet {ds.name} {going(ds)}{_anew(ds, picture)}" for ds in driver_daemonsets(picture.snapshot)
                if ds.deleting and (ds.node_selector.items() <= view.labels.items() or (driver and driver.is_owned_by(ds.uid))))
    if driver is not None and (how_far := _progress(driver)):
        yield f"driver pod {driver.name}: {how_far}"
    yield from _other_system(node, picture)
    if driver is not None and driver.restarts:
        yield f"driver pod {driver.name} has restarted {driver.restarts} time{'' if driver.restarts == 1 else 's'}"
    yield from (f"validator pod {pod.name}: {how_far}" for pod in node.validators if (how_far := _progress(pod)))
    if node.state is State.UPGRADE_REQUIRED and node.restart_only:
        yield "the new template would install the same driver: its pod is only restarted, and no pod has to leave"
    if not knows_budgets:
        yield "disruption budgets may not be read: which pods they protect is not known here"
