"""The admission plugins of kube-apiserver that are on by default, as far as pods meet them.

Facts from the plugins ServiceAccount, Priority, RuntimeClass and PodSecurity (v1.36). What completes a pod (`admit`) comes before
it is validated and named, what only judges it (`check`) comes after. So a refusal of the first kind names `generateName`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors, podsecurity, preconditions

if TYPE_CHECKING:
    from kubesandbox.resources import Resource
    from kubesandbox.store import Store

Object = dict[str, Any]

PRIORITIES: Final = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
DEFAULT_ACCOUNT: Final = "default"
_ACCOUNTS: Final = "serviceaccounts"
_CLASSES: Final = "priorityclasses.scheduling.k8s.io"
_RUNTIMES: Final = "runtimeclasses.node.k8s.io"


def admit(resource: Resource, obj: Object, asked: str, store: Store) -> None:
    """Complete a new object in place; raise `errors.Forbidden` where a pod leans on what is not there.

    `asked` is the name, or the beginning of a name, that the pod was sent with.
    """
    if resource.key != "pods":
        return
    try:
        _account(obj, store)
        _prioritise(obj["spec"], store)
        _runtime(obj["spec"], store)
    except _Refused as refused:
        told = f'pods "{asked}" is forbidden: {refused}'
        raise errors.Forbidden(told, details=preconditions.details(resource, asked)) from None


def check(resource: Resource, new: Object, old: Object | None, store: Store) -> None:
    """Raise what admission refuses of a complete and valid object that is about to be stored."""
    if resource.key == "pods" and old is None:
        podsecurity.check_pod(resource, new, store)
    if resource.key == "namespaces":
        podsecurity.check_namespace(resource, new, old)


class _Refused(Exception):
    """Say why a pod is refused."""


def _account(pod: Object, store: Store) -> None:
    namespace, spec = pod["metadata"]["namespace"], pod["spec"]
    name = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    found = store.find(_ACCOUNTS, namespace, name)
    if found is None and name == DEFAULT_ACCOUNT:
        # The server waits up to two seconds for this one, and its controller makes it within that time.
        found = store.create(_ACCOUNTS, {"metadata": {"name": name, "namespace": namespace}})
    if found is None:
        raise _Refused(f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found')
    if found.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = list(found["imagePullSecrets"])


def _prioritise(spec: Object, store: Store) -> None:
    name = spec.get("priorityClassName")
    priority, preemption = 0, "PreemptLowerPriority"
    if name:
        found = store.find(_CLASSES, None, name)
        if found is None and name not in PRIORITIES:
            raise _Refused(f"no PriorityClass with name {name} was found")
        priority = found["value"] if found is not None else PRIORITIES[name]
        preemption = (found or {}).get("preemptionPolicy", preemption)
    if spec.get("priority") not in (None, priority):
        raise _Refused(f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
                       f"controller computed {priority} from the given PriorityClass name")
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", preemption)


def _runtime(spec: Object, store: Store) -> None:
    name = spec.get("runtimeClassName")
    if name is None:
        if spec.get("overhead"):
            raise _Refused("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
        return
    found = store.find(_RUNTIMES, None, name)
    if found is None:
        raise _Refused(f'pod rejected: RuntimeClass "{name}" not found')
    scheduling = found.get("scheduling") or {}
    own = spec.get("nodeSelector") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if own.get(key, value) != value:
            raise _Refused(f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = "
                           f"{own[key]}")
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), key: value}
    for toleration in scheduling.get("tolerations") or ():
        if toleration not in (spec.get("tolerations") or ()):
            spec["tolerations"] = [*(spec.get("tolerations") or ()), toleration]
    if overhead := (found.get("overhead") or {}).get("podFixed"):
        spec["overhead"] = overhead
