"""What a pod needs of ConfigMaps and Secrets before it can run: volumes for its sandbox, variables for each container.

Facts from the kubelet: without a volume no container is created, and the pod stays in ContainerCreating (FailedMount); without a
variable its container stays in CreateContainerConfigError. Both are tried again until what is missing is there. What is optional
may be missing, and what goes later is missed at the next start only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kubesandbox.sim.objects import Object, namespace_of

if TYPE_CHECKING:
    from kubesandbox.store import Store

RETRY_SECONDS: Final = 10.0
"""How soon what is missing is looked for again."""
_KINDS: Final = {"configMap": "configmaps", "secret": "secrets"}


def missing_volume(store: Store, pod: Object) -> str:
    """Return why a volume of a pod cannot be mounted, empty if all can."""
    namespace = namespace_of(pod)
    for volume in pod["spec"].get("volumes") or ():
        for kind, source in _sources(volume):
            name = source.get("secretName") or source.get("name") or ""
            keys = [item["key"] for item in source.get("items") or ()]
            if not source.get("optional") and (why := _missing(store, namespace, kind, name, keys, "references non-existent ")):
                return f'MountVolume.SetUp failed for volume "{volume["name"]}" : {why}'
    return ""


def missing_variable(store: Store, pod: Object, container: Object) -> str:
    """Return why the environment of a container cannot be made, empty if it can."""
    namespace = namespace_of(pod)
    for given in container.get("envFrom") or ():
        for kind in _KINDS:
            source = given.get(f"{kind}Ref") or {}
            if source and not source.get("optional") and (why := _missing(store, namespace, kind, source["name"], ())):
                return why
    for variable in container.get("env") or ():
        for kind in _KINDS:
            source = (variable.get("valueFrom") or {}).get(f"{kind}KeyRef") or {}
            if source and not source.get("optional") and (
                    why := _missing(store, namespace, kind, source["name"], [source["key"]], "couldn't find ")):
                return why
    return ""


def _sources(volume: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from ((kind, volume[kind]) for kind in _KINDS if volume.get(kind))
    for projected in (volume.get("projected") or {}).get("sources") or ():
        yield from ((kind, projected[kind]) for kind in _KINDS if projected.get(kind))


def _missing(store: Store, namespace: str, kind: str, name: str, keys: list[str] | tuple[str, ...], lacks: str = "") -> str:
    found = store.find(_KINDS[kind], namespace, name)
    if found is None:
        return f'{kind.lower()} "{name}" not found'
    held = {*(found.get("data") or ()), *(found.get("binaryData") or ())}
    return next((f"{lacks}{kind.lower()} key: {key}" for key in keys if key not in held), "")
