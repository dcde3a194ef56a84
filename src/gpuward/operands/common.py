"""Changes that many operands make to their pods. They work on dicts that the operand has just made."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward.crd.components import MigStrategy
from gpuward.crd.shapes import Container, EnvVar, Image, Resources
from gpuward.errors import PolicyError
from gpuward.operands.facts import Context
from gpuward.operands.images import pull_policy
from gpuward.operands.objects import Json, env

MANAGEMENT_CDI_DEVICE = "management.nvidia.com/gpu=all"
NRI_ANNOTATION_PREFIX = "nvidia.cdi.k8s.io/container."


def set_env(container: Json, name: str, value: str) -> None:
    """Set a variable where it stands, or append it."""
    for variable in container.setdefault("env", []):
        if variable["name"] == name:
            variable["value"] = value
            variable.pop("valueFrom", None)
            return
    container["env"].append(env(name, value))


def get_env(container: Json, name: str) -> str:
    """Return a variable's literal value, empty when it has none."""
    return next((str(v.get("value", "")) for v in container.get("env", []) if v["name"] == name), "")


def set_envs(container: Json, variables: Iterable[EnvVar]) -> None:
    """Set variables that the policy lists."""
    for variable in variables:
        set_env(container, variable.name, variable.value)


def add_pull_secrets(pod: Json, secrets: Iterable[str]) -> None:
    """Append image pull secrets to the pod, each once."""
    for secret in secrets:
        listed = pod.setdefault("imagePullSecrets", [])
        if {"name": secret} not in listed:
            listed.append({"name": secret})


def add_volume(pod: Json, volume: Json, field: str, config_map: str) -> None:
    """Append a volume that comes of a ConfigMap which `field` of the policy names; a second time it is there already.

    Raises:
        PolicyError: the pod has another volume of that name.
    """
    same = [each for each in pod["volumes"] if each["name"] == volume["name"]]
    if same and same[0] != volume:
        raise PolicyError(field, config_map, f"name the ConfigMap otherwise: the pod has its own volume {volume['name']}")
    if not same:
        pod["volumes"].append(volume)


def set_resources(container: Json, resources: Resources | None) -> None:
    """Replace a container's requests and limits, if the policy says something of them: `{}` takes them away."""
    if resources is not None:
        wanted = {"limits": dict(resources.limits), "requests": dict(resources.requests)}
        found = {kind: amounts for kind, amounts in wanted.items() if amounts}
        if found or "resources" in container:
            container["resources"] = found


def set_image(pod: Json, container: Json, reference: str, image: Image) -> None:
    """Set a container's image and how it is pulled."""
    container["image"] = reference
    container["imagePullPolicy"] = pull_policy(image)
    add_pull_secrets(pod, image.image_pull_secrets)


def set_pod_resources(pod: Json, resources: Resources | None) -> None:
    """Give every container of the pod, init containers apart, the policy's requests and limits, if it has any."""
    for container in pod["containers"]:
        set_resources(container, resources)


def set_container(pod: Json, container: Json, reference: str, operand: Container) -> None:
    """Set what most operands' sections say about their main container: image, resources, arguments.

    Arguments of the policy replace those of the operand, they are not added to them.
    """
    set_image(pod, container, reference, operand)
    set_pod_resources(pod, operand.resources)
    if operand.args:
        container["args"] = list(operand.args)


def set_host_network(pod: Json, wanted: bool | None) -> None:
    """Put the pod into the host's network, with the cluster's DNS, if the policy wants it."""
    if wanted:
        pod["hostNetwork"] = True
        pod["dnsPolicy"] = "ClusterFirstWithHostNet"


def set_gpu_access(ctx: Context, template: Json, container: str) -> None:
    """Hand the node's GPUs to the pod: by its RuntimeClass, or by an annotation when the NRI plugin does it.

    CRI-O without CDI hands GPUs to containers by a hook, so that no RuntimeClass is needed.
    """
    cdi = ctx.spec.cdi
    if cdi.is_nri_plugin_enabled:
        annotations = template["metadata"].setdefault("annotations", {})
        annotations[f"{NRI_ANNOTATION_PREFIX}{container}"] = MANAGEMENT_CDI_DEVICE
    elif cdi.is_enabled or ctx.facts.runtime != "crio":
        template["spec"]["runtimeClassName"] = ctx.runtime_class


def set_mig_strategy(container: Json, strategy: MigStrategy | None) -> None:
    """Say how MIG devices are exposed; a container that exposes them must be able to see them all."""
    if strategy is not None:
        set_env(container, "MIG_STRATEGY", strategy)
    if strategy != "none":
        set_env(container, "NVIDIA_MIG_MONITOR_DEVICES", "all")
