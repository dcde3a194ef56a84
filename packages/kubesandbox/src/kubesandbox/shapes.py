"""What server-side apply has to know of a type: which parts merge, and by which keys.

Built-in types tell it by their strategic merge keys, custom resources by `x-kubernetes-list-type` and `-map-type`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from kubesandbox import kubetypes


class Shape(Protocol):
    """Describe one place in an object."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the fields by which a list's items are known; empty for other lists."""

    @property
    def is_set(self) -> bool:
        """Tell whether a list is a set of plain values."""

    @property
    def is_atomic(self) -> bool:
        """Tell whether an object is only ever replaced as a whole."""

    def field(self, name: str) -> Shape:
        """Return the shape of a field or of a map's value."""

    def element(self) -> Shape:
        """Return the shape of a list's items."""


@dataclass(frozen=True, slots=True)
class BuiltInShape:
    """Be the shape of a place in a built-in type."""

    type: str
    merge_key: str | None = None
    merges: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the strategic merge key, if the list has one."""
        return (self.merge_key,) if self.merges and self.merge_key else ()

    @property
    def is_set(self) -> bool:
        """Tell whether the list merges without a key."""
        return self.merges and self.merge_key is None and self.type.startswith("[]")

    @property
    def is_atomic(self) -> bool:
        """Say no, but for the selectors."""
        return self.type in ("meta.v1.LabelSelector", "core.v1.NodeSelector")

    def field(self, name: str) -> Shape:
        """Return the shape of a field or of a map's value."""
        if self.type.startswith("{}"):
            return BuiltInShape(self.type[2:])
        known = (kubetypes.fields(self.type) or {}).get(name)
        return BuiltInShape(known.type, known.merge_key, known.merges) if known is not None else BuiltInShape("any")

    def element(self) -> Shape:
        """Return the shape of the list's items."""
        return BuiltInShape(self.type[2:] if self.type.startswith("[]") else "any")


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """Be the shape of a place in a custom resource."""

    schema: dict[str, Any]

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of a list of type map."""
        is_map = self.schema.get("x-kubernetes-list-type") == "map"
        return tuple(self.schema.get("x-kubernetes-list-map-keys") or ()) if is_map else ()

    @property
    def is_set(self) -> bool:
        """Tell whether it is a list of type set."""
        return self.schema.get("x-kubernetes-list-type") == "set"

    @property
    def is_atomic(self) -> bool:
        """Tell whether it is a map of type atomic."""
        return self.schema.get("x-kubernetes-map-type") == "atomic"

    def field(self, name: str) -> Shape:
        """Return the shape of a property or of an additional one."""
        found = (self.schema.get("properties") or {}).get(name, self.schema.get("additionalProperties"))
        return SchemaShape(found if isinstance(found, dict) else {})

    def element(self) -> Shape:
        """Return the shape of the list's items."""
        return SchemaShape(self.schema.get("items") or {})
