"""Pods to PodView, and which pods are worth keeping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from sys import intern

import msgspec

from gpuward import names
from gpuward.model.containers import ContainerProgress, PullProgress
from gpuward.model.driver import has_driver_labels, has_hosts_driver_labels, is_staging
from gpuward.model.gangs import gang_of
from gpuward.model.views import PodView
from gpuward.wire.meta import WireMeta, shared
from gpuward.wire.podspec import WirePodSpec

LONGEST_GRACE = 1e9
"""Seconds. Tenants write them, and may write numbers with which nothing can be reckoned any more."""


class _Waiting(msgspec.Struct):
    reason: str = ""


class _Running(msgspec.Struct, rename="camel"):
    started_at: datetime | None = None


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0


class _ContainerState(msgspec.Struct):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)
    last_state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    reason: str = ""
    last_transition_time: datetime | None = None


class _ClaimStatus(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    phase: str = "Pending"
    reason: str = ""
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    resource_claim_statuses: list[_ClaimStatus] | None = None
    extended_resource_claim_status: _ClaimStatus | None = None


class _Pod(msgspec.Struct):
    metadata: WireMeta
    spec: WirePodSpec = msgspec.field(default_factory=WirePodSpec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Pod)
LONGEST_ID = 64
"""Characters that are kept of what a pod acknowledges: an id of ours has 8."""
_PULLING = frozenset({"", "ContainerCreating", "PodInitializing"})
_OF_JOBS = "batch.kubernetes.io/job-tracking"
"""The finalizer of each Job's pods, which Kubernetes itself takes off once they have ended, if not before."""
_PULLED = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"})
"""What a container waits for while its image is on its way, and once it is there."""


def pod_view(raw: bytes | msgspec.Raw) -> PodView:
    """Decode a pod. Raises msgspec.DecodeError for bytes that are not one."""
    pod = _decoder.decode(raw)
    meta, spec, status = pod.metadata, pod.spec, pod.status
    statuses = status.container_statuses or []
    claims = _claims(spec, status)
    started = status.phase == "Running" and bool(statuses) and all(one.ready for one in statuses)
    unheard = started and not spec.readiness_gates and _is_not_ready(status)
    every = [*(status.init_container_statuses or ()), *statuses]
    annotations = meta.annotations or {}
    return PodView(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        node=intern(spec.node_name),
        meant_for=spec.meant_for,
        labels=shared(meta.labels),
        owner=meta.controller,
        orphan=not meta.owner_references,
        phase=status.phase,
        ready=started and not unheard,
        unheard=unheard,
        restarts=max((one.restart_count for one in every if not one.ready), default=0),
        waiting=_waiting(status, every),
        turned=_turned(status),
        started=min((one.timestamp() for one in map(_started, statuses) if one is not None), default=0.0),
        begun=any(map(_has_begun, every)),
        created=meta.created,
        bound=_bound(status),
        deleting=meta.deletion_timestamp is not None,
        ends=meta.deletion_timestamp.timestamp() if meta.deletion_timestamp is not None else 0.0,
        kept_by_finalizers=_kept_by(meta),
        uses_gpu=spec.uses_gpu,
        gpus=spec.gpus,
        uses_vm_gpu=spec.uses_vm_gpu,
        idle_claim=spec.uses_gpu and not spec.given_gpu,
        holds="" if spec.uses_gpu or _is_paused(meta, spec) else spec.hold(_ended(status)),
        claims=tuple(claims),
        consumed=tuple(name for name, given in claims.items() if given),
        empty_dir=spec.empty_dir,
        mirror=names.MIRROR_POD in annotations,
        tolerates_cordon=spec.tolerates_cordon,
        priority=spec.priority,
        grace=min(max(_grace(meta, spec), 0.0), LONGEST_GRACE),
        config_digest=spec.env(names.DRIVER_CONFIG_DIGEST),
        driver_image=_driver_image(meta, spec),
        subscribed=has_driver_labels(meta.labels or {}) and spec.mounts_subscription,
        images=_images(meta, spec),
        progress=None if started or not _of_daemonset(meta) else _progress(status),
        pulls=_pulls(status) if is_staging(meta.labels or {}) else None,
        placed_by=_placed_by(spec),
        gang=intern(gang_of(meta.namespace, meta.labels or {}, annotations, meta.controller, spec.pod_group)),
        acknowledged=intern(annotations.get(names.ACKNOWLEDGED, "")[:LONGEST_ID]),
    )


def _kept_by(meta: WireMeta) -> tuple[str, ...]:
    finalizers = meta.finalizers or () if meta.deletion_timestamp is not None else ()
    return tuple(each for each in finalizers if each != _OF_JOBS)


def _grace(meta: WireMeta, spec: WirePodSpec) -> float:
    given = meta.deletion_grace_period_seconds
    return spec.termination_grace_period_seconds if given is None else given


def _of_daemonset(meta: WireMeta) -> bool:
    return meta.controller is not None and meta.controller.kind == "DaemonSet"


def _driver_image(meta: WireMeta, spec: WirePodSpec) -> str:
    """Return the image of a driver pod, which all of its containers have but those that a webhook put in."""
    return intern(spec.main_image) if has_driver_labels(meta.labels or {}) or has_hosts_driver_labels(meta.labels or {}) else ""


def _images(meta: WireMeta, spec: WirePodSpec) -> frozenset[str]:
    return _alike(tuple(spec.images)) if has_driver_labels(meta.labels or {}) else frozenset()


