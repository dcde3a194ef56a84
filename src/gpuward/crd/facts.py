"""What a CRD schema says beyond a Python type: the base class and the markers that the schema generator reads.

A field's Python default is what gpuward acts on when the field is absent, so that a policy read from a file means the
same as one that an API server has filled in. `DEFAULTED` says that the published schema carries this default too;
`REQUIRED` says that the published schema insists on the field although gpuward could do without.
"""

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

DEFAULTED: Final = Meta(extra={"schema-default": True})
REQUIRED: Final = Meta(extra={"schema-required": True})

Schema: TypeAlias = dict[str, Any]
KubeObject: TypeAlias = dict[str, Any]
"""A Kubernetes API shape that gpuward passes on as it is: camelCase keys, JSON values."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=False):
    """Be the base of every part of a custom resource: immutable, camelCase in JSON, unknown fields ignored."""


def schema(**facts: Any) -> Meta:
    """Attach schema keywords; `_` in a keyword stands for `-`, as in `x_kubernetes_validations`."""
    return Meta(extra_json_schema={key.replace("_", "-"): value for key, value in facts.items()})


def shape(exact: Schema) -> Meta:
    """Replace the schema that the Python type alone would give by exactly this one."""
    return Meta(extra={"schema": exact})


def cel(rule: str, message: str) -> Meta:
    """Attach one CEL validation rule."""
    return schema(x_kubernetes_validations=[{"message": message, "rule": rule}])


Int32: TypeAlias = Annotated[int, schema(format="int32")]
Int64: TypeAlias = Annotated[int, schema(format="int64")]
NonNegative: TypeAlias = Annotated[int, Meta(ge=0)]
IntOrString: TypeAlias = Annotated[
    int | str,
    shape({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
]
