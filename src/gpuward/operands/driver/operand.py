"""State `state-driver`: the GPU driver, installed on each node from a container."""

from __future__ import annotations

from functools import partial

import msgspec

from gpuward import names
from gpuward.errors import PolicyError
from gpuward.model.systems import name_of
from gpuward.operands import images, rbac, scripts
from gpuward.operands.common import add_pull_secrets, set_container, set_env, set_envs, set_host_network, set_resources
from gpuward.operands.common_daemonset import DaemonSetFrame, daemon_set, ref
from gpuward.operands.driver import kernels as driver_kernels
from gpuward.operands.driver import options as driver_options
from gpuward.operands.driver import pod as driver_pod
from gpuward.operands.driver import sidecars as driver_sidecars
from gpuward.operands.driver.digest import driver_config_digest
from gpuward.operands.driver.kernels import Variant
from gpuward.operands.driver.pod import CONTAINER, MANAGER, STARTUP_PROBE
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, config_map, find
from gpuward.operands.own_agents import rules_of_driver_manager, use_own_agent
from gpuward.operands.state import ObjectRef

NAME = "state-driver"
ACCOUNT = "nvidia-driver"
DAEMON_SET = names.DRIVER_APP


def enabled(ctx: Context) -> bool:
    """Tell whether the policy wants drivers to be installed, and does not leave that to NVIDIADrivers."""
    return ctx.spec.driver.is_enabled and not ctx.spec.driver.is_left_to_nvidia_drivers


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make; its DaemonSets go in a way of their own where drivers are left to NVIDIADrivers."""
    needed = (*rbac.access_refs(ctx.namespace, ACCOUNT), ObjectRef("v1", "ConfigMap", ctx.namespace, STARTUP_PROBE))
    return needed if ctx.spec.driver.is_left_to_nvidia_drivers else (*needed, ref(ctx.namespace, DAEMON_SET))


def objects(ctx: Context) -> list[Json]:
    """Return the driver's account, startup probe and DaemonSet.

    Raises:
        PolicyError: the policy asks for what cannot be made.
    """
    _refuse_unsupported(ctx)
    rules = [*cluster_rules(), *(rules_of_driver_manager(_manager_image(ctx)) if ctx.facts.has_gpu_nodes else ())]
    made = rbac.access(ctx.namespace, ACCOUNT, [rbac.use_privileged_scc()], rules)
    labels = {"app": DAEMON_SET, names.COMPONENT_LABEL: names.DRIVER_COMPONENT}
    made.append(config_map(ctx.namespace, STARTUP_PROBE, {"startup-probe.sh": scripts.DRIVER_STARTUP_PROBE}, labels))
    if ctx.facts.has_gpu_nodes:
        made += [_daemon_set(ctx, variant) for variant in driver_kernels.variants(ctx)]
    return made


def _daemon_set(ctx: Context, variant: Variant) -> Json:
    runtime = driver_options.made_for_runtime(ctx.facts.os_id, ctx.facts.runtime_of_driver(variant.name))
    made_for = {} if variant.kernel else {names.DRIVER_OS: ctx.facts.os_tag, **runtime}
    frame = DaemonSetFrame(
        name=variant.name, app=DAEMON_SET, component="driver", account=ACCOUNT, on_delete=True,
        selector=variant.selector,
        labels={names.COMPONENT_LABEL: names.DRIVER_COMPONENT, names.PRECOMPILED: variant.label},
        annotations={"openshift.io/scc": "nvidia-driver", **made_for},
        template_annotations={"kubectl.kubernetes.io/default-container": CONTAINER},
        node_selector=variant.node_selector,
    )
    return daemon_set(ctx, frame, driver_pod.pod(ctx), partial(_fill, variant))


def _refuse_unsupported(ctx: Context) -> None:
    driver = ctx.spec.driver
    for field, probe in (("livenessProbe", driver.liveness_probe), ("readinessProbe", driver.readiness_probe)):
        if probe is not None:
            given = {key: value for key, value in msgspec.to_builtins(probe).items() if value is not None}
            raise PolicyError(f"spec.driver.{field}", given, "remove it: the driver has only driver.startupProbe")


def cluster_rules() -> list[Json]:
    return [
        rbac.rule("config.openshift.io", ["clusterversions"], ["get", "list"]),
        rbac.rule("", ["nodes"], ["get", "list", "patch", "update", "watch"]),
        rbac.rule("", ["pods"], rbac.READ),
        rbac.rule("", ["pods/eviction"], ["create"]),
        rbac.rule("resource.k8s.io", ["resourceclaims"], ["get", "list"]),
        rbac.rule("apps", ["daemonsets"], ["get"]),
    ]


def _fill(variant: Variant, ctx: Context, template: Json) -> None:
    pod = template["spec"]
    manager, container = find(pod["initContainers"], MANAGER), find(pod["containers"], CONTAINER)
    _fill_manager(ctx, pod, manager)
    _fill_driver(ctx, pod, container, variant)
    driver_sidecars.fill(ctx, pod, variant.image)
    digest = driver_config_digest(pod)
    for each in (manager, container):
        set_env(each, names.DRIVER_CONFIG_DIGEST, digest)
    set_host_network(pod, ctx.spec.driver.host_network)


def _manager_image(ctx: Context) -> str:
    return images.resolve("spec.driver.manager", ctx.spec.driver.manager, "DRIVER_MANAGER_IMAGE", ctx.images)


def _fill_manager(ctx: Context, pod: Json, container: Json) -> None:
    driver = ctx.spec.driver
    manager = driver.manager
    container["image"] = _manager_image(ctx)
    if manager.image_pull_policy:
        container["imagePullPolicy"] = images.pull_policy(manager)
    set_resources(container, driver.resources)
    if driver.rdma.is_enabled:
        set_env(container, "GPU_DIRECT_RDMA_ENABLED", "true")
    if driver.rdma.uses_host_mofed:
        set_env(container, "USE_HOST_MOFED", "true")
    set_envs(container, manager.env)
    add_pull_secrets(pod, manager.image_pull_secrets)
    use_own_agent(container)


def _fill_driver(ctx: Context, pod: Json, container: Json, variant: Variant) -> None:
    driver = ctx.spec.driver
    set_container(pod, container, variant.image, driver)
    driver_options.fill_features(ctx, pod, container)
    driver_options.fill_probe(container, driver.startup_probe)
    driver_options.fill_vgpu(ctx, pod, container)
    set_envs(container, driver.env)
    if variant.kernel is not None:
        driver_options.fill_host_modules(name_of(variant.kernel.os_tag), pod, container)
    else:
        driver_options.fill_host_packages(ctx, pod, container)
