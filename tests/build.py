"""Build facts that read like the sentence they mean: `fleet(nodes=4, driver="550", target="560", cordoned=[2])`.

Driver versions stand in for the revision hashes that pods and DaemonSets carry. Everything happened long before NOW unless said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from gpuward import names
from gpuward.model.plan import Hold, Plan
from gpuward.model.policy import DrainSettings, JobSettings, MaxUnavailable, PodDeletionSettings, UpgradePolicy
from gpuward.model.record import UNTOLD_DRIVER, CordonOwner, Failure, Record, encode_record
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.states import State
from gpuward.model.views import DaemonSetView, NodeView, Owner, PodView, RevisionView

NOW = 1_700_000_000.0
"""The time at which the tests decide, in seconds since the epoch."""
LONG_AGO = NOW - 86_400.0
ADMITTED = NOW - 60.0
NAMESPACE = "gpu-operator"
DAEMONSET = "nvidia-driver-daemonset"
PLUGIN = Owner("DaemonSet", "nvidia-device-plugin-daemonset", "uid-plugin")


def policy(
    *,
    parallel: int = 1,
    unavailable: str | int | None = None,
    wait_for: str = "",
    wait_timeout: int = 0,
    force: bool = False,
    empty_dir: bool = False,
    timeout: int = 300,
    drain: DrainSettings | None = None,
    **rest: Any,
) -> UpgradePolicy:
    """Build an active policy; `unavailable` is None for no limit, a count or a percentage such as "25%"."""
    return UpgradePolicy(
        auto_upgrade=rest.pop("auto_upgrade", True),
        max_parallel_upgrades=parallel,
        max_unavailable=max_unavailable(unavailable),
        wait_for_completion=JobSettings(wait_for, wait_timeout),
        pod_deletion=PodDeletionSettings(force, timeout, empty_dir),
        drain=drain or DrainSettings(),
        **rest,
    )


def max_unavailable(value: str | int | None) -> MaxUnavailable:
    """Build the bound that people write as a count or as a percentage."""
    if isinstance(value, str):
        return MaxUnavailable(percent=int(value.removesuffix("%")))
    return MaxUnavailable(count=value)


PAUSED = policy(auto_upgrade=False)


def record(state: State, *, ours: bool = False, foreign: bool = False, failed: State | None = None, **rest: Any) -> Record:
    """Build our memory of a node, admitted a minute ago for driver 560; `ours` and `foreign` say whose cordon it carries."""
    cordon = CordonOwner.GPUWARD if ours else CordonOwner.OTHER if foreign else None
    values: dict[str, Any] = {"since": ADMITTED, "started": ADMITTED, "target": "560", **rest}
    failure = Failure(failed, "it broke", ADMITTED) if failed is not None else None
    return Record(state=state, cordon=cordon, failure=failure, **values)


def seen(state: State, **rest: Any) -> Record:
    """Build the memory of a node whose driver pod was ready when it was written, and told no digest."""
    return record(state, **{"loaded": UNTOLD_DRIVER, **rest})


def node(
    name: str = "n0",
    state: State | str = State.UNKNOWN,
    *,
    remembers: Record | None = None,
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    cordoned: bool = False,
    ready: bool | None = True,
    deleting: bool = False,
) -> NodeView:
    """Build a GPU node with a state label and, if it remembers something, our annotation."""
    label = {names.UPGRADE_STATE: str(state)} if state else {}
    memory = {names.UPGRADE_RECORD: encode_record(remembers)} if remembers else {}
    return NodeView(
        name=name,
        uid=f"uid-{name}",
        labels={names.GPU_PRESENT: "true", **label, **labels},
        annotations={**memory, **annotations},
        unschedulable=cordoned,
        ready=ready,
        deleting=deleting,
        record=remembers,
    )


def under_way(state: State, *, name: str = "n0", foreign: bool = False, **rest: Any) -> NodeView:
    """Build a node in the middle of its upgrade to 560, cordoned by us, or before by somebody else."""
    memory = {key: rest.pop(key) for key in ("since", "started", "pods", "forced", "failed", "target") if key in rest}
    annotations = {**({names.INITIALLY_UNSCHEDULABLE: "true"} if foreign else {}), **rest.pop("annotations", {})}
    remembers = record(state, ours=not foreign, foreign=foreign, **memory)
    return node(name, state, remembers=remembers, annotations=annotations, cordoned=rest.pop("cordoned", True), **rest)


def driver_pod(
    at: str = "n0",
    driver: str = "550",
    *,
    ready: bool = True,
    created: float = LONG_AGO,
    orphan: bool = False,
    name: str = "",
    **rest: Any,
) -> PodView:
    """Build a driver pod; an orphan has lost its DaemonSet."""
    name = name or f"driver-{driver}-{at}"
    return PodView(
        namespace=NAMESPACE,
        name=name,
        uid=f"uid-{name}-{int(created)}",
        node=at,
        labels={"app": names.DRIVER_APP, names.REVISION_HASH: driver},
        owner=None if orphan else Owner("DaemonSet", DAEMONSET, "uid-daemonset"),
        orphan=orphan,
        phase=rest.pop("phase", "Running"),
        begun=rest.pop("begun", True),
        ready=ready,
        created=created,
        **rest,
    )


def validator(at: str = "n0", *, ready: bool = True, created: float = LONG_AGO, **rest: Any) -> PodView:
    """Build a validator pod."""
    return PodView(
        namespace=NAMESPACE,
        name=f"validator-{at}",
        uid=f"uid-validator-{at}-{int(created)}",
        node=at,
        labels={"app": names.VALIDATOR_APP},
        owner=Owner("DaemonSet", names.VALIDATOR_APP, "uid-validators"),
        phase=rest.pop("phase", "Running"),
        ready=ready,
        created=created,
        **rest,
    )


def device_plugin(at: str = "n0", *, ready: bool = True, **rest: Any) -> PodView:
    """Build a pod of the device plugin; with one there, a cluster has its DaemonSet."""
    return PodView(
        namespace=NAMESPACE,
        name=f"plugin-{at}",
        uid=f"uid-plugin-{at}",
        node=at,
        labels={names.TEMPLATE_GENERATION: str(rest.pop("template", 1))},
        owner=PLUGIN,
        phase="Running",
        ready=ready,
        **rest,
    )


def pod(at: str = "n0", name: str = "web", *, owner: str | None = "ReplicaSet", **rest: Any) -> PodView:
    """Build a workload pod in the default namespace; owner None is a bare pod."""
    return PodView(
        namespace=rest.pop("namespace", "default"),
        name=name,
        uid=f"uid-{name}-{at}",
        node=at,
        labels=rest.pop("labels", {}),
        owner=Owner(owner, f"{name}-owner", f"uid-{name}-owner") if owner else None,
        phase=rest.pop("phase", "Running"),
        ready=rest.pop("ready", True),
        **rest,
    )


def gpu_pod(at: str = "n0", name: str = "train", *, owner: str | None = "ReplicaSet", **rest: Any) -> PodView:
    """Build a workload pod that uses a GPU."""
    return pod(at, name, owner=owner, uses_gpu=True, **rest)


def cluster(
    nodes: Iterable[NodeView],
    pods: Iterable[PodView] = (),
    *,
    target: str = "560",
    settled: bool = True,
    digest: str = "",
    selects: Mapping[str, str] = {},
    alike: Collection[str] = (),
    refusals: Mapping[str, Refusal] = {},
    unsettled: Collection[str] = (),
) -> Snapshot:
    """Build a snapshot of a cluster whose driver DaemonSet wants the driver `target` on the nodes with the labels `selects`.

    The templates of the drivers `alike` differ from one another in labels and annotations only.
    """
    by_node: dict[str, tuple[PodView, ...]] = {}
    pods = tuple(pods)
    plugin = DaemonSetView(NAMESPACE, PLUGIN.name, uid=PLUGIN.uid, opens_driver=True, template_generation=1)
    for each in pods:
        by_node[each.node] = (*by_node.get(each.node, ()), each)
    return Snapshot(
        namespace=NAMESPACE,
        nodes={each.name: _with_loaded(each, by_node.get(each.name, ())) for each in nodes},
        pods=by_node,
        daemonsets=(daemonset(settled=settled, digest=digest, selects=selects),
                    *((plugin,) if any(each.is_owned_by(PLUGIN.uid) for each in pods) else ())),
        revisions=tuple(
            revision(driver, number, digest=digest if driver == target else "", pods="alike" if driver in alike else driver)
            for number, driver in ((1, "540"), (2, "550"), (3, "555"), (4, target))
        ),
        refusals=refusals,
        unsettled=frozenset(unsettled),
    )


def _with_loaded(view: NodeView, pods: Iterable[PodView]) -> NodeView:
    """Return a node that remembers the driver of its driver pod, as one does that remembers anything."""
    ready = [each for each in pods if each.labels.get("app") == names.DRIVER_APP and each.ready and not each.deleting]
    if view.record is None or view.record.loaded or not ready:
        return view
    known = msgspec.structs.replace(view.record, loaded=ready[0].config_digest or UNTOLD_DRIVER)
    return msgspec.structs.replace(
        view, record=known, annotations={**view.annotations, names.UPGRADE_RECORD: encode_record(known)})


def daemonset(
    *,
    settled: bool = True,
    digest: str = "",
    name: str = DAEMONSET,
    uid: str = "uid-daemonset",
    selects: Mapping[str, str] = {},
    driver: str = "",
) -> DaemonSetView:
    """Build a driver DaemonSet, of an NVIDIADriver if one is named; one that is not settled has a template not taken up yet."""
    return DaemonSetView(
        namespace=NAMESPACE,
        name=name,
        uid=uid,
        generation=2,
        observed_generation=2 if settled else 1,
        labels={"app": names.DRIVER_APP},
        owner=Owner("NVIDIADriver", driver, f"uid-{driver}") if driver else None,
        config_digest=digest,
        node_selector=selects,
        on_delete=True,
    )


def revision(driver: str, number: int, *, owner: str = "uid-daemonset", digest: str = "", pods: str = "") -> RevisionView:
    """Build the ControllerRevision of a driver template; templates of equal `pods` differ in labels and annotations only."""
    name = f"{DAEMONSET}-{driver}"
    return RevisionView(NAMESPACE, name, owner_uid=owner, revision=number, hash=driver, config_digest=digest, pod_digest=pods)


def fleet(
    nodes: int = 4,
    *,
    driver: str = "550",
    target: str = "560",
    states: Mapping[int, State] = {},
    state: State = State.UNKNOWN,
    cordoned: Collection[int] = (),
    not_ready: Collection[int] = (),
    gpu_pods: Mapping[int, int] = {},
    **rest: Any,
) -> Snapshot:
    """Build a fleet n0, n1, ... in one state, except for those in `states`; each has a driver and a validator pod.

    Those in `states` that are done run the target, all others `driver`.
    """
    views, pods = [], []
    for number in range(nodes):
        name = f"n{number}"
        views.append(node(name, states.get(number, state), cordoned=number in cordoned, ready=number not in not_ready))
        pods += [driver_pod(name, target if states.get(number) is State.DONE else driver), validator(name)]
        pods += [gpu_pod(name, f"train-{name}-{copy}") for copy in range(gpu_pods.get(number, 0))]
    return cluster(views, pods, target=target, **rest)


def hold_of(plan: Plan, name: str = "n0") -> Hold:
    """Return what a node waits for; a node that waits for nothing fails the test."""
    hold = plan.nodes[name].hold
    assert hold is not None, f"{name} is {plan.nodes[name].state} and waits for nothing"
    return hold
