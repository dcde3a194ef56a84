"""What a write must satisfy for every resource type, and the words in which the API server refuses one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors

if TYPE_CHECKING:
    from kubesandbox.resources import Resource

Object = dict[str, Any]

IMMORTAL: Final = ("default", "kube-system", "kube-public")
"""The namespaces that nobody may delete."""
SERVER_OWNED: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                       "resourceVersion", "generateName")
"""Metadata that an update cannot change."""


def details(resource: Resource, name: str, **more: Any) -> Object:
    """Return a Status object's details about one object."""
    found: Object = {"name": name, "kind": resource.plural, **more}
    if resource.group:
        found["group"] = resource.group
    return found


def not_found(resource: Resource, name: str) -> errors.NotFound:
    """Say that there is no object of that name."""
    return errors.NotFound(f'{resource.key} "{name}" not found', details=details(resource, name))


def already_exists(resource: Resource, name: str) -> errors.AlreadyExists:
    """Say that the name is taken."""
    return errors.AlreadyExists(f'{resource.key} "{name}" already exists', details=details(resource, name))


def conflict(resource: Resource, name: str, why: str) -> errors.Conflict:
    """Say that a precondition does not hold."""
    return errors.Conflict(f'Operation cannot be fulfilled on {resource.key} "{name}": {why}',
                           details=details(resource, name))


def nameless(resource: Resource) -> errors.Invalid:
    """Say that a new object has neither name nor generateName."""
    return invalid(resource, "", [
        ("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")])


def invalid(resource: Resource, name: str, causes: list[tuple[str, str, str]]) -> errors.Invalid:
    """Refuse an object; each cause is (reason, field, message), worded as kube-apiserver words a field error."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    sentences = [f"{field}: {message}" for _, field, message in causes]
    told = sentences[0] if len(sentences) == 1 else "[" + ", ".join(sentences) + "]"
    listed = [{"reason": reason, "message": message, "field": field} for reason, field, message in causes]
    found: Object = {"name": name, "kind": resource.kind, "causes": listed}
    if resource.group:
        found["group"] = resource.group
    return errors.Invalid(f'{kind} "{name}" is invalid: {told}', details=found)


def check_namespace(resource: Resource, meta: Object, namespace: Object | None) -> None:
    """Refuse a new object whose namespace does not exist or is going away."""
    if not resource.namespaced:
        return
    name = meta["namespace"]
    if namespace is None:
        raise errors.NotFound(f'namespaces "{name}" not found', details={"name": name, "kind": "namespaces"})
    if namespace["metadata"].get("deletionTimestamp"):
        raise errors.Forbidden(
            f'{resource.key} "{meta["name"]}" is forbidden: unable to create new content in namespace {name} '
            "because it is being terminated",
            details=details(resource, meta["name"], causes=[{
                "reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace"}]))


def check_deletion(resource: Resource, old: Object, uid: str | None, version: str | None) -> None:
    """Refuse a deletion that was meant for another object of that name, or for another version of it."""
    meta = old["metadata"]
    if resource.key == "namespaces" and meta["name"] in IMMORTAL:
        raise errors.Forbidden(f'namespaces "{meta["name"]}" is forbidden: this namespace may not be deleted',
                               details=details(resource, meta["name"]))
    if uid and uid != meta["uid"]:
        raise _foreign(resource, meta, uid)
    if version and version != meta["resourceVersion"]:
        raise conflict(resource, meta["name"],
                       f"Precondition failed: ResourceVersion in precondition: {version}, "
                       f"ResourceVersion in object meta: {meta['resourceVersion']}")


def _foreign(resource: Resource, meta: Object, uid: str) -> errors.Conflict:
    return conflict(resource, meta["name"],
                    f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}")


def check_identity(resource: Resource, old: Object, uid: str | None, version: str | None) -> None:
    """Refuse an update that was meant for another object of that name, or for another version of it."""
    meta = old["metadata"]
    if uid and uid != meta["uid"]:
        raise _foreign(resource, meta, uid)
    if version and version != meta["resourceVersion"]:
        raise conflict(resource, meta["name"],
                       "the object has been modified; please apply your changes to the latest version and try again")


def carry_over(resource: Resource, old: Object, new: Object, subresource: str | None) -> Object:
    """Return what an update really asks for: server-owned metadata stays; spec and status have an endpoint each."""
    if subresource == "status":
        merged = {**old, "status": new.get("status")}
        if merged["status"] is None:
            del merged["status"]
        merged["metadata"] = dict(old["metadata"] if resource.custom else new["metadata"])
    else:
        merged = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": dict(new["metadata"])}
        if "status" in resource.subresources:
            merged.pop("status", None)
            if "status" in old:
                merged["status"] = old["status"]
    meta = merged["metadata"]
    for name in SERVER_OWNED:
        meta.pop(name, None)
        if name in old["metadata"]:
            meta[name] = old["metadata"][name]
    # Who owns what is written by the API's own verbs only; whoever says nothing about it changes nothing.
    meta.setdefault("managedFields", old["metadata"].get("managedFields"))
    if not meta["managedFields"]:
        del meta["managedFields"]
    _refuse_new_finalizers(resource, old, meta)
    return merged


def count_generation(resource: Resource, old: Object, new: Object, subresource: str | None) -> None:
    """Move the generation when anything but metadata and status has changed."""
    if not resource.counts_generation or subresource is not None:
        return
    if _wanted(resource, old) != _wanted(resource, new):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _wanted(resource: Resource, obj: Object) -> Object:
    """Return what an object asks for, which is what generations count."""
    apart = ("metadata", "status") if "status" in resource.subresources else ("metadata",)
    return {name: value for name, value in obj.items() if name not in apart}


def _refuse_new_finalizers(resource: Resource, old: Object, meta: Object) -> None:
    if not old["metadata"].get("deletionTimestamp"):
        return
    added = [name for name in meta.get("finalizers") or () if name not in (old["metadata"].get("finalizers") or ())]
    if added:
        listed = "[]string{" + ", ".join(f'"{name}"' for name in added) + "}"
        raise invalid(resource, meta["name"], [(
            "FieldValueForbidden", "metadata.finalizers",
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers {listed}")])
