"""`gpuward capture`: a cluster in one file, as far as a rollout depends on it, with read rights only and without secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuward import errors, names
from gpuward.cli.archive import archive_at
from gpuward.cli.connect import connected
from gpuward.cli.differences import differences, images_of, looked_at, with_references
from gpuward.cli.shadow import replaces
from gpuward.cli.slimming import slim_node, slim_owner, slim_pod, slim_stack
from gpuward.cli.terminal import say
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.resources import GVR
from gpuward.model.budgets import BudgetView
from gpuward.model.driver import driver_daemonsets
from gpuward.model.record import format_time
from gpuward.rehearse.captured import FOLDER, FORMAT, MANIFEST, Captured, Manifest
from gpuward.rehearse.sharing import Shared
from gpuward.wire.budgets import budget_view
from gpuward.wire.pods import pod_view

Object = dict[str, Any]
Slim = Callable[[Mapping[str, Any]], Object]

_CLUSTER: Final[tuple[tuple[GVR, str, Slim], ...]] = (
    (resources.NODES, "Node", slim_node),
    (resources.CLUSTER_POLICIES, "ClusterPolicy", slim_stack),
    (resources.NVIDIA_DRIVERS, "NVIDIADriver", slim_stack),
    (resources.ROLLOUT_POLICIES, "RolloutPolicy", slim_stack),
    (resources.POD_DISRUPTION_BUDGETS, "PodDisruptionBudget", slim_stack),
    (resources.RUNTIME_CLASSES, "RuntimeClass", slim_stack),
    (resources.RESOURCE_CLAIMS, "ResourceClaim", slim_stack),
    (GVR("scheduling.k8s.io", "v1", "priorityclasses", False), "PriorityClass", slim_stack),
)
_OF_STACK: Final[tuple[tuple[GVR, str], ...]] = (
    (resources.DAEMON_SETS, "DaemonSet"), (resources.CONTROLLER_REVISIONS, "ControllerRevision"),
    (resources.DEPLOYMENTS, "Deployment"), (resources.SERVICE_ACCOUNTS, "ServiceAccount"), (resources.SERVICES, "Service"),
    (resources.ROLES, "Role"), (resources.ROLE_BINDINGS, "RoleBinding"))
_OWNERS: Final = {
    "ReplicaSet": GVR("apps", "v1", "replicasets", True), "Deployment": resources.DEPLOYMENTS,
    "StatefulSet": GVR("apps", "v1", "statefulsets", True), "Job": GVR("batch", "v1", "jobs", True),
    "DaemonSet": resources.DAEMON_SETS}
_MAY_BE_MISSING: Final = (errors.NotFound, errors.Forbidden)


def write_capture(kubeconfig: str | None, context: str | None, namespace: str, path: Path, *, force: bool) -> None:
    """Write a capture of a cluster to a file, and say what is in it.

    Raises:
        InputError: the file is there already, or cannot be written.
    """
    for line in asyncio.run(_write(kubeconfig, context, namespace, path, force)):
        say(line)


async def _write(kubeconfig: str | None, context: str | None, namespace: str, path: Path, force: bool) -> list[str]:
    async with connected(kubeconfig, context, lists_only=True) as (client, _):
        found = await captured(client, namespace)
    store(found, path, force=force)
    counts = ", ".join(f"{len(found.of(name))} {name.partition('.')[0]}" for name in ("nodes", "pods", "daemonsets.apps"))
    return [f"{path}: {counts}, {path.stat().st_size / 1024:.0f} KiB, as of {format_time(found.manifest.at)}",
            *(f"  not in it: {problem}" for problem in found.manifest.problems),
            "Secrets and ConfigMaps were not kept, nor values of variables, commands and images of your pods. Names and labels "
            "are in it."]


def store(found: Captured, path: Path, *, force: bool = False) -> None:
    """Write a capture to a file.

    Raises:
        InputError: the file is there already, or cannot be written.
    """
    with archive_at(path, FOLDER, found.manifest.at, force=force) as archive:
        for name, objects in sorted(found.objects.items()):
            with archive.member(f"objects/{name}.json") as file:
                file.write(b'{"apiVersion": "v1", "kind": "List", "items": [')
                for number, obj in enumerate(objects):
                    file.write(b",\n" if number else b"\n")
                    file.write(json.dumps(obj).encode())
                file.write(b"\n]}\n")
        archive.add(MANIFEST, msgspec.json.format(msgspec.json.encode(found.manifest), indent=2) + b"\n")


async def captured(client: Client, namespace: str) -> Captured:
    """Return a cluster as it is now, from nothing but requests to get and to list.

    Raises:
        GpuwardError: the operator works in another namespace.
    """
    async with looked_at(client, namespace) as look:
        leader = await look.leader()
        snapshot, picture = look.cluster.observe(), look.picture(leader)
    picture.refuse_elsewhere()
    snapshot = await with_references(client, snapshot)
    images = await images_of(client, namespace)
    _, changes = await differences(client, snapshot, images, leader.now)
    replaced = {one.ref.name for one in changes if one.kind == "DaemonSet" and (
        one.before is None or one.after is None or replaces(one))}
    made = {ds.name for ds in snapshot.daemonsets if ds.namespace == namespace and (
        (ds.owner is not None and ds.owner.kind in names.OWNER_KINDS) or ds in driver_daemonsets(snapshot))}
    gathering = _Gathering(client, namespace)
    await gathering.fill()
    manifest = Manifest(
        FORMAT, version("gpuward"), leader.now, namespace, (await client.server_version()).git_version, images,
        tuple(sorted(made - replaced)), dict(snapshot.references.config_maps), tuple(sorted(snapshot.references.secrets)),
        tuple(gathering.problems))
    return Captured(manifest, gathering.objects)


class _Gathering:
    """Gather objects. What may not be read is noted, and the rest goes on."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.objects: dict[str, list[Object]] = {}
        self.problems: list[str] = []
        self._client, self._namespace = client, namespace

    async def fill(self) -> None:
        """Gather everything."""
        for resource, kind, slim in _CLUSTER:
            await self._list(resource, kind, slim)
        for resource, kind in _OF_STACK:
            await self._list(resource, kind, slim_stack, self._namespace)
        await self._pods()
        spaces = {pod["metadata"]["namespace"] for pod in self.objects[str(resources.PODS)]}
        for name in sorted({self._namespace, *spaces}):
            self.objects.setdefault("namespaces", []).append(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await self._owners()

    async def _list(self, resource: GVR, kind: str, slim: Slim, namespace: str = "") -> None:
        kept = self.objects.setdefault(str(resource), [])
        try:
            async for raw in self._client.list(Selection(resource, namespace)):
                kept.append({"apiVersion": resource.api_version, "kind": kind, **slim(json.loads(bytes(raw)))})
        except _MAY_BE_MISSING as error:
            if isinstance(error, errors.Forbidden):
                self.problems.append(f"{resource}: may not be listed")

    async def _pods(self) -> None:
        """Keep the pods of the GPU stack, those on nodes with GPUs, those that ask for some, and who shares their fate: pods of
        the same owners, and those that the same disruption budgets protect.
        """
        gpus = {node["metadata"]["name"] for node in self.objects[str(resources.NODES)] if _has_gpus(node)}
        budgets = self._budgets()
        kept, others, shared = [], [], Shared()
        async for raw in self._client.list(Selection(resources.PODS)):
            pod = json.loads(bytes(raw))
            mine = pod["metadata"]["namespace"] == self._namespace
            slim = {"apiVersion": "v1", "kind": "Pod", **(slim_stack(pod) if mine else slim_pod(pod))}
            shared.share(slim)
            if mine or pod["spec"].get("nodeName") in gpus or pod_view(raw).uses_gpu:
                kept.append(slim)
            elif pod["metadata"].get("ownerReferences"):
                others.append(slim)
        owners = {uid for pod in kept for uid in _owner_uids(pod)}
        common = [each for each in budgets if any(map(each.covers, map(_view, kept)))]
        kept += [pod for pod in others if owners & set(_owner_uids(pod)) or any(each.covers(_view(pod)) for each in common)]
        self.objects[str(resources.PODS)] = kept

    def _budgets(self) -> list[BudgetView]:
        found = map(budget_view, map(msgspec.json.encode, self.objects[str(resources.POD_DISRUPTION_BUDGETS)]))
        return [each for each in found if each is not None]

    async def _owners(self) -> None:
        """Keep the controllers of users' pods, and those of these."""
        wanted = {uid for pod in self.objects[str(resources.PODS)] for uid in _owner_uids(pod)}
        for kind, resource in _OWNERS.items():
            known = {obj["metadata"]["uid"] for obj in self.objects.setdefault(str(resource), [])}
            try:
                async for raw in self._client.list(Selection(resource)):
                    obj = json.loads(bytes(raw))
                    if obj["metadata"]["uid"] in wanted - known:
                        self.objects[str(resource)].append(
                            {"apiVersion": resource.api_version, "kind": kind, **slim_owner(obj)})
                        wanted |= set(_owner_uids(obj))
            except _MAY_BE_MISSING:
                self.problems.append(f"{resource}: may not be listed, so their pods are put back by a stand-in")


def _has_gpus(node: Mapping[str, Any]) -> bool:
    labels = node["metadata"].get("labels") or {}
    return names.GPU_PRESENT in labels or any(label in labels for label in names.NFD_GPU_LABELS)


def _owner_uids(obj: Mapping[str, Any]) -> Iterable[str]:
    return (each["uid"] for each in obj["metadata"].get("ownerReferences") or () if each.get("controller"))


def _view(pod: Mapping[str, Any]) -> Any:
    return pod_view(msgspec.json.encode(pod))


