"""Schema facts about Kubernetes' and Prometheus' own shapes that appear inside NVIDIA's custom resources.

gpuward passes these shapes on unread, so they stay plain dicts. The facts are those of the published API types:
core/v1, meta/v1, apimachinery's resource.Quantity, and monitoring.coreos.com/v1.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from gpuward.crd.facts import Int64, KubeObject, Schema, Spec, schema, shape

STRING: Final[Schema] = {"type": "string"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
INT32: Final[Schema] = {"type": "integer", "format": "int32"}
INT64: Final[Schema] = {"type": "integer", "format": "int64"}


def _object(properties: dict[str, Schema], required: tuple[str, ...] = (), **facts: Any) -> Schema:
    """Describe an object; `facts` are further keywords with `_` for `-`."""
    described: Schema = {"type": "object", "properties": properties}
    if required:
        described["required"] = sorted(required)
    return described | {key.replace("_", "-"): value for key, value in facts.items()}


def _atomic(items: Schema) -> Schema:
    return {"type": "array", "items": items, "x-kubernetes-list-type": "atomic"}


TOLERATION: Final = _object({
    "key": STRING, "operator": STRING, "value": STRING, "effect": STRING, "tolerationSeconds": INT64,
})
_PROFILE: Final = _object({"type": STRING, "localhostProfile": STRING}, required=("type",))
POD_SECURITY_CONTEXT: Final = _object({
    "appArmorProfile": _PROFILE,
    "fsGroup": INT64,
    "fsGroupChangePolicy": STRING,
    "runAsGroup": INT64,
    "runAsNonRoot": BOOLEAN,
    "runAsUser": INT64,
    "seLinuxChangePolicy": STRING,
    "seLinuxOptions": _object({"level": STRING, "role": STRING, "type": STRING, "user": STRING}),
    "seccompProfile": _PROFILE,
    "supplementalGroups": _atomic(INT64),
    "supplementalGroupsPolicy": STRING,
    "sysctls": _atomic(_object({"name": STRING, "value": STRING}, required=("name", "value"))),
    "windowsOptions": _object({
        "gmsaCredentialSpec": STRING, "gmsaCredentialSpecName": STRING,
        "hostProcess": BOOLEAN, "runAsUserName": STRING,
    }),
})
_REQUIREMENTS: Final = _atomic(_object(
    {"key": STRING, "operator": STRING, "values": _atomic(STRING)}, required=("key", "operator"),
))
_NODE_SELECTOR_TERM: Final = _object(
    {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}, x_kubernetes_map_type="atomic",
)
NODE_AFFINITY: Final = _object({
    "preferredDuringSchedulingIgnoredDuringExecution": _atomic(_object(
        {"preference": _NODE_SELECTOR_TERM, "weight": INT32}, required=("preference", "weight"),
    )),
    "requiredDuringSchedulingIgnoredDuringExecution": _object(
        {"nodeSelectorTerms": _atomic(_NODE_SELECTOR_TERM)}, required=("nodeSelectorTerms",),
        x_kubernetes_map_type="atomic",
    ),
})
_RELABEL_ACTIONS: Final = [
    "replace", "Replace", "keep", "Keep", "drop", "Drop", "hashmod", "HashMod", "labelmap", "LabelMap",
    "labeldrop", "LabelDrop", "labelkeep", "LabelKeep", "lowercase", "Lowercase", "uppercase", "Uppercase",
    "keepequal", "KeepEqual", "dropequal", "DropEqual",
]
RELABEL_CONFIG: Final = _object({
    "action": {"type": "string", "default": "replace", "enum": _RELABEL_ACTIONS},
    "modulus": INT64 | {"minimum": 0},
    "regex": STRING,
    "replacement": STRING,
    "separator": STRING,
    "sourceLabels": {"type": "array", "items": STRING},
    "targetLabel": STRING,
})
_NUMBER: Final = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$",
    "x-kubernetes-int-or-string": True,
}
_DURATION_UNITS: Final = ("y", "w", "d", "h", "m", "s", "ms")
PROMETHEUS_DURATION: Final = "^(0|" + "".join(f"(([0-9]+){unit})?" for unit in _DURATION_UNITS) + ")$"

_DNS_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_CONDITION_TYPE: Final = rf"^({_DNS_SUBDOMAIN}/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"

Toleration: TypeAlias = Annotated[KubeObject, shape(TOLERATION)]
PodSecurityContext: TypeAlias = Annotated[KubeObject, shape(POD_SECURITY_CONTEXT)]
NodeAffinity: TypeAlias = Annotated[KubeObject, shape(NODE_AFFINITY)]
RelabelConfig: TypeAlias = Annotated[KubeObject, shape(RELABEL_CONFIG)]
Quantity: TypeAlias = Annotated[int | str, shape(QUANTITY)]
PrometheusDuration: TypeAlias = Annotated[str, Meta(pattern=PROMETHEUS_DURATION)]


class Condition(Spec, frozen=True, kw_only=True):
    """Report one aspect of an object's state, as `metav1.Condition` does."""

    type: Annotated[str, Meta(pattern=_CONDITION_TYPE, max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Meta(pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", min_length=1, max_length=1024)]
    message: Annotated[str, Meta(max_length=32768)]
    last_transition_time: Annotated[str, schema(format="date-time")]
    observed_generation: Annotated[Int64, Meta(ge=0)] | None = None
