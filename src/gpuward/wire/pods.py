"""Pods to PodView, and which pods are worth keeping."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gpuward import names
from gpuward.model.views import PodView
from gpuward.wire.meta import WireMeta


class _Env(msgspec.Struct):
    name: str
    value: str = ""


class _Resources(msgspec.Struct):
    limits: dict[str, str | int] | None = None
    requests: dict[str, str | int] | None = None


class _Container(msgspec.Struct):
    name: str = ""
    image: str = ""
    env: list[_Env] | None = None
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Volume(msgspec.Struct, rename="camel"):
    empty_dir: dict[str, object] | None = None


class _Claim(msgspec.Struct):
    name: str = ""


class WirePodSpec(msgspec.Struct, rename="camel"):
    """Decode what a view keeps of a pod's spec or template."""

    node_name: str = ""
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None
    priority: int = 0

    def env(self, name: str) -> str:
        """Return the first non-empty literal value of an environment variable, init containers first."""
        every: list[_Container] = [*(self.init_containers or []), *self.containers]
        for container in every:
            for variable in container.env or ():
                if variable.name == name and variable.value:
                    return variable.value
        return ""


class _Waiting(msgspec.Struct):
    reason: str = ""


class _ContainerState(msgspec.Struct):
    waiting: _Waiting | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    ready: bool = False
    restart_count: int = 0
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    phase: str = "Pending"
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _Pod(msgspec.Struct):
    metadata: WireMeta
    spec: WirePodSpec = msgspec.field(default_factory=WirePodSpec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Pod)


def pod_view(raw: bytes | msgspec.Raw) -> PodView:
    """Decode a pod. Raises msgspec.DecodeError for bytes that are not one."""
    pod = _decoder.decode(raw)
    meta, status = pod.metadata, pod.status
    statuses = status.container_statuses or []
    every = [*(status.init_container_statuses or ()), *statuses]
    annotations = meta.annotations or {}
    return PodView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        node=pod.spec.node_name,
        labels=meta.labels or {},
        owner=meta.controller,
        orphan=not meta.owner_references,
        phase=status.phase,
        ready=status.phase == "Running" and bool(statuses) and all(one.ready for one in statuses),
        restarts=max((one.restart_count for one in every if not one.ready), default=0),
        waiting=_waiting(status, every),
        created=meta.created,
        deleting=meta.deletion_timestamp is not None,
        uses_gpu=any(_asks_for_gpu(container) for container in pod.spec.containers),
        empty_dir=any(volume.empty_dir is not None for volume in pod.spec.volumes or ()),
        mirror=names.MIRROR_POD in annotations,
        priority=pod.spec.priority,
        config_digest=pod.spec.env(names.DRIVER_CONFIG_DIGEST),
    )


def _waiting(status: _Status, containers: list[_ContainerStatus]) -> str:
    for one in containers:
        if one.state.waiting and not one.ready:
            return one.state.waiting.reason
    return next((one.reason for one in status.conditions or () if one.type == "PodScheduled" and one.status == "False"), "")


def _asks_for_gpu(container: _Container) -> bool:
    asked = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    return any(name.startswith(names.GPU_RESOURCE_PREFIXES) for name in asked)


def keep_pods(namespace: str, others: Iterable[Callable[[PodView], bool]] = ()) -> Callable[[PodView], bool]:
    """Return the test of which pods a decision may concern: ours, users of GPUs, and those that a policy selects.

    A fleet has many more pods than these; keeping all of them would cost memory for nothing.
    """
    tests = tuple(others)

    def keep(pod: PodView) -> bool:
        if pod.namespace == namespace and _ours(pod):
            return True
        return bool(pod.node) and (pod.uses_gpu or any(test(pod) for test in tests))

    return keep


def _ours(pod: PodView) -> bool:
    if pod.owner is not None and pod.owner.kind == "DaemonSet":
        return True
    return pod.orphan and pod.labels.get("app") == names.DRIVER_APP
