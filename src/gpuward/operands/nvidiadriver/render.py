"""The objects of an NVIDIADriver: for each node pool that it owns a DaemonSet, and the rights of its pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuward import names
from gpuward.crd.nvidiadriver import NVIDIADriver, NVIDIADriverSpec
from gpuward.errors import PolicyError
from gpuward.operands import rbac, scripts
from gpuward.operands.driver import operand as driver
from gpuward.operands.driver.kernels import sanitized
from gpuward.operands.driver.options import made_for_runtime
from gpuward.operands.driver.pod import CONTAINER, STARTUP_PROBE
from gpuward.operands.facts import ClusterFacts
from gpuward.operands.nvidiadriver.configs import DriverContext
from gpuward.operands.nvidiadriver.pod import manager_image, pod_spec
from gpuward.operands.nvidiadriver.pools import Pool, access_name, app_name
from gpuward.operands.objects import Json, config_map, metadata
from gpuward.operands.own_agents import rules_of_driver_manager
from gpuward.operands.state import OperandState, ref_of

NAME = driver.NAME


def render_driver(nvidia_driver: NVIDIADriver, pools: Iterable[Pool], facts: ClusterFacts,
                  images: Mapping[str, str], host_root: str = "/") -> OperandState:
    """Return the state of one NVIDIADriver with these node pools; what it cannot follow is the state's `error`.

    `images` are the operator's variables that name images, `host_root` is the ClusterPolicy's `hostPaths.rootFS`.
    """
    made: dict[object, Json] = {}
    try:
        _check_secret(nvidia_driver.spec, facts)
        for pool in pools:
            ctx = DriverContext(nvidia_driver, pool, facts, images, host_root)
            made |= {ref_of(obj): obj for obj in _objects(ctx)}
    except PolicyError as error:
        return OperandState(NAME, enabled=True, error=error)
    return OperandState(NAME, enabled=True, objects=tuple(made.values()))


def startup_probe(namespace: str, owners: Sequence[tuple[NVIDIADriver, str]]) -> Json:
    """Return the ConfigMap that the driver pods of all NVIDIADrivers mount.

    `owners` are the NVIDIADrivers with the name of their first DaemonSet. The first of them controls the ConfigMap; the others
    own it too, so that it outlives any one of them. With NVIDIA's operator its owner is whichever was written last.
    """
    labels = {"app": owners[0][1], names.COMPONENT_LABEL: _component(owners[0][0].spec), names.OPERATOR_STATE: NAME}
    made = config_map(namespace, STARTUP_PROBE, {"startup-probe.sh": scripts.DRIVER_STARTUP_PROBE}, labels)
    others = [
        {"apiVersion": each.api_version, "kind": each.kind, "name": each.name, "uid": str(each.metadata.get("uid", ""))}
        for each, _ in owners[1:]
    ]
    if others:
        made["metadata"]["ownerReferences"] = others
    return made


def referenced(spec: NVIDIADriverSpec) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ConfigMaps and the Secrets that the driver's pod cannot do without."""
    maps = {spec.kernel_module_config.name, spec.repo_config.name, spec.cert_config.name, spec.licensing_config.used_config_map,
            spec.virtual_topology_config.name}
    return frozenset(maps - {""}), frozenset({spec.secret_env, spec.licensing_config.secret_name} - {""})


def _check_secret(spec: NVIDIADriverSpec, facts: ClusterFacts) -> None:
    if spec.secret_env:
        facts.need_secret("spec.secretEnv", spec.secret_env)


def _objects(ctx: DriverContext) -> list[Json]:
    account = access_name(ctx.driver, ctx.pool)
    rules = [*driver.cluster_rules(), *rules_of_driver_manager(manager_image(ctx))]
    made = rbac.access(ctx.facts.namespace, account, [rbac.use_privileged_scc()], rules)
    return [_with_state(obj) for obj in (*made, _daemon_set(ctx, account))]


def _with_state(obj: Json) -> Json:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "labels": {**meta.get("labels", {}), names.OPERATOR_STATE: NAME}}}


def _daemon_set(ctx: DriverContext, account: str) -> Json:
    spec, app = ctx.spec, app_name(ctx.driver, ctx.pool)
    labels = {**_users_labels(spec), **_labels(ctx.pool, app), names.COMPONENT_LABEL: _component(spec)}
    made_for = {} if ctx.pool.kernel else made_for_runtime(ctx.pool.os_id, ctx.runtime)
    shown = {"kubectl.kubernetes.io/default-container": CONTAINER}
    template = {"metadata": metadata("", "", labels, {**shown, **spec.annotations}),
                "spec": pod_spec(ctx, account)}
    del template["metadata"]["name"]
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": metadata(app, ctx.facts.namespace, labels, {"openshift.io/scc": account, **spec.annotations, **made_for}),
        "spec": {"selector": {"matchLabels": {"app": app}}, "updateStrategy": {"type": "OnDelete"}, "template": template},
    }


def _labels(pool: Pool, app: str) -> dict[str, str]:
    kernel = {names.PRECOMPILED_KERNEL: sanitized(pool.kernel)} if pool.kernel else {}
    return {"app": app, names.NODE_OS: pool.os_tag, names.PRECOMPILED: "true" if pool.kernel else "false", **kernel}


def _component(spec: NVIDIADriverSpec) -> str:
    return names.VGPU_HOST_COMPONENT if spec.is_for_hosts else names.DRIVER_COMPONENT


def _users_labels(spec: NVIDIADriverSpec) -> dict[str, str]:
    """Return the labels that people want, without those by which pods are selected."""
    return {key: value for key, value in spec.labels.items() if key != "app" and not key.startswith("app.kubernetes.io/")}
