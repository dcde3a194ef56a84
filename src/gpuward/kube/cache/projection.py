"""What a cache keeps of an object: how it is cut out of the JSON, and under which key."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from gpuward import errors

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Identity(NamedTuple):
    """Name an object, the one life of it (uid), and the version that was seen."""

    namespace: str
    name: str
    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class Keys(Generic[K]):
    """Say how a cache's keys are made of a namespace and a name, and how they come apart again."""

    make: Callable[[str, str], K]
    locate: Callable[[K], tuple[str, str]]


BY_NAME: Final[Keys[str]] = Keys(lambda _, name: name, lambda key: ("", key))
"""For cluster-scoped resources, and for those of one namespace where the name alone is enough to look up."""

BY_PLACE: Final[Keys[tuple[str, str]]] = Keys(lambda namespace, name: (namespace, name), lambda key: key)
"""For namespaced resources: (namespace, name)."""


@dataclass(frozen=True, slots=True)
class Projection(Generic[K, V]):
    """Say how a cache gets a view of an object.

    `view` takes an object's JSON and returns its view, or None for an object that does not matter; it may raise
    errors.GpuwardError, ValueError or a msgspec error for one that cannot be read. `same` tells whether two views
    differ in nothing that matters (a version alone usually does not): listeners are not told of such a change.
    """

    keys: Keys[K]
    view: Callable[[bytes], V | None]
    identity: Callable[[V], Identity]
    same: Callable[[V, V], bool] = operator.eq


class Meta(msgspec.Struct, rename="camel"):
    """Read the part of an object's metadata that every cache needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None


class Head(msgspec.Struct):
    """Read what an object is, before what it says."""

    kind: str = ""
    metadata: Meta = msgspec.field(default_factory=Meta)

    @property
    def identity(self) -> Identity:
        """Return the object's identity."""
        meta = self.metadata
        return Identity(meta.namespace, meta.name, meta.uid, meta.resource_version)

    @property
    def terminating(self) -> bool:
        """Tell whether a deleted object is still there, for its grace period or its finalizers."""
        meta = self.metadata
        return meta.deletion_timestamp is not None and bool(meta.finalizers or meta.deletion_grace_period_seconds)


_head_decoder: Final = msgspec.json.Decoder(Head)


def read_head(raw: bytes) -> Head:
    """Read kind and metadata. Raises errors.ServerError when they are not those of a Kubernetes object."""
    try:
        return _head_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.ServerError(f"the server sent an object whose metadata cannot be read: {error}") from error


class Seen(NamedTuple, Generic[V]):
    """Hold an object as it was projected: `view` None when it does not matter, `error` when it cannot be read."""

    identity: Identity
    view: V | None
    error: str = ""


def project(projection: Projection[Any, V], raw: bytes) -> Seen[V]:
    """Project an object. Raises errors.ServerError when not even its metadata can be read."""
    try:
        view = projection.view(raw)
    except (errors.GpuwardError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        return Seen(read_head(raw).identity, None, str(error) or type(error).__name__)
    return Seen(read_head(raw).identity if view is None else projection.identity(view), view)
