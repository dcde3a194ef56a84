"""States `state-sandbox-device-plugin` and `state-kata-device-plugin`: the plugins that offer GPUs to virtual machines."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuward.crd.clusterpolicy import ClusterPolicySpec
from gpuward.crd.shapes import Operand
from gpuward.operands import images, rbac
from gpuward.operands.common import set_container, set_envs, set_host_network
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.common_validation import STATUS_FILES, fill_validation
from gpuward.operands.facts import Context
from gpuward.operands.objects import (
    Json,
    env,
    field_env,
    find,
    host_path,
    mount,
    namespace_env,
    node_name_env,
    privileged,
)
from gpuward.operands.state import ObjectRef

_PLUGINS_DIR = "/var/lib/kubelet/device-plugins"


class DevicePluginState(msgspec.Struct, frozen=True, kw_only=True):
    """Be the state of one of the two plugins; which of them it is depends on how virtual machines are run."""

    NAME: str
    mode: str
    account: str
    component: str
    field: str
    variable: str
    section: Callable[[ClusterPolicySpec], Operand]
    pod: Callable[[str], Json]

    def enabled(self, ctx: Context) -> bool:
        """Tell whether the policy wants this plugin."""
        sandbox = ctx.spec.sandbox_workloads
        return sandbox.is_enabled and sandbox.mode == self.mode and self.section(ctx.spec).is_enabled

    def refs(self, ctx: Context) -> tuple[ObjectRef, ...]:
        """Return all that this state can make."""
        return (*rbac.access_refs(ctx.namespace, self.account), ref(ctx.namespace, f"{self.account}-daemonset"))

    def objects(self, ctx: Context) -> list[Json]:
        """Return the plugin's account and DaemonSet."""
        made = rbac.access(ctx.namespace, self.account, _rules(), _cluster_rules())
        if ctx.facts.has_gpu_nodes:
            frame = DaemonSetFrame(name=f"{self.account}-daemonset", component=self.component, account=self.account,
                                   annotations={"openshift.io/scc": self.account})
            made.append(daemon_set(ctx, frame, self.pod(f"{self.account}-ctr"), self._fill))
        return made

    def _fill(self, ctx: Context, template: Json) -> None:
        section = self.section(ctx.spec)
        pod = template["spec"]
        container = find(pod["containers"], f"{self.account}-ctr")
        fill_validation(ctx, pod)
        set_container(pod, container, images.resolve(f"spec.{self.field}", section, self.variable, ctx.images), section)
        set_envs(container, section.env)
        set_host_network(pod, section.host_network)


def _rules() -> list[Json]:
    return [
        rbac.use_privileged_scc(),
        rbac.rule("", ["pods"], ["create", *rbac.READ, "delete"]),
        rbac.rule("nfd.k8s-sigs.io", ["nodefeatures"], ["create", *rbac.READ, "update"]),
    ]


def _cluster_rules() -> list[Json]:
    return [
        rbac.rule("config.openshift.io", ["clusterversions"], ["get", "list"]),
        rbac.rule("", ["nodes", "pods"], ["get"]),
    ]


def _kubevirt_pod(container: str) -> Json:
    waits = [
        _wait("vfio-pci", "vm-passthrough", "vfio-pci", "vfio-pci driver ..."),
        _wait("vgpu-devices", "vm-vgpu", "vgpu-devices", "vGPU devices..."),
    ]
    mounts = [mount("device-plugin", _PLUGINS_DIR), mount("vfio", "/dev/vfio"), mount("cdi-root", "/var/run/cdi")]
    return _pod(waits, container, [], mounts, [host_path("vfio", "/dev/vfio")])


def _kata_pod(container: str) -> Json:
    waits = [_wait("vfio-pci", "vm-passthrough", "kata", "vfio-pci driver ...")]
    mounts = [mount("device-plugin", _PLUGINS_DIR), mount("cdi-root", "/var/run/cdi")]
    return _pod(waits, container, [field_env("POD_SERVICE_ACCOUNT", "spec.serviceAccountName")], mounts, [])


def _pod(waits: list[Json], container: str, variables: list[Json], mounts: list[Json], volumes: list[Json]) -> Json:
    return {
        "initContainers": waits,
        "containers": [{
            "name": container,
            "env": [node_name_env(), namespace_env("POD_NAMESPACE"), *variables],
            "securityContext": privileged(),
            "volumeMounts": mounts,
        }],
        "volumes": [
            host_path("device-plugin", _PLUGINS_DIR),
            host_path("run-nvidia-validations", STATUS_FILES, "DirectoryOrCreate"),
            *volumes,
            host_path("cdi-root", "/var/run/cdi", "DirectoryOrCreate"),
        ],
    }


def _wait(component: str, workload: str, subject: str, awaited: str) -> Json:
    """Return the init container that waits for a validation, on nodes for that workload.

    The command is part of the pod template, so it is spelled as NVIDIA's: another text would replace every pod.
    """
    kind = f"{STATUS_FILES}/workload-type"
    return {
        "name": f"{component}-validation",
        "command": ["sh", "-c"],
        "args": [
            f"until [ -f {kind} ]; do echo waiting for workload type status file; sleep 5; done; "
            f'if [ "$(cat {kind})" != "{workload}" ]; then echo {subject} not needed, skipping validation; exit 0; fi; '
            f"until [ -f {STATUS_FILES}/{component}-ready ]; do echo waiting for {awaited}; sleep 5; done;",
        ],
        "env": [env("NVIDIA_VISIBLE_DEVICES", "void")],
        "securityContext": privileged(),
        "volumeMounts": [mount("run-nvidia-validations", STATUS_FILES, propagation="HostToContainer")],
    }


KUBEVIRT = DevicePluginState(
    NAME="state-sandbox-device-plugin", mode="kubevirt", account="nvidia-sandbox-device-plugin",
    component="sandbox-device-plugin", field="sandboxDevicePlugin", variable="SANDBOX_DEVICE_PLUGIN_IMAGE",
    section=lambda spec: spec.sandbox_device_plugin, pod=_kubevirt_pod,
)
KATA = DevicePluginState(
    NAME="state-kata-device-plugin", mode="kata", account="nvidia-kata-sandbox-device-plugin",
    component="kata-sandbox-device-plugin", field="kataSandboxDevicePlugin", variable="KATA_SANDBOX_DEVICE_PLUGIN_IMAGE",
    section=lambda spec: spec.kata_sandbox_device_plugin, pod=_kata_pod,
)
