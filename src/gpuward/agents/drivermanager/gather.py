"""What the driver manager decides by, read from the API server and the machine."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from gpuward import errors, names
from gpuward.agents.api import ApiServer
from gpuward.agents.drivermanager.facts import Facts, Settings
from gpuward.agents.drivermanager.operands import APPS, CLIENT, DRA, DRA_APP, is_operand, is_paused_by
from gpuward.agents.drivermanager.vfio import PCI, bound_to_vfio, users_of_vfio
from gpuward.agents.host import DeviceUser, Host, HostError, KernelBusyError
from gpuward.model.claims import ClaimView
from gpuward.model.driver import comes_with_driver, is_validation
from gpuward.model.pauses import MARKER, labels_noted, note_of
from gpuward.model.policy import DrainSettings, PodDeletionSettings, UpgradePolicy
from gpuward.model.rollout import DeviceHolders, RolloutSettings
from gpuward.model.views import PodView
from gpuward.upgrade.evictable_pods import pods_to_drain, pods_to_evict
from gpuward.wire.claims import claim_view, with_claims
from gpuward.wire.pods import pod_view

HOST_ROOT: Final = "/host"
DRIVER_ROOT: Final = "/run/nvidia/driver"
PID_FILE: Final = "/run/nvidia/nvidia-driver.pid"
DIGEST_FILE: Final = "/run/nvidia/nvidia-driver.state"
SAYS_READY: Final = ("/run/nvidia/validations/.driver-ctr-ready", "/run/nvidia/validations/.driver-daemons-status")
"""By which the driver's container says that it is ready. One that crashes leaves them."""
MOFED_READY: Final = "/run/mellanox/drivers/.driver-ready"
MELLANOX: Final = "0x15b3"
MODULES: Final = (
    "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia_fs", "nvidia_vgpu_vfio", "gdrdrv", "nvidia")
