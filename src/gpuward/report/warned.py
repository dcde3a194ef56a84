"""Warn of what nobody waits for and people should know of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from shlex import quote

from gpuward import names
from gpuward.labels.discovery import SILENCE, is_lost, is_silent
from gpuward.model.abandoned import WHAT_TO_DO, is_abandoned
from gpuward.model.hosts import outdated_on_hosts
from gpuward.model.left_loaded import told_of_left
from gpuward.model.listing import listed
from gpuward.model.mig import paused_operands, without_layout
from gpuward.model.operand_pods import unready_operands
from gpuward.model.plan import Hold, NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.model.waves import REST, WavePhase
from gpuward.model.withheld import is_unwanted, is_withheld, runs_on_loaded
from gpuward.operands.unmounted import told_of_unmounted, unmounted
from gpuward.policy.clusterpolicy import ActivePolicy
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.refused import unread_words
from gpuward.report.kernels import NODE, told_of_kernel
from gpuward.upgrade.counts import UNSERVED
from gpuward.upgrade.limits import unbounded

_MOST = 3
_OF_RUNTIME_CLASS = (names.VALIDATOR_APP, "gpu-feature-discovery")
"""Apps whose pods have NVIDIA's runtime class, and nothing of people's that they could wait for, such as a ConfigMap."""
_NOT_STARTED = ("", "PodInitializing", "ContainerCreating")
_PAUSED = "paused-for-"
"""What the values have that the driver manager and the MIG manager give to labels of operands while they work."""
_CORDON = "until then `kubectl cordon` keeps pods away that would find none"


def warnings(policies: PoliciesInForce, plan: Plan, snapshot: Snapshot, now: float = math.inf) -> tuple[str, ...]:
    """Return what is to be said of limits that bound nothing, of annotations that cannot be read, of ConfigMaps that pods wait
    for, of nodes that offer GPUs which no driver pod serves or whose driver people took away under pods, of nodes without a
    device plugin or container toolkit, of hosts of virtual machines with an older driver, of labels that skip nothing and
    annotations that ask for nothing, and of nodes on which discovery sees no GPU, or of which it says nothing.
    """
    nodes = [name for name in sorted(snapshot.nodes) if offers_unserved(name, plan, snapshot)]
    offer = "offers" if len(nodes) == 1 else "offer"
    told = (f"{listed(nodes, _MOST)} {offer} GPUs that no driver pod serves: gpuward explain {one}" for one in nodes[:1])
    settings = (*told_of_lingering(policies, snapshot), *_ignored(policies, snapshot),
                *unbounded(policies.upgrades, plan, snapshot), *unread_words(policies), *_empty_waves(policies, plan))
    unmade = (message for _, message in told_of_unmounted(unmounted(policies.policy, snapshot), snapshot.namespace))
    of_nodes = (*_taken_away(snapshot), *_without_plugin(policies.policy, plan, snapshot),
                *_without_toolkit(policies.policy, plan, snapshot), *_without_layout(plan, snapshot, now),
                *_outdated(policies, snapshot), *_unskipped(plan, snapshot), *_unasked(plan, snapshot),
                *_of_kernels(policies, snapshot), *_lost(plan, snapshot), *_silent(plan, snapshot))
    left = told_of_left(snapshot) if policies.policy.view is None else ()
    return (*settings, *unmade, *told, *of_nodes, *left)


def lost_its_driver(node: NodeView, snapshot: Snapshot) -> bool:
    """Tell whether a node's driver went under pods that use it, since its label says that it is to have none."""
    return is_unwanted(node) and runs_on_loaded(node, snapshot)


def _taken_away(snapshot: Snapshot) -> Iterator[str]:
    nodes = sorted(name for name, node in snapshot.nodes.items() if lost_its_driver(node, snapshot))
    for one in nodes[:1]:
        yield (f"{listed(nodes, _MOST)} {'has' if len(nodes) == 1 else 'have'} no driver pod, as the label "
               f"{names.DEPLOY_DRIVER}=false says, and pods there use GPUs: gpuward explain {one}")


