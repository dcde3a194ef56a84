"""Pods that the validator starts to prove that a GPU can be used: by the driver and the runtime, and by the device plugin."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gpuward import errors
from gpuward.agents.api import ApiServer
from gpuward.agents.validator.facts import ValidatorSettings
from gpuward.agents.validator.plan import gpu_resource
from gpuward.agents.waiting import Patience, TimeIsUpError, ToldToEndError

VALIDATOR: Final = "nvidia-operator-validator"
APPS: Final = {"cuda": "nvidia-cuda-validator", "plugin": "nvidia-device-plugin-validator"}
ASKS_FOR_ALL: Final = "nvidia.cdi.k8s.io/container.{}"
"""The annotation by which the toolkit's NRI plugin gives a container devices."""
RESOURCE_SECONDS: Final = 150.0
POD_SECONDS: Final = 300.0
LEAVING: Final = 5.0
"""Seconds in which the pod is tried to be deleted by who is told to end."""

Object = dict[str, Any]


class ValidationError(errors.GpuwardError):
    """Say in one line what is missing, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Start the pod of a component and wait for its end."""

    settings: ValidatorSettings
    api: ApiServer
    patience: Patience

    def run(self) -> None:
        """Prove that a GPU can be used. Raises ValidationError."""
        resource = self._resource() if self.settings.component == "plugin" else ""
        if not self.settings.workload:
            return
        pods = f"/api/v1/namespaces/{self.settings.namespace}/pods"
        app = APPS[self.settings.component]
        for old in self.api.list(pods, labels=f"app={app}", fields=f"spec.nodeName={self.settings.node}"):
            self._delete(f"{pods}/{old['metadata']['name']}")
        daemonset = self.api.get(f"/apis/apps/v1/namespaces/{self.settings.namespace}/daemonsets/{VALIDATOR}")
        # By a name of our own: where the answer is lost and it is asked for again, there is no second pod beside the first.
        name = f"{app}-{os.urandom(4).hex()}"
        try:
            with contextlib.suppress(errors.AlreadyExists):
                self._create(pods, pod(self.settings, name, app, daemonset, resource))
            self._wait(f"{pods}/{name}", name)
        except ToldToEndError:
            # Nobody else ends one that fails or hangs, where no validator comes any more.
            with contextlib.suppress(errors.GpuwardError), self.api.within(LEAVING):
                self.api.delete(f"{pods}/{name}")
            raise

    def _create(self, pods: str, body: Object) -> None:
        try:
            self.api.create(pods, body)
        except (errors.Forbidden, errors.Invalid) as error:  # such as by a quota, or an admission webhook
            raise ValidationError(f"pod {body['metadata']['name']} cannot be made: {error}") from None

    def _resource(self) -> str:
        found: list[str] = []

        def missing() -> str:
            status = self.api.get(f"/api/v1/nodes/{self.settings.node}").get("status") or {}
            found[:] = [gpu_resource(status.get("allocatable") or {}), gpu_resource(status.get("capacity") or {})]
            allocatable, there = gpu_resource(status.get("allocatable") or {}), gpu_resource(status.get("capacity") or {})
            if there and not allocatable:  # the kubelet keeps the capacity for minutes when the plugin has gone
                return f"no {there} of node {self.settings.node} is allocatable: see its device plugin's pod"
            found[:] = [allocatable]
            return "" if there else f"node {self.settings.node} has no resource nvidia.com/gpu: see its device plugin's pod"

        self._until(missing, RESOURCE_SECONDS)
        return found[0]

    def _wait(self, path: str, name: str) -> None:
        def missing() -> str:
            seen = self.api.get(path)
            phase = (seen.get("status") or {}).get("phase")
            if phase == "Failed":  # for good: its containers are started again, but not what the kubelet has turned away
                raise ValidationError(f"pod {name} {progress(seen)}")
            return "" if phase == "Succeeded" else f"pod {name} {progress(seen)}"

        try:
            self._until(missing, POD_SECONDS)
        except errors.NotFound:
            raise ValidationError(f"pod {name} was deleted before it ended") from None

    def _until(self, missing: Callable[[], str], seconds: float) -> None:
        try:
            self.patience.wait(missing, seconds=seconds, every=self.settings.every)
        except TimeIsUpError as error:
            raise ValidationError(str(error)) from None

    def _delete(self, path: str) -> None:
        try:
            self.api.delete(path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
                                   "propagationPolicy": "Background"})
        except errors.NotFound:
            return