@lru_cache(maxsize=256)
def _alike(images: tuple[str, ...]) -> frozenset[str]:
    """Return the same object for all driver pods of one template."""
    return frozenset(images)


def _progress(status: _Status) -> ContainerProgress | None:
    inits = status.init_container_statuses or []
    for number, one in enumerate([*inits, *(status.container_statuses or ())], 1):
        if not one.ready:
            return ContainerProgress(one.name, one.state.waiting.reason if one.state.waiting else "", one.restart_count,
                                     number if number <= len(inits) else 0, len(inits), _exit_code(one))
    return None


def _pulls(status: _Status) -> PullProgress:
    """Return how far a pod is that only has images pulled: a container that waits for something else has its image."""
    if status.reason:  # its kubelet has refused or evicted it, whatever its containers look like
        return PullProgress(trouble=status.reason)
    waits = [(one.name, one.state.waiting.reason if one.state.waiting else "") for one in status.container_statuses or ()
             if not (_has_begun(one) or (one.state.waiting and one.state.waiting.reason in _PULLED))]
    if status.container_statuses and not waits:
        return PullProgress(there=True)
    why = next((f"container {name}: {reason}" for name, reason in waits if reason not in _PULLING), "")
    unplaced = next((one.reason for one in status.conditions or () if one.type == "PodScheduled" and one.status == "False"), "")
    return PullProgress(trouble=why or unplaced)


def _exit_code(container: _ContainerStatus) -> int | None:
    ended = container.state.terminated or container.last_state.terminated
    return ended.exit_code if ended is not None else None


def _placed_by(spec: WirePodSpec) -> dict[str, str]:
    return {key: value for key, value in (spec.node_selector or {}).items() if key in names.PLACED_BY}


def _waiting(status: _Status, containers: list[_ContainerStatus]) -> str:
    if status.phase == "Failed" and status.reason:  # its kubelet has evicted or refused it, whatever its containers look like
        return status.reason
    for one in containers:
        if one.state.waiting and not one.ready:
            return one.state.waiting.reason
    return next((one.reason for one in status.conditions or () if one.type == "PodScheduled" and one.status == "False"), "")


def _is_not_ready(status: _Status) -> bool:
    """Tell whether the condition says so: where a node is silent, its pods lose that alone; containers go on looking ready."""
    return any(one.type == "Ready" and one.status == "False" for one in status.conditions or ())


def _turned(status: _Status) -> float:
    found = next((one.last_transition_time for one in status.conditions or () if one.type == "Ready"), None)
    return found.timestamp() if found is not None else 0.0


def _bound(status: _Status) -> float:
    placed = (one for one in status.conditions or () if one.type == "PodScheduled" and one.status == "True")
    found = next((one.last_transition_time for one in placed), None)
    return found.timestamp() if found is not None else 0.0


def _has_begun(container: _ContainerStatus) -> bool:
    return container.restart_count > 0 or container.state.running is not None or container.state.terminated is not None


def _started(container: _ContainerStatus) -> datetime | None:
    running = container.state.running
    return running.started_at if running is not None else None


def _is_paused(meta: WireMeta, spec: WirePodSpec) -> bool:
    """Tell whether the driver manager makes the pod go before it unloads the driver: it takes the labels of operands away."""
    if not any(key.startswith(names.DEPLOY_PREFIX) for key in spec.node_selector or ()):
        return False
    return _of_daemonset(meta)


def _ended(status: _Status) -> list[str]:
    """Return the init containers that are ready: they have run to their end, unless their restartPolicy lets them run on."""
    return [one.name for one in status.init_container_statuses or () if one.ready]


def _claims(spec: WirePodSpec, status: _Status) -> dict[str, bool]:
    """Return the ResourceClaims that the pod uses: named in its spec, made from a template, or made for an extended resource.

    With each, whether a container is given its devices. An entry without a claim has nothing allocated yet.
    """
    if spec.resource_claims is None and status.extended_resource_claim_status is None:
        return {}
    made = {one.name: one.resource_claim_name for one in status.resource_claim_statuses or ()}
    found = [(entry.resource_claim_name or made.get(entry.name), entry.name in spec.consumed)
             for entry in spec.resource_claims or ()]
    if status.extended_resource_claim_status is not None:
        found.append((status.extended_resource_claim_status.resource_claim_name, True))
    return {name: any(given for other, given in found if other == name) for name, _ in found if name}


def keep_pods(
    namespace: str, others: Iterable[Callable[[PodView], bool]] = (), *, holders: bool = True
) -> Callable[[PodView], bool]:
    """Return the test of which pods a decision may concern: ours, users of GPUs, those that hold the driver unless `holders` is
    False, and those that a policy selects.

    Whether a ResourceClaim is one for GPUs may change later, so a pod with claims is kept. A fleet has many more pods than
    these; keeping all of them would cost memory for nothing.
    """
    tests = tuple(others)

    def keep(pod: PodView) -> bool:
        if pod.namespace == namespace and _ours(pod):
            return True
        if not pod.node:
            return False
        uses = pod.uses_gpu or pod.uses_vm_gpu or bool(pod.claims)
        return uses or (holders and bool(pod.holds)) or any(test(pod) for test in tests)

    return keep


def _ours(pod: PodView) -> bool:
    binds = pod.labels.get("name") == names.VFIO_MANAGER_APP  # NVIDIA's asset has no label `app`
    drives = binds or has_driver_labels(pod.labels) or has_hosts_driver_labels(pod.labels)
    return pod.of_daemonset or (pod.orphan and drives) or is_staging(pod.labels)
