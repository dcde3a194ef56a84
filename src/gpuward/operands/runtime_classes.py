"""State `pre-requisites`: the RuntimeClasses by which pods ask for a runtime that hands them GPUs."""

from __future__ import annotations

from gpuward import names
from gpuward.operands.facts import Context
from gpuward.operands.objects import Json, metadata
from gpuward.operands.state import ObjectRef

NAME = "pre-requisites"

CDI_CLASSES = ("nvidia-cdi", "nvidia-legacy")
VERSION = "node.k8s.io/v1"


def enabled(ctx: Context) -> bool:
    """Tell whether RuntimeClasses are used at all: the NRI plugin needs none."""
    return not ctx.spec.cdi.is_nri_plugin_enabled


def refs(ctx: Context) -> tuple[ObjectRef, ...]:
    """Return all that this state can make."""
    return tuple(ObjectRef(VERSION, "RuntimeClass", "", name) for name in dict.fromkeys((ctx.runtime_class, *CDI_CLASSES)))


def objects(ctx: Context) -> list[Json]:
    """Return the RuntimeClasses; without CDI only the one that operands use themselves."""
    classes = (ctx.runtime_class, *(CDI_CLASSES if ctx.spec.cdi.is_enabled else ()))
    return [
        {"apiVersion": VERSION, "kind": "RuntimeClass", "handler": name,
         "metadata": metadata(name, "", {names.COMPONENT_LABEL: names.OPERATOR_NAME})}
        for name in dict.fromkeys(classes)
    ]