def pod(settings: ValidatorSettings, name: str, app: str, daemonset: Object, resource: str) -> Object:
    """Return the pod: it adds two vectors on a GPU, and belongs to whom the validator does."""
    said = settings.workload_pod
    image: Object = {"image": said.get("VALIDATOR_IMAGE", "")}
    if policy := said.get("VALIDATOR_IMAGE_PULL_POLICY"):
        image["imagePullPolicy"] = policy
    # Without a device plugin GPUs are given to privileged containers alone where a cluster is strict, and by the annotation
    # where the runtime is left as it is (cdi.nriPluginEnabled).
    visible = [] if resource else [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    security = {"allowPrivilegeEscalation": False} if resource else {"privileged": True}
    check: Object = {
        "name": f"{settings.component}-validation", **image, "command": ["nvidia-validator"], "args": ["vector-add"],
        "env": [*visible, {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
        "securityContext": security}
    if resource:
        check["resources"] = {"limits": {resource: "1"}, "requests": {resource: "1"}}
    spec: Object = {
        "restartPolicy": "OnFailure", "serviceAccountName": VALIDATOR, "nodeName": settings.node,
        "tolerations": daemonset["spec"]["template"]["spec"].get("tolerations") or [],
        "initContainers": [check],
        "containers": [{"name": app, **image, "command": ["gpuward"], "args": ["--version"],
                        "securityContext": {"allowPrivilegeEscalation": False}}]}
    if secrets := said.get("VALIDATOR_IMAGE_PULL_SECRETS"):
        spec["imagePullSecrets"] = [{"name": each} for each in map(str.strip, secrets.split(",")) if each]
    if runtime := said.get("VALIDATOR_RUNTIME_CLASS"):
        spec["runtimeClassName"] = runtime
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
        "name": name, "namespace": settings.namespace, "labels": {"app": app},
        "annotations": {} if resource else {ASKS_FOR_ALL.format(check["name"]): "management.nvidia.com/gpu=all"},
        "ownerReferences": daemonset["metadata"].get("ownerReferences") or []}}


def progress(seen: Object) -> str:
    """Return in words how far a pod is, with the last words of the container that is not well."""
    status = seen.get("status") or {}
    reason = f": {status['reason']} {' '.join(status.get('message', '').split())}".rstrip() if status.get("reason") else ""
    if reason and status.get("phase") == "Failed":
        return f"is Failed{reason}"
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state, last = container.get("state") or {}, container.get("lastState") or {}
        ended = state.get("terminated") or last.get("terminated") or {}
        if ended and ended.get("exitCode"):
            words = " ".join((ended.get("message") or "").split())[-300:]
            return f"failed in {container['name']} with exit code {ended['exitCode']}{f': {words}' if words else ''}"
        waiting = state.get("waiting") or {}
        if waiting.get("reason", "PodInitializing") not in ("PodInitializing", "ContainerCreating"):
            words = " ".join((waiting.get("message") or "").split())[-300:]
            return f"does not start: {waiting['reason']}{f' ({words})' if words else ''}"
        if "running" in state:
            return f"has not ended in {container['name']}: see `kubectl logs` of it, and `dmesg` on this node"
    phase = status.get("phase") or "Pending"
    where = ", no container of it runs yet: see `kubectl describe pod` of it" if phase == "Pending" else ""
    return f"is {phase}{reason}{where}"
