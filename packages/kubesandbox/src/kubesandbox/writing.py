"""POST, PUT, PATCH and DELETE: from a body to a store's write."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import (
    errors,
    kubetypes,
    messages,
    ownership,
    patch,
    patch_strategic,
    podsecurity,
    preconditions,
    scaling,
)
from kubesandbox.crds import Structural
from kubesandbox.messages import JSON, Answer, Request
from kubesandbox.shapes import BuiltInShape, SchemaShape
from kubesandbox.store import timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubesandbox.catalog import Served, Target
    from kubesandbox.shapes import Shape
    from kubesandbox.store import Store

Object = dict[str, Any]
Webhook = Callable[[str, "Object | None", "Object"], None]
"""Is asked about the resource's key, the object as it is (None for a new one) and as it is to be; raises to refuse it."""

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
ANSWERS_OBJECT: Final = frozenset({"pods", "services", "serviceaccounts", "persistentvolumeclaims", "persistentvolumes",
                                   "resourcequotas", "namespaces"})
"""The types whose removal is answered with the last object and not with a Status."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Hold what a delete call may ask for."""

    grace_seconds: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


class Undecodable(errors.BadRequest):
    """Refuse a body that does not fit its type; `cause` is what the decoder says."""

    def __init__(self, label: str, cause: str) -> None:
        super().__init__(f"{label}: {cause}")
        self.cause = cause