def _outdated(policies: PoliciesInForce, snapshot: Snapshot) -> Iterator[str]:
    left = policies.placing is not None and policies.placing.claims is not None
    nodes = sorted(outdated_on_hosts(snapshot)) if left else []
    for one in nodes[:1]:
        yield (f"{listed(nodes, _MOST)} {'has' if len(nodes) == 1 else 'have'} an older driver for virtual machines than "
               f"{'its NVIDIADriver asks' if len(nodes) == 1 else 'their NVIDIADrivers ask'} for, and nobody replaces its pod: "
               f"gpuward explain {one}")


def lacks_plugin(node: NodeView, active: ActivePolicy) -> bool:
    """Tell whether somebody keeps the device plugin from a node by its label, if by a typing error: it offers no GPUs, but for
    claims. Who pauses it says so elsewhere.
    """
    runs = active.valid is not None and active.valid.spec.device_plugin.is_enabled
    value = node.labels.get(names.DEPLOY_PLUGIN, "")
    return runs and node.gpu_present and value not in ("", "true") and _PAUSED not in value


def _without_plugin(active: ActivePolicy, plan: Plan, snapshot: Snapshot) -> Iterator[str]:
    nodes = [name for name in sorted(plan.nodes) if name in snapshot.nodes and lacks_plugin(snapshot.nodes[name], active)]
    for one in nodes[:1]:
        yield (f"{listed(nodes, _MOST)} {'has' if len(nodes) == 1 else 'have'} no device plugin, as the label "
               f"{names.DEPLOY_PLUGIN}={snapshot.nodes[one].labels[names.DEPLOY_PLUGIN]} says: gpuward explain {one}")


def told_of_plugin(node: NodeView, active: ActivePolicy) -> tuple[str, ...]:
    """Return what is to be said of such a node, nothing of any other."""
    if not lacks_plugin(node, active):
        return ()
    value = node.labels[names.DEPLOY_PLUGIN]
    return (f"it has no device plugin, which the label {names.DEPLOY_PLUGIN}={value} keeps away: without a DRA driver it offers "
            f"no GPUs; `kubectl label node {quote(node.name)} {names.DEPLOY_PLUGIN}-` brings the plugin back",)


def _skips_nothing(node: NodeView) -> bool:
    """Tell whether somebody may have meant to keep a node from upgrades by a value that does not."""
    return _may_mean_true(node.labels.get(names.UPGRADE_SKIP, ""))


def _unskipped(plan: Plan, snapshot: Snapshot) -> Iterator[str]:
    nodes = [name for name in sorted(plan.nodes) if name in snapshot.nodes and _skips_nothing(snapshot.nodes[name])]
    for one in nodes[:1]:
        yield (f"{listed(nodes, _MOST)} {'is' if len(nodes) == 1 else 'are'} upgraded like any other, whatever the label "
               f"{names.UPGRADE_SKIP}={snapshot.nodes[one].labels[names.UPGRADE_SKIP]} was to say: only `true` skips a node")


def told_of_lingering(policies: PoliciesInForce, snapshot: Snapshot) -> Iterator[str]:
    """Tell of a RolloutPolicy that is gone and still in force."""
    view = policies.policy.rollout.view
    if view is not None and view.gone and "RolloutPolicy" in snapshot.forbidden:  # nobody has seen that it is gone
        yield f"RolloutPolicies cannot be listed: {view.name}, the last one that is known, is taken to be in force"
    elif view is not None and view.gone:
        yield f"RolloutPolicy {view.name} was deleted: it holds what it held for a minute, and then the defaults are in force"


def _ignored(policies: PoliciesInForce, snapshot: Snapshot) -> Iterator[str]:
    view = policies.policy.view
    others = [other.name for other in snapshot.policies if view is not None and not other.deleting and other.uid != view.uid]
    if view is not None and others:
        are = "is" if len(others) == 1 else "are"
        yield f"ClusterPolicy {listed(others, _MOST)} {are} ignored: {view.name}, which is older, is in force"


