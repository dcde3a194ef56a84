"""DaemonSets and their ControllerRevisions to views."""

from __future__ import annotations

import hashlib

import msgspec

from gpuward import names
from gpuward.model.owned import OwnedView
from gpuward.model.reading import read_count
from gpuward.model.views import DaemonSetView, RevisionView
from gpuward.wire.meta import WireMeta
from gpuward.wire.podspec import WirePodSpec

_KUBERNETES = frozenset({"orphan", "foregroundDeletion"})
"""Finalizers that Kubernetes itself sets, and takes off."""


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None


class _Template(msgspec.Struct):
    spec: WirePodSpec = msgspec.field(default_factory=WirePodSpec)


class _Rolling(msgspec.Struct, rename="camel"):
    max_unavailable: int | str = ""


class _Strategy(msgspec.Struct, rename="camel"):
    type: str = "RollingUpdate"
    rolling_update: _Rolling | None = None


class _Spec(msgspec.Struct, rename="camel"):
    selector: _Selector = msgspec.field(default_factory=_Selector)
    template: _Template = msgspec.field(default_factory=_Template)
    update_strategy: _Strategy = msgspec.field(default_factory=_Strategy)


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    number_misscheduled: int = 0


class _DaemonSet(msgspec.Struct):
    metadata: WireMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Spelled(msgspec.Struct):
    spec: dict[str, object] = {}


class _RevisionSpec(msgspec.Struct):
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _RevisionData(msgspec.Struct):
    spec: _RevisionSpec = msgspec.field(default_factory=_RevisionSpec)


class _Revision(msgspec.Struct):
    metadata: WireMeta
    revision: int = 0
    data: _RevisionData | None = None


class _TemplateOnly(msgspec.Struct):
    spec: _RevisionSpec = msgspec.field(default_factory=_RevisionSpec)


class _Object(msgspec.Struct):
    metadata: WireMeta


_daemonsets = msgspec.json.Decoder(_DaemonSet)
_revisions = msgspec.json.Decoder(_Revision)
_template_of = msgspec.json.Decoder(_TemplateOnly)
_objects = msgspec.json.Decoder(_Object)
_templates = msgspec.json.Decoder(_Template)
_canonical = msgspec.json.Encoder(order="deterministic")


def daemonset_view(raw: bytes | msgspec.Raw) -> DaemonSetView:
    """Decode a DaemonSet. Raises msgspec.DecodeError for bytes that are not one."""
    ds = _daemonsets.decode(raw)
    meta, status = ds.metadata, ds.status
    return DaemonSetView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        generation=meta.generation,
        observed_generation=status.observed_generation,
        labels=meta.labels or {},
        selector=ds.spec.selector.match_labels or {},
        owner=meta.controller,
        on_delete=ds.spec.update_strategy.type == "OnDelete",
        max_unavailable=str(rolling.max_unavailable) if (rolling := ds.spec.update_strategy.rolling_update) is not None else "",
        desired=status.desired_number_scheduled,
        updated=status.updated_number_scheduled,
        available=status.number_available,
        unavailable=status.number_unavailable,
        misscheduled=status.number_misscheduled,
        applied_hash=(meta.annotations or {}).get(names.APPLIED_HASH, ""),
        metadata_digest=_metadata_digest(meta),
        template_generation=read_count((meta.annotations or {}).get(names.TEMPLATE_GENERATION_NOW, "")),
        config_digest=ds.spec.template.spec.env(names.DRIVER_CONFIG_DIGEST),
        pod_digest=_pod_digest(_template_of.decode(raw).spec.template),
        image=ds.spec.template.spec.main_image,
        system=(meta.annotations or {}).get(names.DRIVER_OS, ""),
        runtime=(meta.annotations or {}).get(names.DRIVER_RUNTIME, ""),
        shape=ds.spec.template.spec.shape,
        pull_secrets=tuple(one.name for one in ds.spec.template.spec.image_pull_secrets or () if one.name),
        node_selector=ds.spec.template.spec.node_selector or {},
        tolerations=ds.spec.template.spec.is_for,
        spares_default_runtime=ds.spec.template.spec.spares_default_runtime,
        opens_driver=ds.spec.template.spec.opens_driver,
        deleting=meta.deletion_timestamp is not None,
        leaves_pods="orphan" in (meta.finalizers or ()),
        kept_by_finalizers=_kept_by(meta),
        account=ds.spec.template.spec.service_account_name,
        upgrade_policy=(meta.annotations or {}).get(names.VALID_UPGRADE_POLICY, ""),
        drivers_go=(meta.annotations or {}).get(names.DRIVERS_GO, "") == "true",
        policies=tuple(each.uid for each in meta.owner_references or () if each.kind == "ClusterPolicy" and not each.controller),
    )


def _kept_by(meta: WireMeta) -> tuple[str, ...]:
    if meta.deletion_timestamp is None:
        return ()
    return tuple(each for each in meta.finalizers or () if each not in _KUBERNETES)


def _metadata_digest(meta: WireMeta) -> str:
    """Return a digest of what people may write without a new generation: labels, annotations, and what a controller's reference
    keeps from going.
    """
    annotations = {key: value for key, value in (meta.annotations or {}).items() if key != names.TEMPLATE_GENERATION_NOW}
    blocks = any(owner.controller and owner.block_owner_deletion for owner in meta.owner_references or ())
    return hashlib.sha256(_canonical.encode((meta.labels or {}, annotations, blocks))).hexdigest()[:16]


def revision_view(raw: bytes | msgspec.Raw) -> RevisionView:
    """Decode a ControllerRevision. Raises msgspec.DecodeError for bytes that are not one."""
    revision = _revisions.decode(raw)
    meta = revision.metadata
    owner = meta.controller
    suffix = meta.name.removeprefix(f"{owner.name}-") if owner else ""
    template = revision.data.spec.template if revision.data else None
    return RevisionView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        owner_uid=owner.uid if owner else "",
        created=meta.created,
        revision=revision.revision,
        hash=(meta.labels or {}).get(names.REVISION_HASH, suffix),
        config_digest=_templates.decode(template).spec.env(names.DRIVER_CONFIG_DIGEST) if template else "",
        pod_digest=_pod_digest(template) if template else "",
    )


def _pod_digest(template: msgspec.Raw) -> str:
    """Return a digest of what runs in the pods that a template makes: of its spec without the nodes that it selects and the pods
    that it is never beside, whatever labels and annotations it puts on them.
    """
    spec = msgspec.json.decode(template, type=_Spelled).spec
    spec.pop("nodeSelector", None)
    affinity = spec.pop("affinity", None)
    others = {key: value for key, value in affinity.items() if key != "podAntiAffinity"} if isinstance(affinity, dict) else {}
    if others:
        spec["affinity"] = others
    return hashlib.sha256(_canonical.encode(spec)).hexdigest()[:16]


def owned_view(raw: bytes | msgspec.Raw, kind: str) -> OwnedView:
    """Decode any object's identity. Raises msgspec.DecodeError for bytes that are not an object."""
    meta = _objects.decode(raw).metadata
    owner = meta.controller
    return OwnedView(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        generation=meta.generation,
        owner_uid=owner.uid if owner and owner.kind in names.OWNER_KINDS else "",
        applied_hash=(meta.annotations or {}).get(names.APPLIED_HASH, ""),
        deleting=meta.deletion_timestamp is not None,
    )