class Writer:
    """Carry out writes on a store."""

    def __init__(self, store: Store, webhooks: Sequence[Webhook] = ()) -> None:
        self._store = store
        self._webhooks = webhooks

    def create(self, target: Target, request: Request) -> Answer:
        """Create the object in the body; raise `errors.AlreadyExists` or `errors.Invalid`."""
        body = _object(request)
        obj, warnings = self._decode(target, self._addressed(target, body), request)
        return self._created(target, obj, warnings, request)

    def replace(self, target: Target, request: Request) -> Answer:
        """Replace an object, or its status, by the body."""
        body = self._addressed(target, _object(request))
        if body["metadata"].get("name") != target.name:
            raise errors.BadRequest(f"the name of the object ({body['metadata'].get('name', '')}) does not match the name "
                                    f"on the URL ({target.name})")
        if target.subresource == "scale":
            return messages.answer(scaling.write(self._store, target, body))
        if not target.served.resource.unconditional_update and not body["metadata"].get("resourceVersion"):
            raise preconditions.invalid(target.served.resource, target.name or "", [
                ("FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update")])
        return self._put(target, body, request)

    def patch(self, target: Target, request: Request) -> Answer:
        """Patch an object, its status or its scale, by the body's kind of patch; an apply patch may create it."""
        kind = request.content_type.partition(";")[0].strip()
        change = messages.parse(request.body, "application/yaml" if kind == APPLY_PATCH else JSON)
        if kind == APPLY_PATCH:
            if not request.query.get("fieldManager"):
                raise _nobody()
            return self._apply(target, change, request)
        if target.subresource == "scale":
            current = scaling.read(self._store, target)
            return messages.answer(scaling.write(self._store, target, _patched(target.served, current, kind, change)))
        stored = self._store.get(target.served.storage_key, target.namespace, target.name or "")
        current = target.served.show(stored)
        patched = _patched(target.served, current, kind, change)
        uid = patched["metadata"].get("uid")
        if uid not in (None, current["metadata"]["uid"]):
            raise preconditions.invalid(target.served.resource, target.name or "", [
                ("FieldValueInvalid", "metadata.uid", f'Invalid value: "{uid}": field is immutable')])
        try:
            return self._put(target, patched, request)
        except Undecodable as error:
            raise _no_object(patched, error) from None

    def delete(self, target: Target, request: Request) -> Answer:
        """Delete an object as the options in body or query say."""
        options = delete_options(request)
        return self._delete(target, target.name or "", options)

    def delete_all(self, target: Target, found: list[Object], request: Request) -> Answer:
        """Delete the objects found, each by itself, and return them as a list."""
        options = delete_options(request)
        for obj in found:
            self._store.delete(target.served.storage_key, obj["metadata"].get("namespace"), obj["metadata"]["name"],
                               grace_seconds=options.grace_seconds, propagation=options.propagation,
                               dry_run=options.dry_run)
        resource = target.served.resource
        return messages.answer({"kind": resource.kind + "List", "apiVersion": resource.api_version,
                                "metadata": {"resourceVersion": str(self._store.version)},
                                "items": [target.served.show(obj) for obj in found]})

    def _delete(self, target: Target, name: str, options: DeleteOptions) -> Answer:
        key, resource = target.served.storage_key, target.served.resource
        last = self._store.delete(key, target.namespace, name, uid=options.uid, propagation=options.propagation,
                                  resource_version=options.resource_version, grace_seconds=options.grace_seconds,
                                  dry_run=options.dry_run)
        gone = self._store.find(key, target.namespace, name) is None
        if gone and key not in ANSWERS_OBJECT:
            return messages.success(**preconditions.details(resource, name, uid=last["metadata"]["uid"]))
        return messages.answer(target.served.show(last))

    def _apply(self, target: Target, change: Any, request: Request) -> Answer:
        if not isinstance(change, dict) or not change.get("kind") or not change.get("apiVersion"):
            raise errors.BadRequest("an applied object says its apiVersion and kind")
        body = self._addressed(target, change)
        name = target.name or ""
        if body["metadata"].setdefault("name", name) != name:
            raise errors.BadRequest("the name of the object does not match the name on the URL")
        stored = self._store.find(target.served.storage_key, target.namespace, name)
        if stored is None and target.subresource is not None:
            raise preconditions.not_found(target.served.resource, name)
        if body["metadata"].get("managedFields"):
            raise errors.BadRequest("metadata.managedFields must be nil")
        live = None if stored is None else target.served.show(stored)
        merged, owned = ownership.apply(self._shape(target.served), live, body, self._who(target.served, request, "Apply"),
                                        force=request.flag("force"))
        if stored is not None:
            return self._put(target, merged, request, owned)
        obj, warnings = self._decode(target, merged, request)
        obj["metadata"]["managedFields"] = owned
        return self._created(target, obj, warnings, request)

    def _created(self, target: Target, obj: Object, warnings: tuple[str, ...], request: Request) -> Answer:
        key = target.served.storage_key
        self._admit(key, None, obj)
        made = self._store.create(key, obj, dry_run=_dry_run(request.query), decoded=True)
        return messages.answer(target.served.show(made), 201, (*warnings, *podsecurity.warnings(self._store, key, made, None)))

    def _admit(self, key: str, old: Object | None, new: Object) -> None:
        for webhook in self._webhooks:
            webhook(key, old, new)

    def _shape(self, served: Served) -> Shape:
        if not served.resource.custom:
            return BuiltInShape(_type_name(served))
        schema = self._store.schema(served.storage_key)
        return SchemaShape(schema.schema if isinstance(schema, Structural) else {})

    def _who(self, served: Served, request: Request, operation: str) -> ownership.Manager:
        name = request.query.get("fieldManager") or "unknown"
        return ownership.Manager(name, operation, served.resource.api_version, timestamp(self._store.now()))

    def _put(self, target: Target, body: Object, request: Request, owned: list[Object] | None = None) -> Answer:
        obj, warnings = self._decode(target, self._addressed(target, body), request)
        sub = "status" if target.subresource == "status" else None
        old = self._store.find(target.served.storage_key, obj["metadata"].get("namespace"), obj["metadata"].get("name", ""))
        if owned is None and old is not None and old["metadata"].get("managedFields"):
            owned = ownership.after_update(self._shape(target.served), old, obj, self._who(target.served, request, "Update")
                                           ) if sub is None else old["metadata"]["managedFields"]
        if owned is not None:
            obj["metadata"]["managedFields"] = owned
        if sub is None and old is not None:
            self._admit(target.served.storage_key, old, obj)
        done = self._store.update(target.served.storage_key, obj, subresource=sub, dry_run=_dry_run(request.query),
                                  decoded=True)
        if sub is None and old is not None:
            warnings = (*warnings, *podsecurity.warnings(self._store, target.served.storage_key, done, old))
        return messages.answer(target.served.show(done), 200, warnings)

    def _addressed(self, target: Target, body: Object) -> Object:
        """Check that the body says what the path says, and complete it from there."""
        resource = target.served.resource
        wanted = "autoscaling/v1" if target.subresource == "scale" else resource.api_version
        found = body.get("apiVersion")
        if found and found != wanted:
            raise errors.BadRequest(f"the API version in the data ({found}) does not match the expected API version ({wanted})")
        if resource.custom and not body.get("kind"):
            raise errors.BadRequest(f"Object 'Kind' is missing in '{messages.encode(body).decode()}'")
        kind = "Scale" if target.subresource == "scale" else resource.kind
        if body.get("kind") and body["kind"] != kind:
            raise errors.BadRequest(f"{body['kind']} in version \"{found}\" cannot be handled as a {kind}")
        meta = dict(body.get("metadata") or {})
        if resource.namespaced:
            meta["namespace"] = meta.get("namespace") or target.namespace
            if target.namespace is not None and meta["namespace"] != target.namespace:
                raise errors.BadRequest("the namespace of the provided object does not match the namespace sent on the request")
        else:
            meta.pop("namespace", None)
        return {**body, "apiVersion": wanted, "kind": kind, "metadata": meta}

    def _decode(self, target: Target, body: Object, request: Request) -> tuple[Object, tuple[str, ...]]:
        served = target.served
        inner = served.inward(body) if served.inward is not None else body
        unknown: list[str] = []
        schema = self._store.schema(served.storage_key)
        label = f'{served.resource.kind} in version "{served.resource.version}" cannot be handled as a {served.resource.kind}'
        inner = {**inner, "metadata": {key: item for key, item in inner["metadata"].items() if key != "managedFields"}}
        try:
            obj = schema.decode(inner, unknown)
        except errors.BadRequest as error:
            raise Undecodable(label, error.message) from None
        mode = request.query.get("fieldValidation") or "Warn"
        if unknown and mode == "Strict":
            told = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise Undecodable(label, f"strict decoding error: {told}")
        return obj, tuple(f'unknown field "{path}"' for path in unknown) if mode == "Warn" else ()