def _of_kernels(policies: PoliciesInForce, snapshot: Snapshot) -> Iterator[str]:
    placing = policies.placing
    found: dict[str, list[str]] = {}
    for name, node in sorted(snapshot.nodes.items()):
        for told in told_of_kernel(node, placing):
            found.setdefault(told, []).append(name)
    yield from (told.replace(NODE, listed(nodes, _MOST)) for told, nodes in found.items())


def told_of_skip(node: NodeView) -> tuple[str, ...]:
    """Return what is to be said of such a node, nothing of any other."""
    if not _skips_nothing(node):
        return ()
    value = node.labels[names.UPGRADE_SKIP]
    return (f"the label {names.UPGRADE_SKIP}={value} does not keep it from upgrades: only `true` does; "
            f"`gpuward skip {quote(node.name)}` sets that",)


def _asks_nothing(node: NodeView) -> bool:
    """Tell whether somebody may have meant to ask for an upgrade by a value that does not."""
    return _may_mean_true(node.annotations.get(names.UPGRADE_REQUESTED, ""))


def _may_mean_true(value: str) -> bool:
    """Tell whether a value may have been meant for `true`, which alone NVIDIA's operator takes."""
    return value not in ("", "true") and value.lower() != "false"


def _unasked(plan: Plan, snapshot: Snapshot) -> Iterator[str]:
    nodes = [name for name in sorted(plan.nodes) if name in snapshot.nodes and _asks_nothing(snapshot.nodes[name])]
    for one in nodes[:1]:
        yield (f"no upgrade of {listed(nodes, _MOST)} is asked for by the annotation "
               f"{names.UPGRADE_REQUESTED}={snapshot.nodes[one].annotations[names.UPGRADE_REQUESTED]}: only `true` asks for one")


def told_of_request(node: NodeView) -> tuple[str, ...]:
    """Return what is to be said of such a node, nothing of any other."""
    if not _asks_nothing(node):
        return ()
    value = node.annotations[names.UPGRADE_REQUESTED]
    return (f"the annotation {names.UPGRADE_REQUESTED}={value} asks for no upgrade: only `true` does; "
            f"`kubectl annotate node {quote(node.name)} {names.UPGRADE_REQUESTED}=true --overwrite` sets that",)


def _empty_waves(policies: PoliciesInForce, plan: Plan) -> Iterator[str]:
    """Say which waves try nothing, as no node is in them: what waits for one that had begun says so itself."""
    asks = {(policy.driver, wave.name) for policy in policies.upgrades for wave in policy.rollout.waves if wave.approval}
    for rollout in plan.waves:
        whose = f" of NVIDIADriver {rollout.driver}" if rollout.driver else ""
        for wave in rollout.waves:
            if wave.phase is WavePhase.DONE and wave.name != REST and not wave.total and not wave.left:
                idle = not rollout.targets and (rollout.driver, wave.name) in asks
                then = "nothing is tried there, and later waves wait for approval alone" if idle else "later waves do not wait"
                yield f"no node counts in wave {wave.name} of the RolloutPolicy{whose} (see its nodeSelector): {then}"


def _without_layout(plan: Plan, snapshot: Snapshot, now: float) -> Iterator[str]:
    """Say so of nodes whose driver is nobody's matter here: others have it for their reason."""
    nodes = [name for name, node in sorted(snapshot.nodes.items())
             if name not in plan.nodes and node.gpu_present and without_layout(node, now)[0] is not None]
    for one in nodes[:1]:
        yield (f"{listed(nodes, _MOST)} {'has' if len(nodes) == 1 else 'have'} not got the MIG layout that the label "
               f"{names.MIG_CONFIG} asks for: gpuward explain {one}")


def told_of_layout(node: NodeView, hold: Hold | None) -> tuple[str, ...]:
    """Return what is to be said of operands that the MIG manager keeps off a node, where the node has another reason or none."""
    away = paused_operands(node)
    if not away or (hold is not None and hold.reason is Reason.MIG_NOT_APPLIED):
        return ()
    state = f"{names.MIG_STATE}={node.labels.get(names.MIG_STATE, '')}"
    return (f"the MIG manager keeps {listed(away, _MOST)} off this node ({state}): "
            "what validates a driver waits for the device plugin meanwhile",)


