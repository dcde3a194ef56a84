"""What all operand DaemonSets share: their frame, and the policy's sections `daemonsets` and `hostPaths`."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import msgspec

from gpuward import names
from gpuward.errors import PolicyError
from gpuward.operands.common import set_env
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, find, metadata
from gpuward.operands.state import ObjectRef

IDENTITY_LABELS = ("app", names.PART_OF_LABEL)
"""Labels of a pod by which it is selected: the policy cannot change them."""


class DaemonSetFrame(msgspec.Struct, frozen=True, kw_only=True):
    """Describe what surrounds an operand's pod."""

    name: str
    app: str = ""
    """The label `app` by which the pods are selected, where it is not the name."""
    selected_by: str = "app"
    """The key of that label; the DaemonSet itself has `app` in any case, and its pods only this one."""
    component: str
    """The node label `nvidia.com/gpu.deploy.<component>` that lets the pod onto a node."""
    account: str
    selector: Mapping[str, str] = {}
    """Labels beside `app` by which the pods are selected."""
    labels: Mapping[str, str] = {}
    """Further labels of the DaemonSet and its pods, which the policy cannot change: it is known by them whose driver this is."""
    annotations: Mapping[str, str] = {}
    template_annotations: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    on_delete: bool = False


def ref(namespace: str, name: str) -> ObjectRef:
    """Return the reference of a DaemonSet."""
    return ObjectRef("apps/v1", "DaemonSet", namespace, name)


def daemon_set(ctx: Context, frame: DaemonSetFrame, pod: Json, fill: Callable[[Context, Json], None]) -> Json:
    """Return the DaemonSet of an operand.

    `pod` is the operand's pod as it is without the policy; `fill` puts the operand's own section of the policy into the pod
    template. The order of the steps is the order in which variables are appended, so it is part of the pod template.

    Raises:
        PolicyError: the policy has a value that cannot be followed.
    """
    app = frame.app or frame.name
    selector = {frame.selected_by: app, **frame.selector}
    template = {
        "metadata": metadata("", "", {**selector, **frame.labels}, frame.template_annotations),
        "spec": {
            "nodeSelector": {f"{names.DEPLOY_PREFIX}{frame.component}": "true", **frame.node_selector},
            "tolerations": [{"key": names.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}],
            "priorityClassName": "system-node-critical",
            "serviceAccountName": frame.account,
            **pod,
        },
    }
    del template["metadata"]["name"]
    _apply_policy(ctx, template["spec"])
    _apply_host_root(template["spec"], ctx.spec.host_paths.effective_root)
    _apply_driver_install_dir(template["spec"], ctx.spec.host_paths.effective_driver_install_dir)
    fill(ctx, template)
    _label_template(ctx, template, {*IDENTITY_LABELS, *selector, *frame.labels})
    common = ctx.spec.daemonsets
    strategy = _update_strategy(ctx, frame)
    labels = {key: value for key, value in common.labels.items() if key not in frame.labels}
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": metadata(frame.name, ctx.namespace, {"app": app, **frame.selector, **frame.labels, **labels},
                             {**frame.annotations, **common.annotations}),
        "spec": {
            "selector": {"matchLabels": selector},
            **({"updateStrategy": strategy} if strategy else {}),
            "template": template,
        },
    }


def _apply_policy(ctx: Context, pod: Json) -> None:
    common = ctx.spec.daemonsets
    if common.priority_class_name:
        pod["priorityClassName"] = common.priority_class_name
    if common.tolerations:
        pod["tolerations"] = [dict(toleration) for toleration in common.tolerations]
    if common.pod_security_context:
        pod["securityContext"] = dict(common.pod_security_context)


def _apply_host_root(pod: Json, root: str) -> None:
    """Move the host's root directory: containers of a pod that mounts it learn where it is."""
    if root == "/":
        return
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    if "host-dev-char" in volumes:
        volumes["host-dev-char"]["hostPath"]["path"] = f"{root.rstrip('/')}/dev/char"
    if "host-root" not in volumes:
        return
    volumes["host-root"]["hostPath"]["path"] = root
    for container in (*pod.get("initContainers", []), *pod["containers"]):
        set_env(container, "HOST_ROOT", root)


def _apply_driver_install_dir(pod: Json, directory: str) -> None:
    """Move the driver's root directory, and tell the container that validates the driver."""
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    if directory == "/run/nvidia/driver" or "driver-install-dir" not in volumes:
        return
    volumes["driver-install-dir"]["hostPath"]["path"] = directory
    for container in pod.get("initContainers", []):
        if container["name"] == "driver-validation":
            set_env(container, "DRIVER_INSTALL_DIR", directory)
            set_env(container, "DRIVER_INSTALL_DIR_CTR_PATH", directory)
            find(container["volumeMounts"], "driver-install-dir")["mountPath"] = directory


def _label_template(ctx: Context, template: Json, kept: Container[str]) -> None:
    """Add the policy's labels, but for those by which pods are known: their DaemonSet selects them by some, which the API server
    would refuse, and driver pods keep others off their node by one.
    """
    common = ctx.spec.daemonsets
    meta = template["metadata"]
    meta["labels"].update({key: value for key, value in common.labels.items() if key not in kept})
    if common.annotations:
        meta.setdefault("annotations", {}).update(common.annotations)


def _update_strategy(ctx: Context, frame: DaemonSetFrame) -> Json:
    """Return how pods are replaced; empty for the API's default. Driver pods are only ever replaced by deleting them."""
    common = ctx.spec.daemonsets
    limit = common.rolling_update.max_unavailable
    if common.update_strategy == "OnDelete" or frame.on_delete:
        return {"type": "OnDelete"}
    if not limit:
        return {}
    if not limit.removesuffix("%").isdecimal():
        raise PolicyError("spec.daemonsets.rollingUpdate.maxUnavailable", limit,
                          'write a number or a percentage, such as "1" or "10%"')
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit if limit.endswith("%") else int(limit)}}