def delete_options(request: Request) -> DeleteOptions:
    """Read DeleteOptions from a request's body, or else from its query."""
    body = messages.parse(request.body, request.content_type) if request.body else {}
    body = body if isinstance(body, dict) else {}
    query = request.query
    wanted = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", request.seconds("gracePeriodSeconds"))
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy")
    if propagation not in (None, "Foreground", "Background", "Orphan"):
        raise errors.Invalid(f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "{propagation}": '
                             'supported values: "Foreground", "Background", "Orphan", "nil"')
    if body.get("orphanDependents") or request.flag("orphanDependents"):
        propagation = "Orphan"
    dry = _dry_run({"dryRun": (body.get("dryRun") or [query.get("dryRun", "")])[0]})
    return DeleteOptions(grace, propagation, wanted.get("uid"), wanted.get("resourceVersion"), dry)


def _patched(served: Served, current: Object, kind: str, change: Any) -> Object:
    if kind == JSON_PATCH:
        result = patch.apply_json(current, change)
    elif kind == MERGE_PATCH:
        if not isinstance(change, dict):
            raise errors.BadRequest("error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}")
        result = patch.merge(current, change)
    elif kind == STRATEGIC_PATCH and not served.resource.custom:
        result = patch_strategic.apply(_type_name(served), current, change)
    else:
        accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
        raise messages.unsupported(accepted if served.resource.custom else [*accepted[:2], STRATEGIC_PATCH, APPLY_PATCH])
    if not isinstance(result, dict) or not isinstance(result.get("metadata"), dict):
        raise errors.BadRequest("the patch leaves no object with metadata")
    return result


def _nobody() -> errors.Invalid:
    told = "Required value: is required for apply patch"
    cause = {"reason": "FieldValueRequired", "message": told, "field": "fieldManager"}
    return errors.Invalid(f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {told}',
                          details={"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause]})


def _no_object(patched: Object, error: Undecodable) -> errors.Invalid:
    """Refuse what a patch has made of an object: kube-apiserver words that as an invalid field `patch`."""
    text = json.dumps(messages.encode(patched).decode())
    told = f"Invalid value: {text}: {error.cause}"
    return errors.Invalid(f' "" is invalid: patch: {told}', details={
        "causes": [{"reason": "FieldValueInvalid", "message": told, "field": "patch"}]})


def _type_name(served: Served) -> str:
    return kubetypes.type_of(served.resource.group, served.resource.kind) or "any"


def _object(request: Request) -> Object:
    body = messages.parse(request.body, request.content_type)
    if not isinstance(body, dict):
        raise errors.BadRequest("json: cannot unmarshal array into Go value of type map[string]interface {}")
    return body


def _dry_run(query: Any) -> bool:
    wanted = query.get("dryRun") or ""
    if wanted not in ("", "All"):
        raise errors.Invalid(f'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: "{wanted}": '
                             'supported values: "All"')
    return bool(wanted)