def _lost(plan: Plan, snapshot: Snapshot) -> Iterator[str]:
    nodes = [name for name in sorted(plan.nodes) if (node := snapshot.nodes.get(name)) is not None
             and names.DISCOVERY_LOST in node.annotations and is_lost(node) and not is_silent(node)]
    for one in nodes[:1]:
        yield (f"node feature discovery sees no GPU on {listed(nodes, _MOST)} any more: the GPU stack there goes, driver "
               f"included, unless it does again: gpuward explain {one}")


def _silent(plan: Plan, snapshot: Snapshot) -> Iterator[str]:
    nodes = [name for name in sorted(plan.nodes) if (node := snapshot.nodes.get(name)) is not None and is_silent(node)]
    if nodes:
        yield SILENCE.format(node=listed(nodes, _MOST))


def waits_for_toolkit(node: str, active: ActivePolicy, snapshot: Snapshot) -> PodView | None:
    """Return a pod of a node that its container runtime does not start, where the container toolkit is switched off."""
    if active.valid is None or active.valid.spec.toolkit.is_enabled:
        return None
    waits_for_people = bool(active.valid.spec.device_plugin.config.name)
    apps = _OF_RUNTIME_CLASS if waits_for_people else (*_OF_RUNTIME_CLASS, names.DEVICE_PLUGIN_APP)
    return next((pod for pod in unready_operands(snapshot.pods.get(node, ()), snapshot.namespace)
                 if pod.labels.get("app") in apps and not pod.begun and _reason(pod) in _NOT_STARTED), None)


def _reason(pod: PodView) -> str:
    return pod.progress.reason if pod.progress is not None else pod.waiting


def _without_toolkit(active: ActivePolicy, plan: Plan, snapshot: Snapshot) -> Iterator[str]:
    """Say so of nodes in trouble: of others such a pod may just be starting."""
    troubled = (name for name, status in sorted(plan.nodes.items()) if status.failure is not None or (
        status.hold is not None and status.hold.reason is Reason.OPERAND_FAILING))
    nodes = [name for name in troubled if waits_for_toolkit(name, active, snapshot) is not None]
    for one in nodes[:1]:
        yield (f"toolkit.enabled is false, and on {listed(nodes, _MOST)} pods of NVIDIA's runtime class do not start: a node "
               f"needs a container toolkit of its own then; gpuward explain {one}")


def offers_unserved(name: str, plan: Plan, snapshot: Snapshot) -> bool:
    """Tell whether a node that gets no driver pod, or none before its turn, offers GPUs: what is put there finds no driver."""
    status, node = plan.nodes.get(name), snapshot.nodes.get(name)
    if node is None:
        return False
    if status is None:
        return is_unwanted(node) and is_abandoned(node, snapshot)
    gets_none = status.hold is not None and status.hold.reason in (*UNSERVED, Reason.DRIVER_LABEL_UNKNOWN)
    return (gets_none or _waits_without(status, node)) and is_abandoned(node, snapshot)


def told_of_unserved(name: str, plan: Plan, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what is to be said of such a node, nothing of any other."""
    if not offers_unserved(name, plan, snapshot):
        return ()
    status = plan.nodes.get(name)
    waits = status is not None and _waits_without(status, snapshot.nodes[name])
    mistyped = status is not None and status.hold is not None and status.hold.reason is Reason.DRIVER_LABEL_UNKNOWN
    brings = "a driver comes once its label is right" if mistyped else "its upgrade brings the next one" if waits else ""
    what = f"{brings}; {_CORDON}" if brings else WHAT_TO_DO
    return (f"its driver is still loaded, nobody serves it, and the node offers its GPUs: {what}",)


def _waits_without(status: NodeStatus, node: NodeView) -> bool:
    return status.state is State.UPGRADE_REQUIRED and is_withheld(node)