"""In the order in which they can be unloaded."""
SMI: Final = (
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/lib/wsl/lib", "/opt/bin")
"""Where NVIDIA's driver manager finds a program of the host's, by its image's PATH, and where its validator does."""
MOUNT_HELD: Final = "a file system does not answer; see `dmesg` on the node, or else restart the node"
SMI_SECONDS: Final = 30.0
CONFIG_HASH: Final = "kubernetes.io/config.hash"
"""The annotation by which the kubelet knows a static pod: that which the API server has has a uid of its own."""
CONFIG_MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of what the API server has of such a pod."""
CLAIMS: Final = ("v1", "v1beta2", "v1beta1")

Object = Mapping[str, Any]


def host_driver(host: Host) -> str:
    """Return the version of a driver that the host has installed itself. Raises HostError where it does not say in time."""
    try:
        found = next((path for folder in SMI if (path := host.locate(PurePosixPath(folder, "nvidia-smi"), HOST_ROOT))), None)
    except KernelBusyError as error:
        raise HostError(f"{error}: {MOUNT_HELD}") from error
    if found is None:
        return ""
    ran = host.run([found, "--query-gpu=driver_version", "--format=csv,noheader"], root=HOST_ROOT, timeout=SMI_SECONDS)
    if ran.code is None:
        raise HostError(f"the host's {found} does not answer in {SMI_SECONDS:g} s: a GPU may have to be reset")
    return ran.output.splitlines()[0] if ran.code == 0 and ran.output else ""


@dataclass(slots=True)
class Gatherer:
    """Read what is so, again and again."""

    settings: Settings
    host: Host
    api: ApiServer
    resource_version: str = ""
    """Of the node, as it was read last."""
    _meta: Object = field(default_factory=dict, init=False)

    def gather(self) -> Facts:
        """Return what is so now. Raises errors.ApiError, errors.Unreachable."""
        return self._of_pods(self._of_machine(self.of_node()))

    def of_node(self) -> Facts:
        """Return what is so of the node alone, which is enough to give it back. Raises as `gather`."""
        node = self.api.get(f"/api/v1/nodes/{self.settings.node}")
        self._meta = node["metadata"]
        self.resource_version = self._meta.get("resourceVersion", "")
        return _of_node(node)

    def note(self) -> str:
        """Return the note of a pause, with what is noted already: an earlier attempt may have paused another label."""
        before = labels_noted((self._meta.get("annotations") or {}).get(names.DRIVER_MANAGER_PAUSE))
        return note_of([*before, *([self.settings.custom_label] if self.settings.custom_label else [])])

    def writer(self, label: str) -> str:
        """Return who else wrote a label, or without one a cordon, as far as the node that was read last says so."""
        return _writer(self._meta, label)

    def _of_machine(self, facts: Facts) -> Facts:
        modules, vfio = self.host.modules(), bound_to_vfio(self.host, switches=self.settings.switches)
        return dataclasses.replace(
            facts,
            loaded="nvidia" in modules,
            modules=tuple(name for name in MODULES if name in modules),
            holders=tuple(sorted({each for name in MODULES for each in self.host.entries(f"/sys/module/{name}/holders")
                                  if each not in MODULES})),
            nouveau="nouveau" in modules,
            digest=self.host.read(DIGEST_FILE) or "",
            mounted=bool(self.host.mounts_below(DRIVER_ROOT)),
            pid_file=self.host.exists(PID_FILE),
            vfio=vfio,
            machine_users=users_of_vfio(self.host, vfio),
            mofed=self._missing_mofed(modules),
        )

    def _of_pods(self, facts: Facts) -> Facts:
        if not (facts.loaded or facts.vfio):
            return dataclasses.replace(facts, dra_plugins=self._dra_plugins(facts.labels))
        found = self.api.list("/api/v1/pods", fields=f"spec.nodeName={self.settings.node}")
        selected = {each["metadata"]["uid"]: (each.get("spec") or {}).get("nodeSelector") or {} for each in found}
        hashes = {number: each["metadata"]["uid"] for each in found if (number := _hash(each))}
        claim = cache(self._claim)
        seen = [with_claims(pod, claim) for pod in map(_view, found)]
        pods = [pod for pod in seen if not pod.finished]
        facts = dataclasses.replace(
            facts,
            machines=tuple(pod for pod in pods if pod.uses_vm_gpu),
            machine_users=_with_pods(facts.machine_users, pods, hashes),
            dra_plugins=tuple(pod for pod in pods if pod.labels.get("app") == DRA_APP and pod.of_daemonset),
        )
        if not facts.loaded:
            plugin = facts.labels.get(names.DEPLOY_PREFIX + DRA, "") not in ("", "false")
            return facts if plugin else dataclasses.replace(facts, dra_plugins=())
        running = {each["metadata"]["uid"] for each in found if _runs(each)}
        rules = UpgradePolicy(
            pod_deletion=PodDeletionSettings(force=self.settings.force, delete_empty_dir=self.settings.delete_empty_dir),
            drain=DrainSettings(enable=True, force=self.settings.force, pod_selector=self.settings.selector,
                                delete_empty_dir=self.settings.delete_empty_dir),
            rollout=RolloutSettings(device_holders=DeviceHolders.IGNORE))
        validations = tuple(pod for pod in pods if is_validation(pod, self.settings.namespace))
        going = {pod.uid for pod in pods if pod.of_daemonset and self._goes_with_labels(pod, facts.labels, selected[pod.uid])}
        going |= {pod.uid for pod in validations}
        others = [pod for pod in pods if pod.uid not in going]
        holders = {pod.uid for pod in pods if any(claim((pod.namespace, name)).gpu for name in pod.claims)}
        users = _with_pods(self.host.device_users(beside=going), pods, hashes)
        early = {each["metadata"]["uid"] for each in found if _runs_early(each, _has_claims)} & holders
        using = holders | {user.pod_uid for user in users} | {pod.uid for pod in pods if pod.uses_gpu}
        return dataclasses.replace(
            facts,
            operands=tuple(pod for pod in pods if self._goes(pod, facts.labels, client=CLIENT in selected[pod.uid])
                           or (pod.of_daemonset and pod.uid in using
                               and any(MARKER in facts.labels.get(key, "") for key in selected[pod.uid]))),
            validations=validations,
            gpu_pods=tuple(pod for pod in pods if pod.uses_gpu and (not pod.idle_claim or pod.uid in early)
                           and pod.uid in running - going
                           and not comes_with_driver(pod, self.settings.namespace)),
            claimants=tuple(pod for pod in others if pod.uid in holders),
            to_evict=pods_to_evict(others, rules, self.settings.namespace),
            to_drain=pods_to_drain(others, rules, self.settings.namespace),
            device_users=tuple(user for user in users if user.pod_uid not in going),
            going_users=tuple(user for user in users if user.pod_uid in going),
        )

    def _goes_with_labels(self, pod: PodView, labels: Mapping[str, str], selected: Mapping[str, str]) -> bool:
        """Tell whether a DaemonSet's pod goes once labels are paused: it is not in the way until then."""
        return is_operand(pod, self.settings.namespace) or pod.labels.get("app") == DRA_APP or any(
            is_paused_by(key, labels, self.settings.custom_label) for key in selected)

    def _dra_plugins(self, labels: Mapping[str, str]) -> tuple[PodView, ...]:
        """Return the DRA driver's plugin where no driver is loaded: it would go on with the files of the one before."""
        if labels.get(names.DEPLOY_PREFIX + DRA, "") in ("", "false"):
            return ()
        found = self.api.list("/api/v1/pods", labels=f"app={DRA_APP}", fields=f"spec.nodeName={self.settings.node}")
        pods = (pod_view(msgspec.json.encode(each)) for each in found)
        return tuple(pod for pod in pods if pod.of_daemonset and not pod.finished)

    def _goes(self, pod: PodView, labels: Mapping[str, str], *, client: bool) -> bool:
        if client and pod.of_daemonset:
            return MARKER in labels.get(CLIENT, "")
        app = pod.labels.get("app", "")
        return pod.namespace == self.settings.namespace and pod.of_daemonset and any(
            app == found and MARKER in labels.get(names.DEPLOY_PREFIX + name, "") for name, found in APPS.items())

    def _claim(self, key: tuple[str, str]) -> ClaimView:
        """Return a claim. One that is not found is none for GPUs: NVIDIA's DRA driver needs a server with one of these."""
        namespace, name = key
        for version in CLAIMS:
            try:
                found = self.api.get(f"/apis/resource.k8s.io/{version}/namespaces/{namespace}/resourceclaims/{name}")
            except errors.NotFound:  # this version, or the claim
                continue
            return claim_view(msgspec.json.encode(found))
        return ClaimView(namespace, name)

    def _missing_mofed(self, modules: Mapping[str, int]) -> str:
        if not self.settings.rdma or not any(
                self.host.read(f"{PCI}/{each}/vendor") == MELLANOX for each in self.host.entries(PCI)):
            return ""
        if self.settings.host_mofed:
            return "" if "mlx5_core" in modules else "the module mlx5_core is not loaded"
        return "" if self.host.exists(MOFED_READY) else f"{MOFED_READY} is not there"


def _writer(meta: Object, label: str) -> str:
    """Return who else wrote a label, or whether pods may come to the node, as far as managedFields know."""
    def wrote(fields: Object) -> bool:
        if label:
            return f"f:{label}" in ((fields.get("f:metadata") or {}).get("f:labels") or {})
        return "f:unschedulable" in (fields.get("f:spec") or {})

    managers = {entry.get("manager", "") for entry in meta.get("managedFields") or () if wrote(entry.get("fieldsV1") or {})}
    return ", ".join(sorted(managers - {names.FIELD_MANAGER, ""}))


def _of_node(node: Object) -> Facts:
    meta = node["metadata"]
    annotations = meta.get("annotations") or {}
    noted = annotations.get(names.DRIVER_MANAGER_CORDON) == "true"
    unschedulable = bool((node.get("spec") or {}).get("unschedulable"))
    return Facts(
        labels=meta.get("labels") or {},
        policy=annotations.get(names.UPGRADE_ENABLED) == "true",
        unschedulable=unschedulable,
        noted=noted,
        pause_noted=names.DRIVER_MANAGER_PAUSE in annotations,
        noted_labels=labels_noted(annotations.get(names.DRIVER_MANAGER_PAUSE)),
        cordoned=noted and unschedulable and not _is_of_others(meta),
    )


def _is_of_others(meta: Object) -> bool:
    """Tell whether managedFields say that somebody else has cordoned a node, too, or after a first cordon of ours was lifted."""
    managers = {entry.get("manager") for entry in meta.get("managedFields") or ()
                if "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})}
    return bool(managers - {names.FIELD_MANAGER})


def _hash(pod: Object) -> str:
    """Return by what the kubelet knows a static pod; nothing for another pod, whatever it says of itself."""
    annotations = pod["metadata"].get("annotations") or {}
    number = annotations.get(CONFIG_HASH, "")
    return number if number == annotations.get(CONFIG_MIRROR) and re.fullmatch("[0-9a-f]{32}", number) else ""


def _view(pod: Object) -> PodView:
    """Return a pod. One in which a sidecar, or an init container, runs with a GPU uses it: NVIDIA's filter looks at none."""
    seen = pod_view(msgspec.json.encode(pod))
    uses = not seen.uses_gpu and _runs_early(pod, _asks_for_gpu) and _is_under_way(pod)
    return msgspec.structs.replace(seen, uses_gpu=True, idle_claim=False, holds="") if uses else seen


def _runs(pod: Object) -> bool:
    """Tell whether a container of a pod runs that may use GPUs. One that waits for its start, or for the next one, has no driver
    to lose, and may wait for the very driver that is to come; so may an init container without a GPU.
    """
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    if _runs_early(pod, _has_gpu):
        return _is_under_way(pod)
    if status.get("phase") == "Running":
        return not containers or any(map(_is_running, containers))
    # A pod is Pending while one of its containers has never run, as one whose image is not there, whatever the others do.
    return _is_under_way(pod) and _is_any_running(containers, (pod.get("spec") or {}).get("containers") or (), _has_gpu)


def _runs_early(pod: Object, given: Callable[[Object], bool]) -> bool:
    """Tell whether an init container, or a sidecar, runs that was given something."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return _is_any_running(statuses, (pod.get("spec") or {}).get("initContainers") or (), given)


def _is_any_running(statuses: Iterable[Object], containers: Iterable[Object], given: Callable[[Object], bool]) -> bool:
    known = {each.get("name") for each in containers if given(each)}
    return any(_is_running(each) and each.get("name") in known for each in statuses)


def _is_under_way(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _is_running(container: Object) -> bool:
    return "running" in (container.get("state") or {})


def _has_gpu(container: Object) -> bool:
    """Tell whether a container was given GPUs, by a resource or by a claim."""
    return _has_claims(container) or _asks_for_gpu(container)


def _has_claims(container: Object) -> bool:
    return bool((container.get("resources") or {}).get("claims"))


def _asks_for_gpu(container: Object) -> bool:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return any(name.startswith(names.GPU_RESOURCE_PREFIXES) and str(many) != "0" for name, many in asked.items())


def _with_pods(users: Iterable[DeviceUser], pods: Iterable[PodView], hashes: Mapping[str, str]) -> tuple[DeviceUser, ...]:
    named = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in pods}
    known = (dataclasses.replace(user, pod_uid=hashes.get(user.pod_uid, user.pod_uid)) for user in users)
    return tuple(dataclasses.replace(user, pod=named.get(user.pod_uid, "")) for user in known)
