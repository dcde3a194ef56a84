"""What a pod's spec says about GPUs: which it asks for, and by what it holds the driver without asking."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from gpuward import names
from gpuward.model.containers import PodShape, Pull
from gpuward.model.reading import read_count
from gpuward.model.taints import Taint, Toleration
from gpuward.model.workloads import is_vm_gpu

_LONGEST_VALUE = 64
"""Characters of a variable's value that are kept to explain a hold."""


_CORDON = Taint(names.CORDON_TAINT, effect="NoSchedule")
_NO = ("0", "f", "F", "false", "FALSE", "False")
"""What Go reads as false."""


class _Env(msgspec.Struct):
    name: str
    value: str = ""


class _Consumed(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    limits: dict[str, str | int] | None = None
    requests: dict[str, str | int] | None = None
    claims: list[_Consumed] | None = None


class _SecurityContext(msgspec.Struct):
    privileged: bool | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    security_context: _SecurityContext | None = None
    image: str = ""
    image_pull_policy: str = ""
    env: list[_Env] | None = None
    resources: _Resources = msgspec.field(default_factory=_Resources)
    restart_policy: str = ""

    @property
    def asked(self) -> dict[str, str | int]:
        """Return how much of each resource the container asks for."""
        return {**(self.resources.limits or {}), **(self.resources.requests or {})}

    @property
    def gpu(self) -> str:
        """Return the name of a GPU resource that the container asks for, or nothing."""
        return next((name for name in self.asked if name.startswith(names.GPU_RESOURCE_PREFIXES)), "")

    @property
    def gpus(self) -> int:
        """Return how many GPUs the container asks for."""
        return sum(read_count(str(value)) for name, value in self.asked.items() if name.startswith(names.GPU_RESOURCE_PREFIXES))

    @property
    def given_gpu(self) -> bool:
        """Tell whether the container asks for more than no GPU: `nvidia.com/gpu: 0` names the resource, too."""
        return any(not _is_zero(value) for name, value in self.asked.items() if name.startswith(names.GPU_RESOURCE_PREFIXES))

    @property
    def visible_devices(self) -> str:
        """Return the value by which the container asks NVIDIA's container runtime for devices, or nothing."""
        for variable in self.env or ():
            if variable.name == names.VISIBLE_DEVICES and variable.value not in names.NO_DEVICES:
                return variable.value
        return ""

    @property
    def watches_health(self) -> bool:
        """Tell whether the container is NVIDIA's device plugin, and checks the health of the GPUs."""
        off = next((one.value for one in self.env or () if one.name == names.NO_HEALTH_CHECKS), "")
        return self.name == names.DEVICE_PLUGIN and not ("all" in off.lower() or "xids" in off.lower())

    @property
    def privileged(self) -> bool:
        """Tell whether the container has all devices of the host, whatever runtime starts it."""
        return self.security_context is not None and self.security_context.privileged is True


class _HostPath(msgspec.Struct):
    path: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    empty_dir: dict[str, object] | None = None
    host_path: _HostPath | None = None


class _ClaimEntry(msgspec.Struct, rename="camel"):
    name: str
    resource_claim_name: str | None = None


class _SchedulingGroup(msgspec.Struct, rename="camel"):
    pod_group_name: str | None = None


class _Requirement(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel"):
    match_fields: list[_Requirement] | None = None


class _Terms(msgspec.Struct, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(msgspec.Struct):
    required: _Terms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None

    @property
    def node(self) -> str:
        """Return the one node that a pod may run on, as DaemonSets say it, or nothing."""
        required = self.node_affinity.required if self.node_affinity is not None else None
        for term in (required.node_selector_terms if required is not None else None) or ():
            for field in term.match_fields or ():
                if field.key == "metadata.name" and field.operator == "In" and len(field.values or ()) == 1:
                    return (field.values or [""])[0]
        return ""


class _PullSecret(msgspec.Struct):
    name: str = ""


class WirePodSpec(msgspec.Struct, rename="camel"):
    """Decode what a view keeps of a pod's spec or template."""

    node_name: str = ""
    affinity: _Affinity | None = None
    node_selector: dict[str, str] | None = None
    runtime_class_name: str = ""
    service_account_name: str = ""
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None
    resource_claims: list[_ClaimEntry] | None = None
    scheduling_group: _SchedulingGroup | None = None
    tolerations: list[Toleration] | None = None
    readiness_gates: list[object] | None = None
    image_pull_secrets: list[_PullSecret] | None = None
    priority: int = 0
    termination_grace_period_seconds: float = 30.0

    def env(self, name: str) -> str:
        """Return the first non-empty literal value of an environment variable, init containers first."""
        every: list[_Container] = [*(self.init_containers or ()), *self.containers]
        for container in every:
            for variable in container.env or ():
                if variable.name == name and variable.value:
                    return variable.value
        return ""

    @property
    def main_image(self) -> str:
        """Return the image of the driver, before which a webhook may have put others; of any other pod that of its first."""
        driver = (one for one in self.containers if one.name in names.DRIVER_CONTAINERS)
        return next(driver, self.containers[0]).image if self.containers else ""

    @property
    def mounts_subscription(self) -> bool:
        """Tell whether the subscription of a host with RHEL is mounted."""
        return any(volume.host_path is not None and volume.host_path.path == names.SUBSCRIPTION for volume in self.volumes or ())

    @property
    def images(self) -> list[str]:
        """Return the images of all containers."""
        return [one.image for one in (*(self.init_containers or ()), *self.containers) if one.image]

    @property
    def pod_group(self) -> str:
        """Return the group with which it is to be scheduled."""
        return (self.scheduling_group.pod_group_name or "") if self.scheduling_group is not None else ""

    @property
    def meant_for(self) -> str:
        """Return the node for which a DaemonSet has made a pod that has none yet."""
        return "" if self.node_name or self.affinity is None else self.affinity.node

    @property
    def spares_default_runtime(self) -> bool:
        """Tell whether this is the toolkit's template and leaves a node's default runtime as it is."""
        given = {variable.name: variable.value for container in self.containers for variable in container.env or ()}
        return next((given[name] in _NO for name in names.SET_AS_DEFAULT if name in given), False)

    @property
    def opens_driver(self) -> bool:
        """Tell whether a container of these keeps the driver open for as long as it runs: DCGM, its exporter, and the device
        plugin by its health checks.
        """
        watching = any(container.name in names.DRIVER_CLIENTS for container in self.containers)
        return watching or any(container.watches_health for container in self.containers)

    @property
    def uses_gpu(self) -> bool:
        """Tell whether a regular container asks for a GPU; NVIDIA's filter looks at no others."""
        return any(container.gpu for container in self.containers)

    @property
    def gpus(self) -> int:
        """Return how many GPUs its regular containers ask for."""
        return sum(container.gpus for container in self.containers)

    @property
    def uses_vm_gpu(self) -> bool:
        """Tell whether a regular container is given what virtual machines are."""
        return any(is_vm_gpu(name) and not _is_zero(value) for one in self.containers for name, value in one.asked.items())

    @property
    def given_gpu(self) -> bool:
        """Tell whether a regular container is given a GPU by that: one that asks for 0 is none, and runs without a driver."""
        return any(container.given_gpu for container in self.containers)

    @property
    def consumed(self) -> frozenset[str]:
        """Return the entries of its claims whose devices a regular container is given."""
        return frozenset(one.name for container in self.containers for one in container.resources.claims or ())

    @property
    def tolerates_cordon(self) -> bool:
        """Tell whether the scheduler would put the pod on a node that is cordoned."""
        return any(toleration.covers(_CORDON) for toleration in self.tolerations or ())

    @property
    def is_for(self) -> tuple[Toleration, ...] | None:
        """Return what it tolerates; None where an affinity says as well which nodes it is for."""
        bound = self.affinity is not None and self.affinity.node_affinity is not None and self.affinity.node_affinity.required
        return None if bound else tuple(self.tolerations or ())

    @property
    def shape(self) -> PodShape:
        """Return what pulling the images of such pods depends on, the driver's first."""
        containers = sorted(self.containers, key=lambda one: one.name != names.DRIVER_CONTAINER)
        pulls: dict[tuple[str, str], Pull] = {}
        for one in (*containers, *reversed(self.init_containers or ())):
            if one.image:
                pulls.setdefault((one.image, one.image_pull_policy), Pull(one.name, one.image, one.image_pull_policy))
        return PodShape(tuple(pulls.values()), tuple(self.tolerations or ()))

    @property
    def empty_dir(self) -> bool:
        """Tell whether the pod has a volume whose data ends with it."""
        return any(volume.empty_dir is not None for volume in self.volumes or ())

    def hold(self, ended: Collection[str]) -> str:
        """Return by what the pod holds the driver though no regular container asks for a GPU, or nothing.

        The variable comes last, as it alone counts on some nodes only; a privileged container has the devices on all of them.

        `ended` are the init containers that have run: what they asked for is free again.
        """
        if self.runtime_class_name == "nvidia" or self.runtime_class_name.startswith("nvidia-"):
            return f"runtimeClass {self.runtime_class_name}"
        for volume in self.volumes or ():
            if volume.host_path is not None and _is_drivers(volume.host_path.path):
                return f"hostPath {volume.host_path.path}"
        starting = [one for one in self.init_containers or () if one.restart_policy == "Always" or one.name not in ended]
        if asking := next((one for one in starting if one.gpu), None):
            return f"init container {asking.name} asks for {asking.gpu}"
        naming = [one for one in (*starting, *self.containers, *(self.ephemeral_containers or ())) if one.visible_devices]
        for container in sorted(naming, key=lambda one: not one.privileged):
            given = f"{names.VISIBLE_DEVICES}={container.visible_devices[:_LONGEST_VALUE]}"
            return f"privileged, {given}" if container.privileged else given
        return ""


def _is_zero(quantity: str | int) -> bool:
    """Tell whether a Kubernetes quantity is nothing, whatever its unit."""
    return not str(quantity).lstrip("+-0.")[:1].isdigit()


def _is_drivers(path: str) -> bool:
    """Tell whether a path of the host is a device of the driver, or lies in the driver's root."""
    if path.startswith("/dev/nvidia"):
        return True
    return f"{path.removeprefix('/var').rstrip('/')}/".startswith(f"{names.DRIVER_ROOT}/")
